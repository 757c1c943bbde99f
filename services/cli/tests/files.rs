//! Files that commands read: every one is bounded, and errors name the bound.

mod fake;

use std::process::Command;

use fake::{FakeServer, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_an_end_is_refused_before_it_fills_the_memory() {
    for (args, bound) in [
        (&["job", "apply", "/dev/zero"][..], "1048576 bytes"),
        (&["cost", "--prices", "/dev/zero"], "1048576 bytes"),
        (&["serve", "--config", "/dev/zero"], "1048576 bytes"),
        (
            &["task", "submit", "mail", "--payload", "@/dev/zero"],
            "262144 bytes",
        ),
        (
            &["task", "submit", "mail", "--batch", "/dev/zero"],
            "557056 bytes",
        ),
    ] {
        let output = run("http://127.0.0.1:9", args, "").await;
        assert_eq!((output.code, &*output.stdout), (2, ""), "{args:?}");
        let first = output.stderr.lines().next().unwrap();
        assert!(
            first.contains("/dev/zero") && first.contains(bound),
            "{first}"
        );
    }
    let input = "x".repeat(1024 * 1024 + 1);
    let output = run("http://127.0.0.1:9", &["job", "apply", "-"], &input).await;
    let expected = "error: standard input is too large; at most 1048576 bytes are read\n";
    assert_eq!((output.code, &*output.stderr), (2, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_or_a_large_file_is_no_job_definition() {
    let home = tempfile::tempdir().unwrap();
    // A sparse file of 3 GiB takes no room.
    let large = home.path().join("large.json");
    std::fs::File::create(&large)
        .unwrap()
        .set_len(3 << 30)
        .unwrap();
    for (path, expected) in [
        (
            large.as_path(),
            "is too large; at most 1048576 bytes are read",
        ),
        (home.path(), "Is a directory"),
    ] {
        let path = path.to_str().unwrap();
        let output = run("http://127.0.0.1:9", &["job", "apply", path], "").await;
        assert_eq!(output.code, 2);
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_may_come_from_a_pipe() {
    let fake = FakeServer::start(|_| (409, "{}".into())).await;
    let home = tempfile::tempdir().unwrap();
    let fifo = home.path().join("fifo.json");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let path = fifo.clone();
    let writer = std::thread::spawn(move || std::fs::write(path, r#"{"name": "a"}"#).unwrap());
    fake.run(&["job", "apply", fifo.to_str().unwrap()]).await;
    writer.join().unwrap();
    assert_eq!(fake.requests()[0].uri.path(), "/v1/jobs/a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_benchmark_that_cannot_begin_is_invalid_and_creates_no_folder() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below_file = file.join("bench").to_str().unwrap().to_owned();
    let output = run("http://127.0.0.1:9", &["bench", "--dir", &below_file], "").await;
    assert_eq!(output.code, 2, "{}", output.stderr);
    let expected = format!("error: cannot create a folder in {below_file}: ");
    assert!(output.stderr.starts_with(&expected), "{}", output.stderr);
    let folder = home.path().join("x/y");
    let uris = ["--store", "sqlite:f", "--queue", "local:"];
    let args = ["bench", "--dir", folder.to_str().unwrap()];
    let args: Vec<&str> = args.into_iter().chain(uris).collect();
    let output = run("http://127.0.0.1:9", &args, "").await;
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(!home.path().join("x").exists());
}
