//! `dueline health`.

use serde::{Deserialize, Serialize};

use crate::{
    client::JsonAnswer,
    context::Context,
    exit::{CliError, Exit},
    sanitize::clean,
};

/// Checks whether the server is alive and ready.
#[derive(Debug, clap::Args)]
pub struct Health {}

/// The health of a server, as `--json` prints it.
#[derive(Serialize)]
struct ServerHealth {
    server: String,
    alive: bool,
    ready: bool,
    #[serde(flatten)]
    readiness: Readiness,
}

/// The response of `/readyz`: `version` and `durability` when the server is ready, else `detail`.
#[derive(Default, Serialize, Deserialize)]
struct Readiness {
    version: Option<String>,
    durability: Option<String>,
    /// Why the server is not ready.
    detail: Option<String>,
}

impl Health {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let client = context.client()?;
        let (alive, _) = client.probe("healthz").await?;
        let (ready, text) = client.probe("readyz").await?;
        let health = ServerHealth {
            server: context.global.server.clone(),
            alive,
            ready,
            // A response that is not from Dueline may not be JSON.
            readiness: serde_json::from_str(&text).unwrap_or_default(),
        };
        context
            .output
            .show(&JsonAnswer::of(&health), context.now(), |_| {
                Ok(render(&health))
            })?;
        Ok(if alive && ready {
            Exit::Ok
        } else {
            Exit::Unavailable
        })
    }
}

fn render(health: &ServerHealth) -> String {
    let ServerHealth {
        server,
        alive,
        ready,
        readiness,
    } = health;
    let or_unknown =
        |text: &Option<String>| clean(text.as_deref().unwrap_or("unknown")).into_owned();
    match (alive, ready) {
        (true, true) => {
            let version = or_unknown(&readiness.version);
            let durability = or_unknown(&readiness.durability);
            format!("{server} is ready (version {version}, durability {durability})")
        }
        (true, false) => format!("{server} is alive but {}", or_unknown(&readiness.detail)),
        (false, _) => format!("{server} is not alive: {}", or_unknown(&readiness.detail)),
    }
}
