//! The servers that were named: is each there, ready, of our version, and does it hold on to its store.

use std::time::Duration;

use dueline_backends::doctor::{ClockReading, Finding, Reach};
use dueline_domain::Timestamp;
use serde::Deserialize;

use super::processes::AREA;
use crate::{
    cli::{Context, GlobalArgs},
    client::{self, Client},
    exit::CliError,
    units::span,
};

/// Where a server is when none was named; that nobody is there may be as it should be.
const DEFAULT: &str = "http://127.0.0.1:7070";
/// Longest wait for one answer.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Connections lost within [`LATELY_MS`] that are no accident any more.
const LOST_MAX: usize = 3;
const LATELY_MS: u64 = 600_000;
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What was seen of a server.
pub(super) struct Server {
    pub(super) url: String,
    pub(super) reach: Reach,
    /// Whether it answers as this program does.
    pub(super) is_ours: bool,
    pub(super) clock: Option<ClockReading>,
    pub(super) findings: Vec<Finding>,
}

/// What `/healthz` and `/readyz` say.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    version: Option<String>,
    /// Why it is not ready.
    detail: Option<String>,
    store_connection: Vec<Change>,
}

#[derive(Debug, Default, Deserialize)]
struct Change {
    state: String,
    ago_ms: u64,
}

/// One page as it came.
struct Page {
    is_success: bool,
    date: Option<String>,
    asked: Timestamp,
    answered: Timestamp,
    text: String,
}

/// Looks at each address of `--server`.
pub(super) async fn look_at_all(context: &Context) -> Result<Vec<Server>, CliError> {
    let GlobalArgs { server, .. } = &context.global;
    let urls = server
        .split(',')
        .map(str::trim)
        .filter(|url| !url.is_empty());
    let mut servers = Vec::new();
    for url in urls {
        // An address that is none is an error of the command line.
        Client::new(url, WAIT_MAX, None)?;
        servers.push(look_at(context, url).await);
    }
    Ok(servers)
}

async fn look_at(context: &Context, url: &str) -> Server {
    let alive = match page(context, url, "healthz").await {
        Ok(page) => page,
        Err(error) => return absent(url, &error),
    };
    let clock = alive.date.as_deref();
    let clock = clock.and_then(|date| ClockReading::of(url, date, alive.asked, alive.answered));
    let said = serde_json::from_str::<Said>(&alive.text).unwrap_or_default();
    let mut server = Server {
        url: url.to_owned(),
        reach: Reach::Yes,
        is_ours: said.version.is_some(),
        clock,
        findings: Vec::new(),
    };
    let Some(version) = &said.version else {
        server.findings.push(foreign(url));
        return server;
    };
    let ready = page(context, url, "readyz").await;
    server
        .findings
        .extend(judge(url, alive.is_success, version, ready.as_ref()));
    server
        .findings
        .extend(connection(url, &said.store_connection));
    if server.clock.is_none() {
        server.findings.push(Finding::unknown(
            "clocks",
            url,
            "its answer carries no date",
        ));
    }
    server
}

async fn page(context: &Context, url: &str, name: &str) -> Result<Page, CliError> {
    let timeout = context.global.request_timeout.min(WAIT_MAX);
    let http = client::http(url, timeout)?;
    let asked = context.now();
    let sent = http
        .get(format!("{}/{name}", url.trim_end_matches('/')))
        .send()
        .await;
    let failed = |error: reqwest::Error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        CliError::invalid(cause.to_string())
    };
    let response = sent.map_err(failed)?;
    let answered = context.now();
    let date = response
        .headers()
        .get("date")
        .and_then(|date| date.to_str().ok());
    let (date, is_success) = (date.map(str::to_owned), response.status().is_success());
    let text = response.text().await.map_err(failed)?;
    Ok(Page {
        is_success,
        date,
        asked,
        answered,
        text,
    })
}

fn absent(url: &str, why: &CliError) -> Server {
    let (reach, finding) = if url == DEFAULT {
        let detail =
            format!("no server answers at {url}, where one is looked for when none is named");
        let finding = Finding::unknown(AREA, "servers", detail);
        (
            Reach::NotTried,
            finding.mended_by("name yours by --server URL,URL…"),
        )
    } else {
        let mend = "start it, or name the right address by --server; a network or firewall may be in between";
        let finding = Finding::defect(
            AREA,
            url,
            format!("the server cannot be reached: {why}"),
            mend,
        );
        (Reach::No, finding)
    };
    Server {
        url: url.to_owned(),
        reach,
        is_ours: false,
        clock: None,
        findings: vec![finding],
    }
}

fn foreign(url: &str) -> Finding {
    if url == DEFAULT {
        let detail =
            format!("something else than dueline answers at {url}, where no server was named");
        return Finding::unknown(AREA, "servers", detail)
            .mended_by("name yours by --server URL,URL…");
    }
    let detail = "something else than dueline answers, or a dueline that cannot say its version";
    Finding::defect(AREA, url, detail, "name the right address by --server")
}

fn judge(
    url: &str,
    is_alive: bool,
    version: &str,
    ready: Result<&Page, &CliError>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let why = match ready {
        Ok(page) if page.is_success && is_alive => None,
        Ok(page) => {
            let said = serde_json::from_str::<Said>(&page.text).unwrap_or_default();
            Some(said.detail.unwrap_or_else(|| "it does not say why".into()))
        }
        Err(error) => Some(error.to_string()),
    };
    findings.push(match why {
        None => Finding::ok(AREA, url, format!("ready, version {version}")),
        Some(why) => {
            let mend = "read its log: it is stopping, or one of its services has failed and it needs a restart";
            Finding::defect(AREA, url, format!("not ready: {why}"), mend)
        }
    });
    if version != VERSION {
        let detail = format!("its version is {version}, this program's is {VERSION}");
        let mend = "let all processes of a deployment and this program have the same version";
        findings.push(Finding::warning(AREA, url, detail, mend));
    }
    findings
}

/// Whether the server holds on to its store.
fn connection(url: &str, changes: &[Change]) -> Option<Finding> {
    let is_down = |change: &&Change| change.state == "down";
    let mend =
        "see to the store and the network between; DynamoDB's own status and throttling come first";
    if let Some(last) = changes.last().filter(is_down) {
        let ago = span(Duration::from_millis(last.ago_ms));
        let detail = format!("it has had no answer from its store for {ago}");
        return Some(Finding::defect(AREA, url, detail, mend));
    }
    let lately = changes.iter().filter(|change| change.ago_ms <= LATELY_MS);
    let lost = lately.filter(is_down).count();
    (lost >= LOST_MAX).then(|| {
        let detail = format!(
            "it lost its store {lost} times within the last {}",
            span(Duration::from_millis(LATELY_MS))
        );
        Finding::warning(AREA, url, detail, mend)
    })
}

#[cfg(test)]
mod tests {
    use dueline_backends::doctor::State;

    use super::*;

    fn changes(of: &[(&str, u64)]) -> Vec<Change> {
        let change = |(state, ago_ms): &(&str, u64)| Change {
            state: (*state).to_owned(),
            ago_ms: *ago_ms,
        };
        of.iter().map(change).collect()
    }

    #[test]
    fn g_18_a_server_that_lost_its_store_or_loses_it_often_is_named() {
        let state = |of: &[(&str, u64)]| connection("u", &changes(of)).map(|f| f.state);
        assert_eq!(state(&[]), None);
        assert_eq!(state(&[("up", 9), ("down", 5)]), Some(State::Defect));
        let often = [
            ("down", 90),
            ("up", 80),
            ("down", 70),
            ("up", 60),
            ("down", 50),
            ("up", 40),
        ];
        assert_eq!(state(&often), Some(State::Warning));
        assert_eq!(state(&often[2..]), None);
        let long_ago = often.map(|(state, ago)| (state, ago + LATELY_MS));
        assert_eq!(state(&long_ago), None);
    }

    #[test]
    fn g_18_that_nobody_is_where_no_server_was_named_is_no_defect() {
        let why = CliError::invalid("refused");
        assert_eq!(absent(DEFAULT, &why).findings[0].state, State::Unknown);
        assert_eq!(absent(DEFAULT, &why).reach, Reach::NotTried);
        assert_eq!(absent("http://h:1", &why).findings[0].state, State::Defect);
        assert_eq!(absent("http://h:1", &why).reach, Reach::No);
    }
}
