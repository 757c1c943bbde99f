//! Checks the servers that `--server` names: reachable, ready, of this version, and connected to their store.

use std::time::Duration;

use dueline_backends::doctor::{ClockReading, Finding, Reach};
use dueline_domain::Timestamp;
use serde::Deserialize;

use super::processes::AREA;
use crate::{
    client::{self, RestClient},
    context::{Context, GlobalArgs},
    exit::CliError,
    units::span,
};

/// The default of `--server`. That no server listens there is not a defect, because the user did not name it.
const DEFAULT: &str = "http://127.0.0.1:7070";
/// Longest time to wait for one response.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// Store connections lost within [`RECENT_MS`] from which on the server has a warning.
const LOST_MIN: usize = 3;
const RECENT_MS: u64 = 600_000;
/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The findings about one server.
pub(super) struct ServerReport {
    pub(super) url: String,
    pub(super) reach: Reach,
    /// Whether the response has the form of Dueline's.
    pub(super) is_dueline: bool,
    pub(super) clock: Option<ClockReading>,
    pub(super) findings: Vec<Finding>,
}

/// The JSON of `/healthz` and `/readyz`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HealthDocument {
    version: Option<String>,
    /// Why the server is not ready.
    detail: Option<String>,
    store_connection: Vec<ConnectionChange>,
}

/// A change of the server's connection to its store.
#[derive(Debug, Default, Deserialize)]
struct ConnectionChange {
    state: String,
    ago_ms: u64,
}

/// The response of `/healthz` or `/readyz`.
struct HealthResponse {
    is_success: bool,
    date: Option<String>,
    sent_at: Timestamp,
    received_at: Timestamp,
    text: String,
}

/// Checks each address of `--server`.
pub(super) async fn inspect_all(context: &Context) -> Result<Vec<ServerReport>, CliError> {
    let GlobalArgs { server, .. } = &context.global;
    let urls = server
        .split(',')
        .map(str::trim)
        .filter(|url| !url.is_empty());
    let mut servers = Vec::new();
    for url in urls {
        // A malformed address is an error of the command line.
        RestClient::new(url, TIMEOUT_MAX, None)?;
        servers.push(inspect(context, url).await);
    }
    Ok(servers)
}

async fn inspect(context: &Context, url: &str) -> ServerReport {
    let alive = match get(context, url, "healthz").await {
        Ok(response) => response,
        Err(error) => return unreachable(url, &error),
    };
    let clock = alive.date.as_deref();
    let clock =
        clock.and_then(|date| ClockReading::from_date(url, date, alive.sent_at, alive.received_at));
    let health = serde_json::from_str::<HealthDocument>(&alive.text).unwrap_or_default();
    let mut server = ServerReport {
        url: url.to_owned(),
        reach: Reach::Yes,
        is_dueline: health.version.is_some(),
        clock,
        findings: Vec::new(),
    };
    let Some(version) = &health.version else {
        server.findings.push(foreign(url));
        return server;
    };
    let ready = get(context, url, "readyz").await;
    server.findings.extend(check_readiness(
        url,
        alive.is_success,
        version,
        ready.as_ref(),
    ));
    server
        .findings
        .extend(check_connection(url, &health.store_connection));
    if server.clock.is_none() {
        server.findings.push(Finding::unknown(
            "clocks",
            url,
            "its response has no Date header",
        ));
    }
    server
}

async fn get(context: &Context, url: &str, page: &str) -> Result<HealthResponse, CliError> {
    let timeout = context.global.request_timeout.min(TIMEOUT_MAX);
    let http = client::http(url, timeout)?;
    let sent_at = context.now();
    let result = http
        .get(format!("{}/{page}", url.trim_end_matches('/')))
        .send()
        .await;
    let failed = |error: reqwest::Error| CliError::invalid(client::root_cause(&error));
    let response = result.map_err(failed)?;
    let received_at = context.now();
    let date = response
        .headers()
        .get("date")
        .and_then(|date| date.to_str().ok());
    let (date, is_success) = (date.map(str::to_owned), response.status().is_success());
    let text = response.text().await.map_err(failed)?;
    Ok(HealthResponse {
        is_success,
        date,
        sent_at,
        received_at,
        text,
    })
}

fn unreachable(url: &str, why: &CliError) -> ServerReport {
    let (reach, finding) = if url == DEFAULT {
        let detail = format!("no server responds at {url}, the default of --server");
        let finding = Finding::unknown(AREA, "servers", detail);
        (
            Reach::NotTried,
            finding.fixed_by("name your servers with --server URL,URL…"),
        )
    } else {
        let fix = "start it, correct the address in --server, or check the network and firewalls on the way";
        let finding = Finding::defect(
            AREA,
            url,
            format!("the server cannot be reached: {why}"),
            fix,
        );
        (Reach::No, finding)
    };
    ServerReport {
        url: url.to_owned(),
        reach,
        is_dueline: false,
        clock: None,
        findings: vec![finding],
    }
}

fn foreign(url: &str) -> Finding {
    if url == DEFAULT {
        let detail = format!("the response of {url}, the default of --server, is not from dueline");
        return Finding::unknown(AREA, "servers", detail)
            .fixed_by("name your servers with --server URL,URL…");
    }
    let detail = "the response is not from dueline: it has no version";
    Finding::defect(AREA, url, detail, "correct the address in --server")
}

fn check_readiness(
    url: &str,
    is_alive: bool,
    version: &str,
    ready: Result<&HealthResponse, &CliError>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let why = match ready {
        Ok(response) if response.is_success && is_alive => None,
        Ok(response) => {
            let health = serde_json::from_str::<HealthDocument>(&response.text);
            let detail = health.unwrap_or_default().detail;
            Some(detail.unwrap_or_else(|| "the response gives no reason".into()))
        }
        Err(error) => Some(error.to_string()),
    };
    findings.push(match why {
        None => Finding::ok(AREA, url, format!("ready, version {version}")),
        Some(why) => {
            let fix = "read its log: it is stopping, or one of its services failed and it must be restarted";
            Finding::defect(AREA, url, format!("not ready: {why}"), fix)
        }
    });
    if version != VERSION {
        let detail = format!("its version is {version}, but this program has version {VERSION}");
        let fix = "run the same version in all processes of the deployment and in this program";
        findings.push(Finding::warning(AREA, url, detail, fix));
    }
    findings
}

/// A finding if the server's connection to its store is down, or was lost often.
fn check_connection(url: &str, changes: &[ConnectionChange]) -> Option<Finding> {
    let is_down = |change: &&ConnectionChange| change.state == "down";
    let fix = "check the store and the network on the way; for DynamoDB, check its status and throttling first";
    if let Some(last) = changes.last().filter(is_down) {
        let ago = span(Duration::from_millis(last.ago_ms));
        let detail = format!("its store has not responded for {ago}");
        return Some(Finding::defect(AREA, url, detail, fix));
    }
    let recent = changes.iter().filter(|change| change.ago_ms <= RECENT_MS);
    let lost = recent.filter(is_down).count();
    (lost >= LOST_MIN).then(|| {
        let detail = format!(
            "it lost the connection to its store {lost} times within the last {}",
            span(Duration::from_millis(RECENT_MS))
        );
        Finding::warning(AREA, url, detail, fix)
    })
}

#[cfg(test)]
mod tests {
    use dueline_backends::doctor::State;

    use super::*;

    fn changes(of: &[(&str, u64)]) -> Vec<ConnectionChange> {
        let change = |(state, ago_ms): &(&str, u64)| ConnectionChange {
            state: (*state).to_owned(),
            ago_ms: *ago_ms,
        };
        of.iter().map(change).collect()
    }

    #[test]
    fn g_18_a_server_that_lost_its_store_or_loses_it_often_has_a_finding() {
        let state = |of: &[(&str, u64)]| check_connection("u", &changes(of)).map(|f| f.state);
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
        let long_ago = often.map(|(state, ago)| (state, ago + RECENT_MS));
        assert_eq!(state(&long_ago), None);
    }

    #[test]
    fn g_18_no_server_at_the_default_address_is_not_a_defect() {
        let why = CliError::invalid("refused");
        let default = unreachable(DEFAULT, &why);
        assert_eq!(default.findings[0].state, State::Unknown);
        assert_eq!(default.reach, Reach::NotTried);
        let named = unreachable("http://h:1", &why);
        assert_eq!(named.findings[0].state, State::Defect);
        assert_eq!(named.reach, Reach::No);
    }
}
