//! `dueline doctor`.

mod backlog;
mod clocks;
mod facts;
mod job_timeouts;
mod processes;
mod report;
mod servers;
mod settings;

use std::sync::Arc;

use clap::Args;
use dueline_api::{ErrorKind, ErrorReason};
use dueline_backends::{
    QueueAddress, StoreAddress,
    doctor::{self, DoctorContext, Finding, QueueReport, Reach, StoreReport},
    error_chain,
};
use dueline_runtime::SystemClock;
use dueline_settings::{ConfigArgs, LoadedSettings};

use self::{facts::StoreFacts, report::DoctorReport, servers::ServerReport};
use super::process;
use crate::{
    context::Context,
    exit::{CliError, Exit},
};

/// Checks a deployment and names each defect with its fix: settings, table or file, queues, permissions, clocks,
/// processes and backlog. It changes nothing.
///
/// `--store` and `--queue` name the store and the queue to check, as for the servers. `--server` takes the addresses of
/// several servers, separated by commas. The exit code is 0 without defects, 8 with defects, and 5 when nothing can be
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
        // Settings that contradict each other are findings. Settings that cannot be read end the command.
        let loaded = self.config.load();
        let loaded = loaded.map_err(|error| {
            CliError::new(ErrorKind::Invalid, ErrorReason::Config, error_chain(&error))
        })?;
        let mut findings = settings::check(&loaded);
        let inspection = Box::pin(Inspection::read(context, &loaded, &mut findings)).await?;
        findings.extend(inspection.findings(context, &loaded));
        let report = DoctorReport::new(findings);
        report.show(context)?;
        Ok(exit(&inspection.reaches(), report.has_defects()))
    }
}

/// What the doctor read from servers, store and queues.
struct Inspection {
    servers: Vec<ServerReport>,
    store: Option<StoreReport>,
    queues: Option<QueueReport>,
    facts: Option<StoreFacts>,
    /// Whether several processes may open the store.
    is_shared: bool,
}

impl Inspection {
    /// Reads servers, store and queues. Malformed addresses are added to `findings`.
    async fn read(
        context: &Context,
        loaded: &LoadedSettings,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, CliError> {
        let (store_uri, queue_uri) = (loaded.settings.store_uri(), &loaded.settings.queue);
        let store = settings::address("store", StoreAddress::parse(&store_uri), findings);
        let queue = settings::address("queue", QueueAddress::parse(queue_uri), findings);
        if let (Some(store), Some(queue)) = (&store, &queue) {
            findings.extend(settings::check_shared(store.is_shared(), queue.is_shared()));
        }
        let doctor_context = DoctorContext {
            setup: format!("dueline setup --store '{store_uri}' --queue '{queue_uri}'"),
            clock: Arc::new(SystemClock),
        };
        let servers = servers::inspect_all(context).await?;
        let is_shared = store.as_ref().is_some_and(StoreAddress::is_shared);
        let store = match &store {
            Some(address) => Some(doctor::check_store(address, &doctor_context).await),
            None => None,
        };
        let facts = facts(context, &servers, store.as_ref()).await;
        let jobs = facts.as_ref().and_then(StoreFacts::job_names);
        let queues = match &queue {
            Some(address) => {
                Some(doctor::check_queue(address, jobs.as_deref(), &doctor_context).await)
            }
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

    /// The findings about servers, store and queues, and about how they fit together.
    fn findings(&self, context: &Context, loaded: &LoadedSettings) -> Vec<Finding> {
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
        findings.extend(job_timeouts::check(
            settings,
            self.facts.as_ref(),
            visibility,
        ));
        let ownership = match &self.store {
            Some(store) if store.is_owned => processes::StoreOwnership::OneServer,
            Some(_) if !self.is_shared => processes::StoreOwnership::Unowned,
            // Without a valid address the ownership is unknown, and there are no records to check either.
            _ => processes::StoreOwnership::Shared,
        };
        findings.extend(processes::check(
            settings,
            self.facts.as_ref(),
            ownership,
            now,
        ));
        findings.extend(backlog::check(settings, self.facts.as_ref(), now));

        let services = [
            self.store.as_ref().and_then(|store| store.clock.clone()),
            self.queues.as_ref().and_then(|queues| queues.clock.clone()),
        ];
        let servers = self
            .servers
            .iter()
            .filter_map(|server| server.clock.clone());
        let readings: Vec<_> = services.into_iter().flatten().chain(servers).collect();
        findings.extend(clocks::check(settings, &readings, self.facts.as_ref(), now));
        findings
    }

    fn reaches(&self) -> Vec<Reach> {
        let store = self.store.iter().map(|store| store.reach);
        let queues = self.queues.iter().map(|queues| queues.reach);
        let servers = self.servers.iter().map(|server| server.reach);
        store.chain(queues).chain(servers).collect()
    }
}

/// Jobs, workers and due tasks: from the store if it can be read, else from the first server that responds.
async fn facts(
    context: &Context,
    servers: &[ServerReport],
    store: Option<&StoreReport>,
) -> Option<StoreFacts> {
    if let Some(store) = store.and_then(|store| store.store.as_ref()) {
        return Some(facts::of_store(store.as_ref(), context.now()).await);
    }
    let mut reached = servers.iter().filter(|server| server.is_dueline);
    let server = reached.next()?;
    facts::of_server(context, &server.url).await
}

fn exit(reaches: &[Reach], has_defects: bool) -> Exit {
    let is_unreachable = !reaches.contains(&Reach::Yes) && reaches.contains(&Reach::No);
    match (is_unreachable, has_defects) {
        (true, _) => Exit::Unavailable,
        (false, true) => Exit::VerifyFailed,
        (false, false) => Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_18_the_exit_code_distinguishes_defects_from_an_unreachable_deployment() {
        use Reach::{No, NotTried, Yes};
        assert_eq!(exit(&[Yes, No], false), Exit::Ok);
        assert_eq!(exit(&[Yes, No], true), Exit::VerifyFailed);
        assert_eq!(exit(&[No, NotTried], true), Exit::Unavailable);
        assert_eq!(exit(&[NotTried], true), Exit::VerifyFailed);
        assert_eq!(exit(&[NotTried], false), Exit::Ok);
    }
}
