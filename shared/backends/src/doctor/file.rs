//! Checks a SQLite file.

use std::{fs::File, io::Read as _, path::Path, sync::Arc};

use dueline_store_sqlite::{Durability, OpenError, SCHEMA_VERSION, SqliteOptions, SqliteStore};

use super::{Finding, Reach, StoreReport};
use crate::error_chain;

const AREA: &str = "file";

/// Opens the file if no server owns it, which checks it for damage as every start does. A file that opening would
/// migrate is not opened.
pub(super) fn check(options: &SqliteOptions) -> StoreReport {
    let name = options.path.display().to_string();
    if !options.path.is_file() {
        let missing = Finding::defect(
            AREA,
            &name,
            "there is no such file",
            "'dueline serve' creates it; if it should exist, correct --data or --store",
        );
        return StoreReport::new(Reach::NotTried, vec![missing]);
    }
    let mut report = StoreReport::new(Reach::Yes, Vec::new());
    if is_older(&read_header(&options.path), SCHEMA_VERSION) {
        report.findings.push(Finding::warning(
            AREA,
            &name,
            format!("its schema is older than version {SCHEMA_VERSION}, so it was not opened here"),
            "nothing to do: the next 'dueline serve' migrates it; make a backup first",
        ));
        return report;
    }
    match SqliteStore::open(options.clone()) {
        Ok(store) => {
            let detail = format!("not damaged, schema version {SCHEMA_VERSION}, no server owns it");
            report.findings.push(Finding::ok(AREA, &name, detail));
            report.store = Some(Arc::new(store));
        }
        Err(error) => {
            report.is_owned = matches!(error, OpenError::InUse { .. });
            report.findings.push(open_error(&name, error));
        }
    }
    report.findings.push(durability(options.durability));
    report
}

fn open_error(name: &str, error: OpenError) -> Finding {
    let detail = error_chain(&error);
    let fix = match error {
        OpenError::InUse { owner, .. } => {
            let detail = format!("in use by {owner}; its content is checked through that server");
            return Finding::ok(AREA, name, detail);
        }
        OpenError::Newer { .. } => "use the dueline that wrote it, or a newer one",
        OpenError::Foreign => "name another file by --data or --store",
        OpenError::Linked { .. } => "remove the other names, or name a copy by --data or --store",
        OpenError::ReadOnly { .. } => {
            "let the user of this process write the file and its folder, or name another file by --data or --store"
        }
        OpenError::Damaged(_) => "restore it from a backup",
        OpenError::Setting { .. } | OpenError::Sqlite(_) | OpenError::Io { .. } => {
            "check the file, its folder and their permissions; SQLite needs a local file system"
        }
    };
    Finding::defect(AREA, name, detail, fix)
}

fn durability(durability: Durability) -> Finding {
    match durability {
        Durability::Full => Finding::ok(
            AREA,
            "durability",
            "full: accepted tasks survive a power failure",
        ),
        Durability::Normal => Finding::warning(
            AREA,
            "durability",
            "normal: a power failure may lose the latest accepted tasks",
            "set durability = \"full\" (?durability=full in a store URI)",
        ),
    }
}

/// The first bytes of a file, which hold the header of SQLite.
fn read_header(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // A file that cannot be read is reported when it is opened.
        let _ = file.take(72).read_to_end(&mut bytes);
    }
    bytes
}

/// Whether the header is that of a Dueline file with an older schema. SQLite keeps `user_version` at byte 60 and
/// `application_id` at byte 68.
fn is_older(header: &[u8], known: i32) -> bool {
    let number = |at: usize| {
        let bytes = header.get(at..at + 4)?;
        Some(i32::from_be_bytes(bytes.try_into().ok()?))
    };
    let is_dueline_file = number(68) == Some(i32::from_be_bytes(*b"DUEL"));
    is_dueline_file && number(60).is_some_and(|version| (1..known).contains(&version))
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    fn header(version: i32, application: [u8; 4]) -> Vec<u8> {
        let mut header = vec![0; 60];
        header.extend(version.to_be_bytes());
        header.extend([0; 4]);
        header.extend(application);
        header
    }

    #[test]
    fn only_a_dueline_file_with_an_older_schema_is_not_opened() {
        assert!(is_older(&header(2, *b"DUEL"), 3));
        assert!(!is_older(&header(3, *b"DUEL"), 3));
        assert!(!is_older(&header(4, *b"DUEL"), 3));
        assert!(!is_older(&header(2, *b"else"), 3));
        assert!(!is_older(b"short", 3));
    }

    #[tokio::test]
    async fn the_header_of_a_dueline_file_is_read_correctly() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.db");
        drop(SqliteStore::open(SqliteOptions::at(&path)).expect("a store"));
        let header = read_header(&path);
        assert!(is_older(&header, SCHEMA_VERSION + 1));
        assert!(!is_older(&header, SCHEMA_VERSION));
    }

    #[tokio::test]
    async fn g_18_problems_of_a_file_are_reported_and_the_file_is_not_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = |name: &str| SqliteOptions::at(folder.path().join(name));
        let of = |options: &SqliteOptions| {
            let report = check(options);
            let first = report.findings.first().expect("a finding").clone();
            (first, report)
        };
        let (finding, report) = of(&options("none.db"));
        assert_eq!(
            (finding.state, report.reach),
            (State::Defect, Reach::NotTried)
        );
        assert!(!options("none.db").path.exists());

        std::fs::write(&options("text.db").path, "not a database at all").expect("a file");
        let (finding, _) = of(&options("text.db"));
        assert_eq!(finding.state, State::Defect, "{finding:?}");
        assert!(finding.fix.expect("a fix").contains("another file"));
        let text = std::fs::read(&options("text.db").path).expect("a file");
        assert_eq!(text, b"not a database at all");

        let mut good = options("good.db");
        let store = SqliteStore::open(good.clone()).expect("a store");
        let (finding, report) = of(&good);
        assert!(report.is_owned && report.store.is_none());
        assert!(finding.detail.contains("in use"), "{finding:?}");
        drop(store);
        good.durability = Durability::Normal;
        let (finding, report) = of(&good);
        assert_eq!(finding.state, State::Ok, "{finding:?}");
        assert!(report.store.is_some());
        assert_eq!(report.findings[1].state, State::Warning);
    }
}
