//! One engine for all tests of a process.

use std::sync::OnceLock;

use crate::{
    EngineName, http, runtime,
    start::{self, Running},
};

/// Where an engine answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address, for the endpoint setting of a client.
    pub url: String,
    /// Which one it is: some differ where AWS has a rule.
    pub engine: EngineName,
}

/// The engine that a process shares, or why there is none: nobody tries again what takes minutes to fail.
type Shared = OnceLock<Result<Found, String>>;

struct Found {
    endpoint: Endpoint,
    /// Held for as long as the process lives. Nobody drops it then: the engine ends because its standard input closes.
    _running: Option<Running>,
}

/// A DynamoDB API over the wire, shared by all tests of this process: dynoxide, started at first use. With
/// `AWS_ENDPOINT_URL_DYNAMODB` set nothing is started, and that address is used.
///
/// # Panics
///
/// When there is none; the message says what is missing.
pub async fn dynamodb() -> Endpoint {
    static SHARED: Shared = OnceLock::new();
    shared(&SHARED, "AWS_ENDPOINT_URL_DYNAMODB", EngineName::Dynoxide).await
}

/// An SQS API over the wire, shared by all tests of this process: ministack, started at first use. With
/// `AWS_ENDPOINT_URL_SQS` set nothing is started, and that address is used.
///
/// # Panics
///
/// When there is none; the message says what is missing.
pub async fn sqs() -> Endpoint {
    static SHARED: Shared = OnceLock::new();
    shared(&SHARED, "AWS_ENDPOINT_URL_SQS", EngineName::Ministack).await
}

async fn shared(shared: &'static Shared, variable: &'static str, engine: EngineName) -> Endpoint {
    let found = match shared.get() {
        Some(found) => found,
        // Those who come while the first one starts it wait off their tests' threads as well.
        None => runtime::blocking(move || shared.get_or_init(|| find(variable, engine))).await,
    };
    match found {
        Ok(found) => found.endpoint.clone(),
        Err(why) => panic!("{why}"),
    }
}

fn find(variable: &str, engine: EngineName) -> Result<Found, String> {
    match std::env::var(variable) {
        Ok(url) if !url.is_empty() => there_already(variable, url),
        _ => {
            let running = start::start(engine)?;
            Ok(Found {
                endpoint: Endpoint {
                    url: running.url(),
                    engine,
                },
                _running: Some(running),
            })
        }
    }
}

fn there_already(variable: &str, url: String) -> Result<Found, String> {
    // Only what is plain HTTP can be one of those that we know.
    let engine = if http::authority(&url).is_some() {
        runtime::runtime()
            .block_on(http::identify(&url))
            .map_err(|error| format!("nothing answers at {url}, which {variable} names: {error}"))?
    } else {
        EngineName::Other
    };
    Ok(Found {
        endpoint: Endpoint { url, engine },
        _running: None,
    })
}
