//! How large messages may be, and what that means for batches.

/// Largest message in bytes, in either direction.
pub const MESSAGE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Most assignments in one answer: that many fit into a message even when each has the largest input and
/// the largest results of predecessors.
pub(crate) const ASSIGNMENTS_MAX: usize = 80;

/// Bytes at which a batch is sent in more than one message.
pub(crate) const CHUNK_BYTES_MAX: usize = 24 * 1024 * 1024;

/// Largest entry of a batch that is sent at all. The limits of all fields together stay well below this.
pub(crate) const ENTRY_BYTES_MAX: usize = 1024 * 1024;

// A chunk may exceed its bound by one entry.
const _: () = assert!(CHUNK_BYTES_MAX + ENTRY_BYTES_MAX < MESSAGE_BYTES_MAX);

const _: () = {
    let limits = dueline_domain::limits();
    let handler = crate::check::HANDLER_CONFIG_BYTES_MAX;
    let texts = 8 * limits.text_bytes_max;
    let results = limits.results_bytes_max + limits.after_max * 2 * limits.text_bytes_max;
    let assignment = limits.payload_bytes_max + handler + texts + results;
    assert!(ASSIGNMENTS_MAX * assignment < MESSAGE_BYTES_MAX);
};
