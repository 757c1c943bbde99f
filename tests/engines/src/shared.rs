//! Engines that all tests of a process share.

use std::sync::OnceLock;

use crate::{
    EngineName, http, runtime,
    start::{self, RunningEngine},
};

/// The address and the kind of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address, for the endpoint setting of a client.
    pub url: String,
    /// The engine; some differ from AWS in details.
    pub engine: EngineName,
}

/// The shared engine of a process, or the error. A failure is kept, because retrying it would take minutes.
type SharedCell = OnceLock<Result<SharedEngine, String>>;

struct SharedEngine {
    endpoint: Endpoint,
    /// Kept for the lifetime of the process and never dropped: the engine ends because its standard input closes.
    _running: Option<RunningEngine>,
}

/// A DynamoDB API over the wire, shared by all tests of this process: dynoxide, started at first use. With
/// `AWS_ENDPOINT_URL_DYNAMODB` set nothing is started, and that address is used.
///
/// # Panics
///
/// If there is no engine; the message names what is missing.
pub async fn dynamodb() -> Endpoint {
    static SHARED: SharedCell = OnceLock::new();
    shared(&SHARED, "AWS_ENDPOINT_URL_DYNAMODB", EngineName::Dynoxide).await
}

/// An SQS API over the wire, shared by all tests of this process: ministack, started at first use. With
/// `AWS_ENDPOINT_URL_SQS` set nothing is started, and that address is used.
///
/// # Panics
///
/// If there is no engine; the message names what is missing.
pub async fn sqs() -> Endpoint {
    static SHARED: SharedCell = OnceLock::new();
    shared(&SHARED, "AWS_ENDPOINT_URL_SQS", EngineName::Ministack).await
}

async fn shared(
    shared: &'static SharedCell,
    variable: &'static str,
    engine: EngineName,
) -> Endpoint {
    let found = match shared.get() {
        Some(found) => found,
        // Callers that arrive during the start also wait off their tests' threads.
        None => runtime::blocking(move || shared.get_or_init(|| find(variable, engine))).await,
    };
    match found {
        Ok(found) => found.endpoint.clone(),
        Err(why) => panic!("{why}"),
    }
}

fn find(variable: &str, engine: EngineName) -> Result<SharedEngine, String> {
    match std::env::var(variable) {
        Ok(url) if !url.is_empty() => existing_engine(variable, url),
        _ => {
            let running = start::start(engine)?;
            Ok(SharedEngine {
                endpoint: Endpoint {
                    url: running.url(),
                    engine,
                },
                _running: Some(running),
            })
        }
    }
}

fn existing_engine(variable: &str, url: String) -> Result<SharedEngine, String> {
    // Only an engine on plain HTTP can be identified.
    let engine = if http::authority(&url).is_some() {
        runtime::runtime()
            .block_on(http::identify(&url))
            .map_err(|error| {
                format!("no engine answers at {url}, the value of {variable}: {error}")
            })?
    } else {
        EngineName::Other
    };
    Ok(SharedEngine {
        endpoint: Endpoint { url, engine },
        _running: None,
    })
}
