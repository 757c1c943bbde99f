//! Which handler runs which task.

use std::{collections::BTreeMap, sync::Arc};

use dueline_api::Assignment;
use dueline_domain::{IdError, JobName};

use crate::{
    Handler,
    handlers::{exec::Exec, http::Http, noop::Noop},
};

/// Handlers by job and by kind. A job's own handler goes before the one of its kind.
#[derive(Clone, Default)]
pub struct Registry {
    jobs: BTreeMap<JobName, Arc<dyn Handler>>,
    kinds: BTreeMap<Arc<str>, Arc<dyn Handler>>,
}

/// Which built-in handlers an executor offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuiltIn {
    /// `exec`: runs a command on this machine.
    pub exec: bool,
    /// `http`: calls a URL.
    pub http: Option<HttpSettings>,
    /// `noop`: does nothing, for measurements.
    pub noop: bool,
}

/// What the `http` handler may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpSettings {
    /// Whether private, local and otherwise not public addresses may be called. Off, jobs cannot reach the network
    /// that the executor itself lives in.
    pub allow_private: bool,
}

/// Handlers that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The name is no job name.
    #[error("'{name}' is no job name")]
    Name {
        /// As given.
        name: String,
        /// Why.
        #[source]
        source: IdError,
    },
    /// A second handler for a job.
    #[error("job '{0}' has two handlers")]
    JobTwice(JobName),
    /// A second handler for a kind, or a kind without a name.
    #[error("handler kind '{0}' is empty or has two handlers")]
    KindTwice(String),
}

impl Registry {
    /// An empty one to fill.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::default()
    }

    /// Only built-in handlers.
    pub fn built_in(built_in: BuiltIn) -> Self {
        let mut registry = Self::default();
        for (kind, handler) in built_in.handlers() {
            registry.kinds.insert(Arc::from(kind), handler);
        }
        registry
    }

    /// Jobs with a handler of their own, by name.
    pub fn jobs(&self) -> Vec<JobName> {
        self.jobs.keys().cloned().collect()
    }

    /// Kinds of handlers that run any job, by name.
    pub fn kinds(&self) -> Vec<Arc<str>> {
        self.kinds.keys().cloned().collect()
    }

    pub(crate) fn find(&self, task: &Assignment) -> Option<&Arc<dyn Handler>> {
        self.jobs
            .get(&task.job)
            .or_else(|| self.kinds.get(&task.handler.kind))
    }
}

impl BuiltIn {
    fn handlers(self) -> Vec<(&'static str, Arc<dyn Handler>)> {
        let mut handlers: Vec<(&'static str, Arc<dyn Handler>)> = Vec::new();
        if self.exec {
            handlers.push(("exec", Arc::new(Exec)));
        }
        if let Some(settings) = self.http {
            handlers.push(("http", Arc::new(Http::new(settings))));
        }
        if self.noop {
            handlers.push(("noop", Arc::new(Noop)));
        }
        handlers
    }
}

/// Collects handlers; mistakes are told by [`RegistryBuilder::build`].
#[derive(Default)]
pub struct RegistryBuilder {
    registry: Registry,
    error: Option<RegistryError>,
}

impl RegistryBuilder {
    /// Runs the tasks of one job.
    #[must_use]
    pub fn job(mut self, name: &str, handler: impl Handler) -> Self {
        match JobName::parse(name) {
            Ok(job) => {
                let earlier = self.registry.jobs.insert(job.clone(), Arc::new(handler));
                self.refuse_if(earlier.is_some(), || RegistryError::JobTwice(job));
            }
            Err(source) => {
                let name = name.to_owned();
                self.refuse_if(true, || RegistryError::Name { name, source });
            }
        }
        self
    }

    /// Runs the tasks of every job whose handler is of this kind.
    #[must_use]
    pub fn kind(self, kind: &str, handler: impl Handler) -> Self {
        self.add_kind(kind, Arc::new(handler))
    }

    /// Adds built-in handlers.
    #[must_use]
    pub fn built_in(self, built_in: BuiltIn) -> Self {
        let add = |builder: Self, (kind, handler)| builder.add_kind(kind, handler);
        built_in.handlers().into_iter().fold(self, add)
    }

    /// The registry, or the first mistake.
    pub fn build(self) -> Result<Registry, RegistryError> {
        self.error.map_or(Ok(self.registry), Err)
    }

    fn add_kind(mut self, kind: &str, handler: Arc<dyn Handler>) -> Self {
        let earlier = self.registry.kinds.insert(Arc::from(kind), handler);
        self.refuse_if(earlier.is_some() || kind.is_empty(), || {
            RegistryError::KindTwice(kind.to_owned())
        });
        self
    }

    fn refuse_if(&mut self, is_wrong: bool, error: impl FnOnce() -> RegistryError) {
        if is_wrong {
            self.error.get_or_insert_with(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler_fn;

    fn nothing() -> impl Handler {
        handler_fn(|_| async { Ok(()) })
    }

    #[test]
    fn f_035_the_same_name_twice_is_refused_when_the_registry_is_built() {
        let twice = Registry::builder()
            .job("mail", nothing())
            .job("mail", nothing());
        let job = JobName::parse("mail").unwrap();
        assert_eq!(twice.build().err(), Some(RegistryError::JobTwice(job)));
        let built_in = BuiltIn {
            noop: true,
            ..BuiltIn::default()
        };
        let twice = Registry::builder()
            .kind("noop", nothing())
            .built_in(built_in);
        let error = RegistryError::KindTwice("noop".into());
        assert_eq!(twice.build().err(), Some(error));
    }

    #[test]
    fn names_that_no_job_can_have_are_refused() {
        let bad = Registry::builder().job("a b", nothing()).build();
        assert!(matches!(bad.err(), Some(RegistryError::Name { .. })));
    }

    #[test]
    fn built_in_handlers_are_offered_by_kind() {
        let registry = Registry::built_in(BuiltIn {
            exec: true,
            http: Some(HttpSettings::default()),
            noop: true,
        });
        let kinds: Vec<_> = ["exec", "http", "noop"].map(Arc::from).into();
        assert_eq!((registry.kinds(), registry.jobs()), (kinds, vec![]));
    }
}
