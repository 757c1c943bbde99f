//! Sinks that are files: one line of JSON for each record.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use dueline_ports::{SinkFailure, SinkRecord};
use tokio::sync::Mutex;

/// The files of one folder.
#[derive(Debug)]
pub(crate) struct FileSinks {
    folder: PathBuf,
    /// Held while a thread writes. Lines of two deliveries never mix, and a disk that hangs holds one thread.
    writing: Arc<Mutex<()>>,
}

impl FileSinks {
    pub(crate) fn new(folder: PathBuf) -> Self {
        let writing = Arc::default();
        Self { folder, writing }
    }

    /// Appends the records to a file. All of them are on the disk, or the delivery of all has failed.
    pub(crate) async fn deliver(
        &self,
        name: &str,
        records: &[SinkRecord],
    ) -> Vec<Result<(), SinkFailure>> {
        let mut lines = Vec::with_capacity(records.iter().map(|r| r.json.len() + 1).sum());
        for record in records {
            lines.extend_from_slice(&record.json);
            lines.push(b'\n');
        }
        let (folder, name) = (self.folder.clone(), name.to_owned());
        let writing = self.writing.clone().lock_owned().await;
        let written = tokio::task::spawn_blocking(move || {
            let _writing = writing;
            append(&folder, &name, &lines)
        });
        let result = match written.await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let result =
            result.map_err(|error| SinkFailure::new(format!("failed to write the file: {error}")));
        vec![result; records.len()]
    }
}

/// Appends lines to a file and flushes them to the disk.
fn append(folder: &Path, name: &str, lines: &[u8]) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut open = OpenOptions::new();
    let open = open.create(true).append(true).read(true);
    // Records hold payloads and results: only the user of the server can read a new file.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(open, 0o600);
    let mut file = open.open(folder.join(name))?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if about.len() == 0 {
        file.write_all(lines)?;
        file.sync_all()?;
        // The entry of a new file in its folder.
        return File::open(folder)?.sync_all();
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        // A crash or a full disk has cut the last line.
        file.write_all(b"\n")?;
    }
    file.write_all(lines)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::record;

    #[tokio::test]
    async fn f_111_every_record_is_a_line_even_after_a_line_that_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("done");
        let files = FileSinks::new(inner.clone());
        let deliver = async |numbers: &[u8]| {
            let records: Vec<_> = numbers.iter().map(|n| record(*n)).collect();
            files.deliver("a.ndjson", &records).await
        };
        assert_eq!(deliver(&[1, 2]).await, [Ok(()), Ok(())]);
        let path = inner.join("a.ndjson");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"cut\":").unwrap();
        assert_eq!(deliver(&[3]).await, [Ok(())]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"n\":1}\n{\"n\":2}\n{\"cut\":\n{\"n\":3}\n");
    }

    #[tokio::test]
    async fn f_111_a_file_that_cannot_be_written_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let files = FileSinks::new(folder.path().into());
        let result = files.deliver("a", &[record(1)]).await.remove(0);
        assert!(result.is_err(), "{result:?}");
    }
}
