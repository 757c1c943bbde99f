//! Limits on everything that a caller can submit.

/// The limits of one deployment. A value above its limit is refused with an error that names the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest payload, checkpoint or result in bytes.
    pub payload_bytes_max: usize,
    /// Largest error text in bytes. A longer text is cut, not refused.
    pub error_bytes_max: usize,
    /// Past runs kept with a task. Older runs are removed but counted.
    pub history_len_max: usize,
    /// Most tasks in one batch.
    pub batch_len_max: usize,
    /// Most predecessors of a task.
    pub after_max: usize,
    /// Most bytes of what the predecessors of a task have returned that are passed on to its worker, all together.
    pub results_bytes_max: usize,
    /// Most children of a task.
    pub children_max: usize,
    /// Most parents above a task.
    pub depth_max: u32,
    /// Most tasks of one batch that wait for each other in a row.
    pub batch_depth_max: usize,
    /// Most tags on a task.
    pub tags_max: usize,
    /// Longest tag, name, key or creator in bytes.
    pub text_bytes_max: usize,
    /// Largest details map in bytes of JSON.
    pub details_bytes_max: usize,
}

/// The default limits.
pub const fn limits() -> Limits {
    Limits {
        payload_bytes_max: 256 * 1024,
        error_bytes_max: 4 * 1024,
        history_len_max: 32,
        batch_len_max: 10_000,
        after_max: 32,
        results_bytes_max: 64 * 1024,
        children_max: 10_000,
        depth_max: 100,
        batch_depth_max: 101,
        tags_max: 16,
        text_bytes_max: 256,
        details_bytes_max: 16 * 1024,
    }
}
