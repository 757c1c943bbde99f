//! Whether a file that had no room has some again.

use super::{ItemError, Writer};
use crate::row;

/// The row number of the blob that is written to find out. Rows of tasks begin at 1.
const SEQ: i64 = 0;
/// Room for less would be used up by the next few tasks.
const BYTES: usize = 64 * 1024;

impl Writer {
    /// Stores a blob; the commit fails if there is no room for it. The file is extended by it if need be, which a small
    /// change of an existing row would not show.
    pub(crate) fn try_room(&mut self) -> Result<(), ItemError> {
        let blob = bytes::Bytes::from_static(&[0; BYTES]);
        row::put_blob(&self.db, SEQ, row::BlobKind::Payload, Some(&blob))?;
        Ok(())
    }

    /// Deletes the blob of [`Writer::try_room`].
    pub(crate) fn delete_try(&mut self) -> Result<(), ItemError> {
        row::delete_blob(&self.db, SEQ, row::BlobKind::Payload)?;
        Ok(())
    }
}
