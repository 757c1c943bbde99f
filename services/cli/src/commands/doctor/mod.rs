//! `dueline doctor`.

mod backlog;
mod clocks;
mod facts;
mod processes;
mod relations;
mod report;
mod servers;
mod settings;

use std::sync::Arc;

use clap::Args;
use dueline_api::ErrorKind;
use dueline_backends::{
    QueueAddress, StoreAddress,
    doctor::{self, Finding, Look, QueueReport, Reach, StoreReport},
};
use dueline_runtime::{
    SystemClock,
    config::{ConfigArgs, Loaded},
};

use self::{facts::Facts, report::Report, servers::Server};
use super::process;
use crate::{
    cli::Context,
    exit::{CliError, Exit},
};

/// Checks a deployment and names each defect with its mend: settings, table or file, queues, permissions, clocks,
/// processes and backlog. It changes nothing.
///
/// `--store` and `--queue` name what to look at, as for the servers. `--server` takes the addresses of several servers,
/// separated by commas. Ends with 0 when there is no defect, with 8 when there is one, and with 5 when nothing could be
/// reached.
#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Doctor {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        if self.config.print_config {
            return process::prepare(context, &self.config).map(|_| Exit::Ok);
        }
        // Settings that do not hold together are findings; those that cannot be read leave nothing to look at.
        let loaded = self.config.load();
        let loaded = loaded
            .map_err(|error| CliError::new(ErrorKind::Invalid, "config", process::chain(&error)))?;
        let mut findings = settings::check(&loaded);
        let seen = Box::pin(Seen::look(context, &loaded, &mut findings)).await?;
        findings.extend(seen.judge(context, &loaded));
        let report = Report::new(findings);
        report.show(context)?;
        Ok(exit(&seen.reaches(), report.has_defects()))
    }
}

/// Everything that was looked at.
struct Seen {
    servers: Vec<Server>,
    store: Option<StoreReport>,
    queues: Option<QueueReport>,
    facts: Option<Facts>,
    /// Whether several processes work on the store.
    is_shared: bool,
}

impl Seen {
    /// Looks. What the addresses themselves have wrong is added to `findings`.
    async fn look(
        context: &Context,
        loaded: &Loaded,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, CliError> {
        let (store_uri, queue_uri) = (loaded.settings.store_uri(), &loaded.settings.queue);
        let store = settings::address("store", StoreAddress::parse(&store_uri), findings);
        let queue = settings::address("queue", QueueAddress::parse(queue_uri), findings);
        if let (Some(store), Some(queue)) = (&store, &queue) {
            findings.extend(settings::pair(store.is_shared(), queue.is_shared()));
        }
        let look = Look {
            setup: format!("dueline setup --store '{store_uri}' --queue '{queue_uri}'"),
            clock: Arc::new(SystemClock),
        };
        let servers = servers::look_at_all(context).await?;
        let is_shared = store.as_ref().is_some_and(StoreAddress::is_shared);
        let store = match &store {
            Some(address) => Some(doctor::look_at_store(address, &look).await),
            None => None,
        };
        let facts = facts(context, &servers, store.as_ref()).await;
        let jobs = facts.as_ref().and_then(Facts::job_names);
        let queues = match &queue {
            Some(address) => Some(doctor::look_at_queue(address, jobs.as_deref(), &look).await),
            None => None,
        };
        Ok(Self {
            servers,
            store,
            queues,
            facts,
            is_shared,
        })
    }

    /// All findings of what was seen.
    fn judge(&self, context: &Context, loaded: &Loaded) -> Vec<Finding> {
        let (now, settings) = (context.now(), &loaded.settings);
        let mut findings: Vec<Finding> = Vec::new();
        findings.extend(
            self.servers
                .iter()
                .flat_map(|server| server.findings.clone()),
        );
        findings.extend(self.store.iter().flat_map(|store| store.findings.clone()));
        findings.extend(
            self.queues
                .iter()
                .flat_map(|queues| queues.findings.clone()),
        );

        let visibility = self
            .queues
            .as_ref()
            .and_then(|queues| queues.visibility_timeout);
        findings.extend(relations::judge(settings, self.facts.as_ref(), visibility));
        let home = match &self.store {
            Some(store) if store.is_owned => processes::Home::OfAServer,
            Some(_) if !self.is_shared => processes::Home::OfNobody,
            // Without an address nobody knows, and the records are not there either.
            _ => processes::Home::Shared,
        };
        findings.extend(processes::judge(settings, self.facts.as_ref(), home, now));
        findings.extend(backlog::judge(settings, self.facts.as_ref(), now));

        let services = [
            self.store.as_ref().and_then(|store| store.clock.clone()),
            self.queues.as_ref().and_then(|queues| queues.clock.clone()),
        ];
        let servers = self
            .servers
            .iter()
            .filter_map(|server| server.clock.clone());
        let readings: Vec<_> = services.into_iter().flatten().chain(servers).collect();
        findings.extend(clocks::judge(settings, &readings, self.facts.as_ref(), now));
        findings
    }

    fn reaches(&self) -> Vec<Reach> {
        let store = self.store.iter().map(|store| store.reach);
        let queues = self.queues.iter().map(|queues| queues.reach);
        let servers = self.servers.iter().map(|server| server.reach);
        store.chain(queues).chain(servers).collect()
    }
}

/// Jobs, workers and due tasks: from the store if it can be read, else from the first server that answers.
async fn facts(
    context: &Context,
    servers: &[Server],
    store: Option<&StoreReport>,
) -> Option<Facts> {
    if let Some(store) = store.and_then(|store| store.store.as_ref()) {
        return Some(facts::of_store(store.as_ref(), context.now()).await);
    }
    let mut reached = servers.iter().filter(|server| server.is_ours);
    let server = reached.next()?;
    facts::of_server(context, &server.url).await
}

fn exit(reaches: &[Reach], has_defects: bool) -> Exit {
    let nobody = !reaches.contains(&Reach::Yes) && reaches.contains(&Reach::No);
    match (nobody, has_defects) {
        (true, _) => Exit::Unavailable,
        (false, true) => Exit::VerifyFailed,
        (false, false) => Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_18_the_exit_code_tells_defects_from_a_deployment_that_cannot_be_reached() {
        use Reach::{No, NotTried, Yes};
        assert_eq!(exit(&[Yes, No], false), Exit::Ok);
        assert_eq!(exit(&[Yes, No], true), Exit::VerifyFailed);
        assert_eq!(exit(&[No, NotTried], true), Exit::Unavailable);
        assert_eq!(exit(&[NotTried], true), Exit::VerifyFailed);
        assert_eq!(exit(&[NotTried], false), Exit::Ok);
    }
}
