//! `limit_pages`: limits the size of the file.

use super::{ItemError, Writer};
use crate::open;

impl Writer {
    pub(crate) fn limit_pages(&self, pages: u32) -> Result<(), ItemError> {
        Ok(open::limit_pages(&self.db, pages)?)
    }
}
