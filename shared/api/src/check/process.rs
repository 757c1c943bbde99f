//! Processes that register.

use dueline_ports::{Metadata, ProcessKind};

use crate::{ApiError, ErrorReason};

/// Most entries of the metadata of a process.
const ENTRIES_MAX: usize = 16;
/// Longest name of an entry, and longest value, in bytes.
const ENTRY_BYTES_MAX: (usize, usize) = (64, 256);

/// The kind of a process. Without a name it is an executor.
pub fn process_kind(name: Option<&str>) -> Result<ProcessKind, ApiError> {
    let kind = name.filter(|name| !name.is_empty()).map(str::parse);
    let kind = kind
        .transpose()
        .map_err(|message: String| ApiError::invalid("kind", ErrorReason::UnknownKind, message))?;
    Ok(kind.unwrap_or_default())
}

/// What a process says about itself.
pub fn metadata<K: AsRef<str>, V: AsRef<str>>(
    entries: impl IntoIterator<Item = (K, V)>,
) -> Result<Metadata, ApiError> {
    let refused = |reason, message: String| ApiError::invalid("metadata", reason, message);
    let mut metadata = Metadata::new();
    for (name, value) in entries {
        let (name, value) = (name.as_ref(), value.as_ref());
        let (name_max, value_max) = ENTRY_BYTES_MAX;
        if name.is_empty() || name.len() > name_max || value.len() > value_max {
            let message =
                format!("a name has 1 to {name_max} bytes, and a value at most {value_max}");
            return Err(refused(ErrorReason::TooLong, message));
        }
        metadata.insert(name.into(), value.into());
        if metadata.len() > ENTRIES_MAX {
            let message = format!("at most {ENTRIES_MAX} entries are allowed");
            return Err(refused(ErrorReason::TooMany, message));
        }
    }
    Ok(metadata)
}
