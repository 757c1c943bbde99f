//! The image contains every program of the workspace and no other.

mod programs;

use std::collections::BTreeSet;

use dueline_tests_infra::text;
use programs::programs;

/// The lines that begin with `begin`.
fn lines<'a>(dockerfile: &'a str, begin: &str) -> Vec<&'a str> {
    let lines = dockerfile.lines().map(str::trim);
    lines.filter(|line| line.starts_with(begin)).collect()
}

#[test]
fn every_program_of_the_workspace_is_in_the_image_and_no_other() {
    let dockerfile = text("infra/Dockerfile");
    let copied: BTreeSet<_> = lines(&dockerfile, "COPY --from=build ")
        .into_iter()
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let (from, to) = (words[2], words[3]);
            let name = from
                .strip_prefix("/out/")
                .expect("built in the first stage");
            assert_eq!(to, format!("/usr/local/bin/{name}"));
            name.to_owned()
        })
        .collect();
    let known: BTreeSet<_> = programs().into_keys().collect();
    assert_eq!(copied, known);
    for name in known {
        assert!(
            dockerfile.contains(&format!(" {name}")),
            "{name} is not built"
        );
    }
}

#[test]
fn the_image_has_no_shell_and_no_root() {
    let dockerfile = text("infra/Dockerfile");
    let last = lines(&dockerfile, "FROM ").pop().expect("a base");
    assert!(
        last.contains("distroless/static") && last.ends_with(":nonroot"),
        "{last}"
    );
    let after = &dockerfile[dockerfile.find(last).expect("it is there")..];
    assert_eq!(lines(after, "USER "), ["USER 65532:65532"]);
    assert!(
        lines(after, "RUN ").is_empty(),
        "the image has no shell to run it"
    );
    assert!(
        lines(after, "ENTRYPOINT [").len() == 1,
        "a plain entry point needs a shell"
    );
}

#[test]
fn the_image_is_built_with_the_compiler_version_of_the_workspace() {
    let manifest = text("Cargo.toml");
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \""))
        .and_then(|rest| rest.split('"').next())
        .expect("the workspace names its compiler version");
    assert!(text("infra/Dockerfile").contains(&format!("FROM rust:{version}-")));
}
