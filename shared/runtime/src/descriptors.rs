//! How many files and connections the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's limit of open descriptors as far as its user may. The usual soft limit of 1024 exists for
/// programs that use `select`.
pub fn raise_limit() {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if limits.current != limits.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::debug!(%error, "the limit of open descriptors stays as it is");
    }
}

/// How many descriptors the process may have open; `None` without a limit.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_the_user_may_have() {
        let hard = getrlimit(Resource::Nofile).maximum;
        let soft = hard.map_or(512, |hard| hard.min(512));
        let lowered = Rlimit {
            current: Some(soft),
            maximum: hard,
        };
        setrlimit(Resource::Nofile, lowered).unwrap();
        assert_eq!(limit(), Some(soft));
        raise_limit();
        assert_eq!(limit(), hard);
    }
}
