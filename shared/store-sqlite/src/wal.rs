//! Makes the log that an earlier process left behind durable.
//!
//! After a kill between a write to the log and its flush, the log exists only in the memory of the operating system.
//! SQLite reads it there and would confirm tasks that a loss of power still takes away. After a failed flush, Linux
//! even regards the pages as written: a later flush succeeds without writing them, and commits appended behind them are
//! lost with them. So all of the log is written again, with its own bytes, and flushed.

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    path::Path,
};

use rusqlite::Connection;

use crate::{OpenError, lock};

/// Bytes rewritten at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// A file that can be flushed to the disk.
trait Durable: Read + Write + Seek {
    fn sync(&mut self) -> io::Result<()>;
}

impl Durable for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Rewrites and flushes the log of the database at `path`, if there is one.
///
/// The owner's lock does not exclude programs that are not servers, such as a shell or a backup. So SQLite's lock for
/// writing is held meanwhile: nothing is appended to the log, and it is not begun anew. `db` must not have written or
/// closed before, because a checkpoint writes parts of the log into the database.
pub(crate) fn make_durable(db: &Connection, path: &Path) -> Result<(), OpenError> {
    let log_path = lock::with_suffix(path, "-wal");
    let failed = |source| OpenError::Io {
        path: log_path.display().to_string(),
        source,
    };
    let mut log = match File::options().read(true).write(true).open(&log_path) {
        Ok(log) => log,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if log.metadata().map_err(failed)?.len() == 0 {
        return Ok(());
    }
    db.execute_batch("BEGIN IMMEDIATE")?;
    let rewritten = rewrite(&mut log).and_then(|()| sync_folder(path));
    db.execute_batch("ROLLBACK")?;
    rewritten.map_err(failed)
}

/// Writes every byte of a file again, and flushes the file.
fn rewrite(file: &mut impl Durable) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    loop {
        file.seek(SeekFrom::Start(at))?;
        let len = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&chunk[..len])?;
        at += len as u64;
    }
    file.sync()
}

/// Flushes the names of the database and its log.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| {
        // The path of an owned database is canonical, so it has a folder.
        File::open(folder)?.sync_all()
    })
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A file in memory that records which of its bytes were written since the last flush.
    struct RecordedFile {
        bytes: Cursor<Vec<u8>>,
        is_written: Vec<bool>,
        /// Whether all bytes had been written, for each flush.
        flushes: Vec<bool>,
    }

    impl Read for RecordedFile {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            // Short reads, as the operating system may answer.
            let len = buffer.len().min(700_001);
            self.bytes.read(&mut buffer[..len])
        }
    }

    impl Write for RecordedFile {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            let from = usize::try_from(self.bytes.position()).unwrap();
            let len = self.bytes.write(buffer)?;
            self.is_written[from..from + len].fill(true);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for RecordedFile {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.bytes.seek(to)
        }
    }

    impl Durable for RecordedFile {
        fn sync(&mut self) -> io::Result<()> {
            self.flushes.push(self.is_written.iter().all(|is| *is));
            Ok(())
        }
    }

    #[test]
    fn every_byte_is_written_again_unchanged_and_then_flushed() {
        for len in [1, CHUNK_BYTES, 3 * CHUNK_BYTES + 17] {
            let bytes: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let mut file = RecordedFile {
                bytes: Cursor::new(bytes.clone()),
                is_written: vec![false; len],
                flushes: Vec::new(),
            };
            rewrite(&mut file).unwrap();
            assert!(file.bytes.into_inner() == bytes, "{len} bytes");
            assert_eq!(file.flushes, [true], "{len} bytes");
        }
    }

    /// Run with `--ignored --nocapture` to see how long an open takes for the largest log that stays on the disk.
    #[test]
    #[ignore = "a measurement"]
    fn the_time_to_rewrite_a_log_of_64_mib() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, vec![7; 64 * CHUNK_BYTES]).unwrap();
        let mut file = File::options().read(true).write(true).open(&path).unwrap();
        for _ in 0..3 {
            let begun = tokio::time::Instant::now();
            rewrite(&mut file).unwrap();
            println!("{:?}", begun.elapsed());
        }
    }
}
