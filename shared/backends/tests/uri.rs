//! Backends are picked by URI, and a wrong one says what would be right.

use dueline_backends::{open_queue, open_store};

fn store_error(uri: &str) -> String {
    match open_store(uri) {
        Ok(_) => panic!("'{uri}' was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn f_139_unknown_schemes_and_options_are_refused_with_the_known_ones() {
    assert!(store_error("mysql://x").contains("known are sqlite"));
    assert!(store_error("sqlite:x.db?colour=red").contains("durability"));
    assert!(store_error("sqlite:x.db?durability=maybe").contains("full or normal"));
    for bad in ["", "sqlite", "sqlite:", ":x"] {
        assert!(store_error(bad).contains("sqlite:///path"), "{bad}");
    }
    assert!(open_queue("kafka:x").is_err_and(|e| e.to_string().contains("known are local")));
    assert!(open_queue("local").is_err());
}

#[test]
fn f_139_a_file_is_opened_by_both_forms_of_its_uri() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    for uri in [
        format!("sqlite:{}", path.display()),
        format!("sqlite://{}?durability=normal", path.display()),
    ] {
        let opened = open_store(&uri).unwrap();
        assert!(opened.bytes_on_disk() > 0);
    }
    assert!(open_queue("local:").is_ok());
}
