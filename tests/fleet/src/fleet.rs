//! All processes of a fleet.

use std::{collections::BTreeMap, process::ExitStatus, sync::Arc, time::Duration};

use dueline_tests_end_to_end::{RestClient, print_note};

use crate::{FleetClient, FleetMember, FleetResources, FleetRole};

/// Number of processes of each role, and their arguments beyond addresses.
#[derive(Clone, Debug)]
pub struct FleetPlan {
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
    /// Further options of the queue URI.
    pub queue_options: &'static str,
    /// Further environment variables of all processes.
    pub variables: Vec<(&'static str, String)>,
}

impl Default for FleetPlan {
    /// One process of each role.
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
            variables: Vec::new(),
        }
    }
}

/// The processes of a fleet by name: `frontend-0`, `consumer-2`, `controller-1`, `executor-1-0` (the first executor of
/// the second controller). They are killed when the fleet is dropped. Their logs are kept when the test fails.
pub struct Fleet {
    members: BTreeMap<String, FleetMember>,
    api: FleetClient,
    resources: Arc<FleetResources>,
}

impl Fleet {
    /// A fleet without processes on resources that are set up.
    pub fn on(resources: Arc<FleetResources>) -> Self {
        Self {
            members: BTreeMap::new(),
            api: FleetClient::default(),
            resources,
        }
    }

    /// Sets up resources on these engines and starts the processes of a plan.
    pub async fn start(dynamodb: &str, sqs: &str, plan: &FleetPlan) -> Self {
        let resources = FleetResources::new(dynamodb, sqs)
            .with_queue_options(plan.queue_options)
            .with_variables(&plan.variables);
        resources.set_up().await;
        let mut fleet = Self::on(Arc::new(resources));
        fleet.start_all(plan).await;
        fleet
    }

    /// Starts all processes of a plan.
    pub async fn start_all(&mut self, plan: &FleetPlan) {
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

    /// Starts `frontend-NUMBER` and adds it to the client.
    pub async fn start_frontend(&mut self, number: usize) {
        let name = self.start_on_store(FleetRole::Frontend, number, &[]).await;
        let url = self.member(&name).url().to_owned();
        self.api.add(RestClient::new(&url));
    }

    /// Starts `consumer-NUMBER`.
    pub async fn start_consumer(&mut self, number: usize, args: &[String]) {
        self.start_on_store(FleetRole::Consumer, number, args).await;
    }

    /// Starts `status-controller-NUMBER`. Controllers that are started later use it.
    pub async fn start_status_controller(&mut self, number: usize) {
        self.start_on_store(FleetRole::StatusController, number, &[])
            .await;
    }

    async fn start_on_store(&mut self, role: FleetRole, number: usize, more: &[String]) -> String {
        let mut args = vec![
            "--store".to_owned(),
            self.resources.store(),
            "--queue".to_owned(),
            self.resources.queue(),
        ];
        args.extend_from_slice(more);
        self.start_member(role, format!("{}-{number}", role.name()), &args)
            .await
    }

    /// Starts `controller-NUMBER` with the addresses of all current status controllers.
    pub async fn start_controller(&mut self, number: usize, more: &[&str]) {
        let args = self.controller_args(number, more);
        let name = format!("controller-{number}");
        self.start_member(FleetRole::Controller, name, &args).await;
    }

    /// The arguments of a controller, without its listen address. Each controller prefers another status controller.
    pub fn controller_args(&self, number: usize, more: &[&str]) -> Vec<String> {
        let mut servers = self.urls(FleetRole::StatusController);
        let first = number % servers.len().max(1);
        servers.rotate_left(first);
        let mut args = vec![
            "--server".to_owned(),
            servers.join(","),
            "--queue".to_owned(),
            self.resources.queue(),
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
        self.start_member(FleetRole::Executor, name, &args).await;
    }

    async fn start_member(&mut self, role: FleetRole, name: String, args: &[String]) -> String {
        let member = FleetMember::start(&self.resources, role, &name, args).await;
        self.put(member);
        name
    }

    /// The URLs of all processes of a role.
    pub fn urls(&self, role: FleetRole) -> Vec<String> {
        let of_role = self.members.values().filter(|member| member.role() == role);
        of_role.map(|member| member.url().to_owned()).collect()
    }

    /// The names of all processes of a role.
    pub fn names(&self, role: FleetRole) -> Vec<String> {
        let of_role = self.members.values().filter(|member| member.role() == role);
        of_role.map(|member| member.name().to_owned()).collect()
    }

    /// The process with this name.
    #[track_caller]
    pub fn member(&self, name: &str) -> &FleetMember {
        let member = self.members.get(name);
        member.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// All processes.
    pub fn members(&self) -> impl Iterator<Item = &FleetMember> {
        self.members.values()
    }

    /// Removes a process from the fleet, so that another task of the test can own it.
    #[track_caller]
    pub fn take(&mut self, name: &str) -> FleetMember {
        let member = self.members.remove(name);
        member.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Adds a process to the fleet.
    pub fn put(&mut self, member: FleetMember) {
        self.members.insert(member.name().to_owned(), member);
    }

    /// Kills a process, like a crash.
    pub async fn kill(&mut self, name: &str) {
        let mut member = self.take(name);
        member.kill().await;
        self.put(member);
    }

    /// Sends `SIGTERM` to a process and waits until it has exited.
    pub async fn stop(&mut self, name: &str, bound: Duration) -> ExitStatus {
        let mut member = self.take(name);
        let status = member.stop(bound).await;
        self.put(member);
        status
    }

    /// Restarts a process that was killed or has exited.
    pub async fn start_again(&mut self, name: &str) {
        let mut member = self.take(name);
        member.start_again().await;
        self.put(member);
    }

    /// The client of all frontends.
    pub const fn api(&self) -> &FleetClient {
        &self.api
    }

    /// The resources of the fleet.
    pub const fn resources(&self) -> &Arc<FleetResources> {
        &self.resources
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.members.clear();
        if std::thread::panicking()
            && let Some(resources) = Arc::get_mut(&mut self.resources)
        {
            resources.keep();
            let folder = resources.folder().path().display();
            print_note(&format!("logs of the fleet: {folder}"));
        }
    }
}
