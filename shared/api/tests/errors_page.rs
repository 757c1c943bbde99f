//! `docs/errors.md` lists every kind and reason. It is written from the code.

use std::{fmt::Write as _, fs, path::Path};

use dueline_api::{ErrorKind, ErrorReason};

const HEAD: &str = "\
# Errors

Every refused or failed call answers with a `kind`, for programs that only branch, a `reason` for those that know the case, and
a text for people; many also name the `field`, the `state` of the task, or its `owner`. They are the same through REST (a
problem document, RFC 9457), gRPC (`ApiError` in the details of the status), the embedded API and the command line (`--json`).

Kinds and reasons never change their meaning. New reasons may be added, so a program treats one that it does not know by its
kind.

## Kinds

| kind | HTTP status | retryable | meaning |
|---|---|---|---|
";

const fn meaning(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "The call is wrong and will never work.",
        ErrorKind::Denied => "The call is not allowed.",
        ErrorKind::NotFound => "There is no such thing.",
        ErrorKind::Conflict => "The current state conflicts with the call.",
        ErrorKind::TooLarge => "The call or one of its values is too large.",
        ErrorKind::RateLimited => "There are too many calls; the same call may work later.",
        ErrorKind::Unavailable => "The same call may work later. It had no effect.",
        ErrorKind::Deadline => "No answer in time. The call may have taken effect.",
        ErrorKind::Internal => "A fault of the server.",
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for kind in ErrorKind::ALL {
        let (name, status) = (kind.name(), kind.http_status());
        let retryable = if kind.is_retryable() { "yes" } else { "no" };
        writeln!(
            page,
            "| `{name}` | {status} | {retryable} | {} |",
            meaning(kind)
        )
        .unwrap();
    }
    page.push_str("\n## Reasons\n\n| reason | meaning |\n|---|---|\n");
    for (reason, about) in ErrorReason::ALL {
        writeln!(page, "| `{reason}` | {} |", about.trim()).unwrap();
    }
    page
}

#[test]
fn f_020_every_kind_and_reason_of_an_error_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = page();
    if std::env::var_os("UPDATE_ERRORS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(
        written == page,
        "docs/errors.md differs from the code: run this test with UPDATE_ERRORS=1"
    );
}
