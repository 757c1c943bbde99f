//! The handlers of an executor, and which of them runs a task.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dueline_api::Assignment;
use dueline_domain::{IdError, JobName};

use crate::{
    Handler,
    handlers::{exec::ExecHandler, noop::NoopHandler},
};
#[cfg(feature = "http")]
use crate::{HttpSettings, handlers::http::HttpHandler};

/// Handlers by job and by kind. A handler registered for a job takes precedence over one registered for its kind.
#[derive(Clone, Default)]
pub struct Registry {
    jobs: BTreeMap<JobName, Arc<dyn Handler>>,
    kinds: BTreeMap<Arc<str>, Arc<dyn Handler>>,
    /// The only jobs whose tasks the executor asks for; empty for all that it has a handler for.
    only: BTreeSet<JobName>,
}

/// Which built-in handlers an executor offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuiltIn {
    /// `exec`: runs a command on this machine.
    pub exec: bool,
    /// `http`: calls a URL.
    #[cfg(feature = "http")]
    pub http: Option<HttpSettings>,
    /// `noop`: does nothing, for measurements.
    pub noop: bool,
}

/// Handlers that cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The name is not a valid job name.
    #[error("'{name}' is not a valid job name")]
    Name {
        /// The refused name.
        name: String,
        /// Why the name is not valid.
        #[source]
        source: IdError,
    },
    /// A second handler for a job.
    #[error("job '{0}' has two handlers; register one")]
    JobTwice(JobName),
    /// A second handler for a kind, or a kind without a name.
    #[error("handler kind '{0}' is empty or has two handlers; register one under a name")]
    KindTwice(String),
}

impl Registry {
    /// A builder without handlers.
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder::default()
    }

    /// A registry of built-in handlers only.
    pub fn built_in(built_in: BuiltIn) -> Self {
        let mut registry = Self::default();
        for (kind, handler) in built_in.handlers() {
            registry.kinds.insert(Arc::from(kind), handler);
        }
        registry
    }

    /// Keeps the executor to these jobs: it asks for no task of another one, whatever its handler is.
    #[must_use]
    pub fn kept_to(mut self, jobs: impl IntoIterator<Item = JobName>) -> Self {
        self.only.extend(jobs);
        self
    }

    /// The jobs to ask for: those with a handler registered for them, or those that the executor is kept to. By name.
    pub fn jobs(&self) -> Vec<JobName> {
        match self.only.is_empty() {
            true => self.jobs.keys().cloned().collect(),
            false => self.only.iter().cloned().collect(),
        }
    }

    /// The kinds to ask for, by name: those with a registered handler, or none if the executor is kept to some jobs.
    pub fn kinds(&self) -> Vec<Arc<str>> {
        match self.only.is_empty() {
            true => self.kinds.keys().cloned().collect(),
            false => Vec::new(),
        }
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
            handlers.push(("exec", Arc::new(ExecHandler)));
        }
        #[cfg(feature = "http")]
        if let Some(settings) = self.http {
            handlers.push(("http", Arc::new(HttpHandler::new(settings))));
        }
        if self.noop {
            handlers.push(("noop", Arc::new(NoopHandler)));
        }
        handlers
    }
}

/// Collects handlers. The first error is returned by [`RegistryBuilder::build`].
#[derive(Default)]
pub struct RegistryBuilder {
    registry: Registry,
    error: Option<RegistryError>,
}

impl RegistryBuilder {
    /// Registers the handler of one job.
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

    /// Registers the handler of every job whose handler is of this kind.
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

    /// The registry, or the first error.
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
    fn f_027_an_executor_that_is_kept_to_some_jobs_asks_for_no_kind() {
        let built_in = BuiltIn {
            noop: true,
            ..BuiltIn::default()
        };
        let builder = Registry::builder().built_in(built_in);
        let registry = builder.job("mail", nothing()).build().unwrap();
        let job = |name| JobName::parse(name).unwrap();
        let mail = registry.clone().kept_to([]);
        assert_eq!((mail.jobs(), mail.kinds().len()), (vec![job("mail")], 1));
        let kept = registry.kept_to([job("b"), job("a"), job("b")]);
        assert_eq!(
            (kept.jobs(), kept.kinds().len()),
            (vec![job("a"), job("b")], 0)
        );
    }

    #[test]
    fn invalid_job_names_are_refused() {
        let bad = Registry::builder().job("a b", nothing()).build();
        assert!(matches!(bad.err(), Some(RegistryError::Name { .. })));
    }

    #[test]
    fn built_in_handlers_are_registered_by_kind() {
        let registry = Registry::built_in(BuiltIn {
            exec: true,
            http: Some(HttpSettings::default()),
            noop: true,
        });
        let kinds: Vec<_> = ["exec", "http", "noop"].map(Arc::from).into();
        assert_eq!((registry.kinds(), registry.jobs()), (kinds, vec![]));
    }
}
