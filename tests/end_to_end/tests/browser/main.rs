//! A real browser opens a page of another site that tries to run a command through a server on loopback.
//!
//! Chromium comes from the system's packages. If it is missing, the test is reported as ignored.

mod attack;
mod attack_page;
mod recording_proxy;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use dueline_tests_end_to_end::{ChildProcess, ServerProcess, TestFolder, pause, wait_until};
use libtest_mimic::{Arguments, Trial};

use self::{attack::BrowserAttack, attack_page::AttackPage, recording_proxy::RecordingProxy};

const NAME: &str = "g_13_a_page_of_another_site_runs_no_command_through_a_browser";
/// Names of the program in the packages of distributions.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// A browser takes seconds to start on a busy machine.
const BROWSER_MAX: Duration = Duration::from_secs(90);

fn main() {
    let args = Arguments::from_args();
    let browser = browser();
    if browser.is_none() {
        eprintln!("{NAME} is skipped: no Chromium on the path");
    }
    let is_missing = browser.is_none();
    let trial = Trial::test(NAME, move || {
        let browser = browser.ok_or("no Chromium on the path")?;
        tokio::runtime::Runtime::new()?.block_on(page_of_another_site(&browser));
        Ok(())
    });
    libtest_mimic::run(&args, vec![trial.with_ignored_flag(is_missing)]).exit();
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| PROGRAMS.map(|program| folder.join(program)))
        .find(|program| program.is_file())
}

/// The hosts under which the page is opened: another site, another site on this machine, another port of the same host.
const PAGE_HOSTS: [&str; 3] = ["evil.example", "localhost", "127.0.0.1"];

async fn page_of_another_site(browser: &Path) {
    let folder = TestFolder::new();
    let server = ServerProcess::start(&folder, &[]).await;
    let recorder = RecordingProxy::to(server.url()).await;
    let page = AttackPage::serve().await;
    for host in PAGE_HOSTS {
        let trace = folder.file(&format!("command-of-{host}"));
        let attack = BrowserAttack::new(&trace);
        page.set(&attack.html(&recorder.url()));
        open(browser, &folder, &page, &page.url(host)).await;

        let sent = recorder.take();
        for path in attack.simple_requests() {
            let requests = sent.requests.matches(&format!("POST {path} ")).count();
            assert!(
                requests >= 2,
                "{host}: the browser sent {requests} requests to {path}, by fetch and by form: the page proves nothing\n{}",
                sent.requests
            );
        }
        assert!(sent.answers.contains("HTTP/1.1 403"), "{}", sent.answers);
        assert!(
            !sent.answers.contains("HTTP/1.1 2"),
            "{host}: {}",
            sent.answers
        );
        assert!(!trace.exists(), "{host}: the command ran");
    }

    // DNS rebinding: the name of the page now resolves to the server, so for the browser it is the same origin.
    let trace = folder.file("command-of-rebinding");
    let attack = BrowserAttack::new(&trace);
    page.set(&attack.html(&recorder.url_as("evil.example")));
    open(browser, &folder, &page, &page.url("evil.example")).await;
    let sent = recorder.take();
    assert!(sent.requests.contains("POST /"), "{}", sent.requests);
    assert!(!sent.answers.contains("HTTP/1.1 2"), "{}", sent.answers);

    let jobs = server.api.get("jobs").await.expect_success();
    assert_eq!(jobs["jobs"], serde_json::json!([]));
    // An accepted task would start at once.
    pause(Duration::from_millis(300)).await;
    assert!(!trace.exists(), "the command ran");
}

/// Opens a URL in a new browser and waits until the page reports that it has sent all its requests.
async fn open(browser: &Path, folder: &TestFolder, page: &AttackPage, url: &str) {
    let profile = folder.file("profile");
    let _ = std::fs::remove_dir_all(&profile);
    let profile = format!("--user-data-dir={}", profile.display());
    let args = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-proxy-server",
        "--host-resolver-rules=MAP evil.example 127.0.0.1",
        // Without these checks of the browser, the server itself has to refuse the requests.
        "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
        &profile,
        url,
    ];
    let mut process = ChildProcess::start(folder, "browser", browser, &args);
    wait_until("the page to send all requests", BROWSER_MAX, async || {
        if page.is_done() {
            Ok(())
        } else {
            Err(process.log())
        }
    })
    .await;
    process.kill().await;
}
