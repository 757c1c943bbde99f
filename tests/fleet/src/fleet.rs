//! All processes of a deployment.

use std::{collections::BTreeMap, process::ExitStatus, sync::Arc, time::Duration};

use dueline_tests_end_to_end::{Client, say};

use crate::{Api, Member, Role, Site};

/// How many of each, and what they are told beyond their addresses.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Frontends.
    pub frontends: usize,
    /// Consumers.
    pub consumers: usize,
    /// Status controllers.
    pub status_controllers: usize,
    /// Controllers.
    pub controllers: usize,
    /// Executors of each controller.
    pub executors: usize,
    /// Further arguments of consumers.
    pub consumer_args: Vec<String>,
    /// Further arguments of executors.
    pub executor_args: Vec<String>,
    /// Further options of the queue.
    pub queue_options: &'static str,
}

impl Default for Plan {
    /// One of each.
    fn default() -> Self {
        Self {
            frontends: 1,
            consumers: 1,
            status_controllers: 1,
            controllers: 1,
            executors: 1,
            consumer_args: Vec::new(),
            executor_args: Vec::new(),
            queue_options: "",
        }
    }
}

/// Processes by name: `frontend-0`, `consumer-2`, `controller-1`, `executor-1-0` (the first of the second controller).
/// Dropped, all of them are killed; their logs are kept when the test fails.
pub struct Fleet {
    members: BTreeMap<String, Member>,
    api: Api,
    site: Arc<Site>,
}

impl Fleet {
    /// A fleet without processes on a site that is set up.
    pub fn on(site: Arc<Site>) -> Self {
        Self {
            members: BTreeMap::new(),
            api: Api::default(),
            site,
        }
    }

    /// Sets up a site on these engines and starts everything.
    pub async fn start(dynamodb: &str, sqs: &str, plan: &Plan) -> Self {
        let site = Site::new(dynamodb, sqs).with_queue_options(plan.queue_options);
        site.set_up().await;
        let mut fleet = Self::on(Arc::new(site));
        fleet.start_all(plan).await;
        fleet
    }

    /// Starts everything of a plan.
    pub async fn start_all(&mut self, plan: &Plan) {
        for number in 0..plan.frontends {
            self.start_frontend(number).await;
        }
        for number in 0..plan.status_controllers {
            self.start_status_controller(number).await;
        }
        for number in 0..plan.consumers {
            self.start_consumer(number, &plan.consumer_args).await;
        }
        for number in 0..plan.controllers {
            self.start_controller(number, &[]).await;
            for executor in 0..plan.executors {
                self.start_executor(number, executor, &plan.executor_args)
                    .await;
            }
        }
    }

    /// Starts `frontend-NUMBER`; clients know it from now on.
    pub async fn start_frontend(&mut self, number: usize) {
        let name = self.start_on_store(Role::Frontend, number, &[]).await;
        let url = self.member(&name).url().to_owned();
        self.api.add(Client::new(&url));
    }

    /// Starts `consumer-NUMBER`.
    pub async fn start_consumer(&mut self, number: usize, args: &[String]) {
        self.start_on_store(Role::Consumer, number, args).await;
    }

    /// Starts `status-controller-NUMBER`; controllers that are started later know it.
    pub async fn start_status_controller(&mut self, number: usize) {
        self.start_on_store(Role::StatusController, number, &[])
            .await;
    }

    async fn start_on_store(&mut self, role: Role, number: usize, more: &[String]) -> String {
        let mut args = vec![
            "--store".to_owned(),
            self.site.store(),
            "--queue".to_owned(),
            self.site.queue(),
        ];
        args.extend_from_slice(more);
        self.start_member(role, format!("{}-{number}", role.name()), &args)
            .await
    }

    /// Starts `controller-NUMBER`, of all status controllers that there are.
    pub async fn start_controller(&mut self, number: usize, more: &[&str]) {
        let args = self.controller_args(number, more);
        let name = format!("controller-{number}");
        self.start_member(Role::Controller, name, &args).await;
    }

    /// The arguments of a controller, but for where it listens. Each asks another status controller first.
    pub fn controller_args(&self, number: usize, more: &[&str]) -> Vec<String> {
        let mut servers = self.urls(Role::StatusController);
        let first = number % servers.len().max(1);
        servers.rotate_left(first);
        let mut args = vec![
            "--server".to_owned(),
            servers.join(","),
            "--queue".to_owned(),
            self.site.queue(),
            "--no-worker".to_owned(),
        ];
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args
    }

    /// Starts `executor-CONTROLLER-NUMBER`.
    pub async fn start_executor(&mut self, controller: usize, number: usize, more: &[String]) {
        let url = self.member(&format!("controller-{controller}")).url();
        let name = format!("executor-{controller}-{number}");
        let mut args = vec![
            "--server".to_owned(),
            url.to_owned(),
            "--worker-name".to_owned(),
            name.clone(),
        ];
        args.extend_from_slice(more);
        self.start_member(Role::Executor, name, &args).await;
    }

    async fn start_member(&mut self, role: Role, name: String, args: &[String]) -> String {
        let member = Member::start(&self.site, role, &name, args).await;
        self.put(member);
        name
    }

    /// Where all of a role listen.
    pub fn urls(&self, role: Role) -> Vec<String> {
        let of_role = self.members.values().filter(|member| member.role() == role);
        of_role.map(|member| member.url().to_owned()).collect()
    }

    /// The names of all of a role.
    pub fn names(&self, role: Role) -> Vec<String> {
        let of_role = self.members.values().filter(|member| member.role() == role);
        of_role.map(|member| member.name().to_owned()).collect()
    }

    /// One process.
    #[track_caller]
    pub fn member(&self, name: &str) -> &Member {
        let member = self.members.get(name);
        member.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// All processes.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Takes a process out, to do something with it elsewhere.
    #[track_caller]
    pub fn take(&mut self, name: &str) -> Member {
        let member = self.members.remove(name);
        member.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Puts a process (back) in.
    pub fn put(&mut self, member: Member) {
        self.members.insert(member.name().to_owned(), member);
    }

    /// Ends a process as a crash would.
    pub async fn kill(&mut self, name: &str) {
        let mut member = self.take(name);
        member.kill().await;
        self.put(member);
    }

    /// Asks a process to stop and waits until it has.
    pub async fn stop(&mut self, name: &str, bound: Duration) -> ExitStatus {
        let mut member = self.take(name);
        let status = member.stop(bound).await;
        self.put(member);
        status
    }

    /// Starts a process again that was killed or has stopped.
    pub async fn start_again(&mut self, name: &str) {
        let mut member = self.take(name);
        member.start_again().await;
        self.put(member);
    }

    /// A client of all frontends.
    pub const fn api(&self) -> &Api {
        &self.api
    }

    /// Where it lives.
    pub const fn site(&self) -> &Arc<Site> {
        &self.site
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.members.clear();
        if std::thread::panicking()
            && let Some(site) = Arc::get_mut(&mut self.site)
        {
            site.keep();
            let folder = site.place().path().display();
            say(&format!("logs of the fleet: {folder}"));
        }
    }
}
