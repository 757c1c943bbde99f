//! Names of queues.

use std::fmt::Write as _;

use dueline_domain::{JobName, Priority};
use sha2::{Digest as _, Sha256};

/// The suffix of the quarantine queue's name. No job's queue can end up with that name.
pub const QUARANTINE_SUFFIX: &str = "--quarantine";

/// Number of priority levels with their own queue.
pub(crate) const LEVELS: usize = Priority::LEVELS.len();
/// Longest name of a queue.
const NAME_LEN_MAX: usize = 80;
/// Longest prefix; it leaves room for a readable part of every job name.
const PREFIX_LEN_MAX: usize = 40;
/// Bytes of the suffix of a priority level.
const LEVEL_LEN: usize = "-p5".len();
/// Bytes of a hash and its marker.
const HASH_LEN: usize = "-h0123456789abcdef".len();

/// A text that cannot be the prefix of queue names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a prefix of queue names; use 1 to 40 of the characters A-Z a-z 0-9 _ -, not '-' at either end"
)]
pub struct PrefixError(pub String);

/// The queue names of one deployment.
#[derive(Clone, Debug)]
pub(crate) struct QueueNames {
    prefix: String,
}

impl QueueNames {
    pub(crate) fn new(prefix: &str) -> Result<Self, PrefixError> {
        let is_legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let is_valid = (1..=PREFIX_LEN_MAX).contains(&prefix.len())
            && prefix.bytes().all(is_legal)
            && !prefix.starts_with('-')
            && !prefix.ends_with('-');
        if !is_valid {
            return Err(PrefixError(prefix.chars().take(100).collect()));
        }
        let prefix = prefix.to_owned();
        Ok(Self { prefix })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What all queue names of the deployment begin with.
    pub(crate) fn name_prefix(&self) -> String {
        format!("{}-", self.prefix)
    }

    pub(crate) fn quarantine(&self) -> String {
        format!("{}{QUARANTINE_SUFFIX}", self.prefix)
    }

    /// The name of a job's queue, or of the queue of one of its levels; level 0 is the most urgent.
    ///
    /// Two jobs never share a queue. A job name that is too long, or that could be confused with a shortened name, a
    /// level of another job or the quarantine queue, is distinguished by a hash.
    pub(crate) fn job_queue(&self, job: &JobName, level: Option<usize>) -> String {
        let room = NAME_LEN_MAX - self.prefix.len() - 1 - LEVEL_LEN;
        let text = job.as_str();
        let mut name = self.name_prefix();
        if text.len() <= room && !is_ambiguous(text) {
            name.push_str(text);
        } else {
            let readable = text.trim_start_matches('-');
            name.push_str(&readable[..readable.len().min(room - HASH_LEN)]);
            name.push_str("-h");
            for byte in &Sha256::digest(text)[..8] {
                // Writing into a text cannot fail.
                let _ = write!(name, "{byte:02x}");
            }
        }
        if let Some(level) = level {
            let _ = write!(name, "-p{}", LEVELS - level);
        }
        name
    }
}

/// Whether a job name could be confused with a name that this module generates.
fn is_ambiguous(job: &str) -> bool {
    let is_level = |tail: &str| {
        let digit = tail.strip_prefix("-p").and_then(|rest| rest.bytes().next());
        digit.is_some_and(|digit| digit.is_ascii_digit())
    };
    let is_hash = |tail: &str| {
        let hash = tail.strip_prefix("-h");
        hash.is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let ends_with = |len: usize, test: &dyn Fn(&str) -> bool| {
        let at = job.len().checked_sub(len);
        at.is_some_and(|at| test(&job[at..]))
    };
    job.starts_with('-') || ends_with(LEVEL_LEN, &is_level) || ends_with(HASH_LEN, &is_hash)
}

/// The level of a priority, 0 for the most urgent: the nearest named one that is not more urgent for high priorities,
/// and not less urgent for low ones.
pub(crate) fn level_of(priority: Priority) -> usize {
    let number = priority.get();
    let steps = Priority::LEVELS.iter().map(|(_, at)| *at);
    // very_low and low include the priorities below them, high and very_high those above.
    let above = steps.clone().filter(|at| *at > 0 && number >= *at).count();
    let below = steps.filter(|at| *at < 0 && number <= *at).count();
    LEVELS / 2 + below - above
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn names(prefix: &str) -> QueueNames {
        QueueNames::new(prefix).expect("a legal prefix")
    }

    fn job(text: &str) -> JobName {
        JobName::parse(text).expect("a legal job name")
    }

    #[test]
    fn an_ordinary_name_stays_readable() {
        assert_eq!(
            names("dueline").job_queue(&job("mail"), None),
            "dueline-mail"
        );
        assert_eq!(names("d").job_queue(&job("mail"), Some(0)), "d-mail-p5");
        assert_eq!(names("d").job_queue(&job("mail"), Some(4)), "d-mail-p1");
    }

    #[test]
    fn ambiguous_names_get_a_hash() {
        for text in ["-quarantine", "mail-p5", "mail-h0123456789abcdef", "-"] {
            let name = names("dueline").job_queue(&job(text), None);
            assert_ne!(name, format!("dueline-{text}"));
            assert!(name.contains("-h"), "{name}");
        }
    }

    #[test]
    fn invalid_prefixes_are_refused() {
        for bad in ["", "a b", "-a", "a-", "a.fifo", "ä", &"x".repeat(41)] {
            assert!(QueueNames::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_priority_has_a_level() {
        let level = |number| level_of(Priority::new(number).expect("a legal priority"));
        let numbers = [1000, 100, 99, 50, 49, 0, -49, -50, -99, -100, -1000];
        let levels: Vec<_> = numbers.into_iter().map(level).collect();
        assert_eq!(levels, [0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]);
    }

    fn job_names() -> impl Strategy<Value = String> {
        // Short alphabets make collisions likely, if any are possible.
        prop_oneof![
            "[a-c_-]{1,6}",
            "[ab]{1,3}(-p[0-9])?(-h[0-9a-f]{16})?",
            "[a-b]{60,64}",
            "-{0,2}(quarantine|mail)(-p[1-5]){0,2}",
        ]
    }

    proptest! {
        #[test]
        fn two_jobs_never_share_a_queue(
            jobs in prop::collection::btree_set(job_names(), 2..40),
            prefix in prop_oneof!["d", "dueline", "[a-c]{40}"],
        ) {
            let names = names(&prefix);
            let mut owners: BTreeMap<String, String> = BTreeMap::new();
            owners.insert(names.quarantine(), "quarantine".into());
            for text in &jobs {
                let job = job(text);
                let levels = (0..LEVELS).map(Some).chain([None]);
                for level in levels {
                    let name = names.job_queue(&job, level);
                    prop_assert!(name.len() <= NAME_LEN_MAX);
                    prop_assert!(name.starts_with(&names.name_prefix()));
                    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
                    prop_assert!(name.bytes().all(legal));
                    prop_assert_eq!(&names.job_queue(&job, level), &name, "it is stable");
                    if let Some(other) = owners.insert(name.clone(), text.clone()) {
                        prop_assert!(false, "{} belongs to {} and {}", name, other, text);
                    }
                }
            }
        }
    }
}
