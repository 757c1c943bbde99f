//! `dueline health`.

use serde::{Deserialize, Serialize};

use crate::{
    cli::Context,
    client::Answer,
    exit::{CliError, Exit},
    output::clean,
};

/// Asks whether the server is alive and ready.
#[derive(Debug, clap::Args)]
pub struct Health {}

#[derive(Serialize)]
struct Found {
    server: String,
    alive: bool,
    ready: bool,
    #[serde(flatten)]
    said: Said,
}

/// What the server said, in either of the forms of its answers.
#[derive(Default, Serialize, Deserialize)]
struct Said {
    version: Option<String>,
    durability: Option<String>,
    /// Why it is not ready.
    detail: Option<String>,
}

impl Health {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let client = context.client()?;
        let (alive, _) = client.probe("healthz").await?;
        let (ready, text) = client.probe("readyz").await?;
        let found = Found {
            server: context.global.server.clone(),
            alive,
            ready,
            // Something else than Dueline may have answered.
            said: serde_json::from_str(&text).unwrap_or_default(),
        };
        context
            .output
            .show(&Answer::of(&found), context.now(), |_| Ok(tell(&found)))?;
        Ok(if alive && ready {
            Exit::Ok
        } else {
            Exit::Unavailable
        })
    }
}

fn tell(found: &Found) -> String {
    let Found {
        server,
        alive,
        ready,
        said,
    } = found;
    let or_unknown =
        |text: &Option<String>| clean(text.as_deref().unwrap_or("unknown")).into_owned();
    match (alive, ready) {
        (true, true) => {
            let (version, durability) = (or_unknown(&said.version), or_unknown(&said.durability));
            format!("{server} is ready (version {version}, durability {durability})")
        }
        (true, false) => format!("{server} is alive but {}", or_unknown(&said.detail)),
        (false, _) => format!("{server} is not well: {}", or_unknown(&said.detail)),
    }
}
