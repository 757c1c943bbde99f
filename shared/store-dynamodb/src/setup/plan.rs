//! What has to be done so that a table is as it should be.

use std::fmt;

use super::Found;
use crate::schema;

/// What a table should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub table: String,
    /// Partitions of each job, for a table that is to be made.
    pub slots: u16,
    /// Whether it can be put back to any second of the last weeks.
    pub backups: bool,
}

/// Something to do, or something that has to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the table with its index.
    CreateTable,
    /// Wait until table and index can be used.
    Wait,
    /// Add the index to a table that has only the key.
    AddIndex,
    /// Let items expire.
    EnableExpiry,
    /// Let the table be put back to any second of the last weeks.
    EnableBackups,
    /// Say in the table what it is.
    WriteMeta {
        /// Partitions of each job.
        slots: u16,
    },
    /// Differs from what is wanted, and is left as it is.
    Drift(String),
    /// Nothing can be done about it: the table is not ours.
    Foreign(String),
}

/// A step that was not carried out, because the engine knows nothing of it; the table works without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The step.
    pub step: Step,
    /// What the engine said.
    pub why: String,
}

impl Step {
    /// Whether carrying it out changes something.
    pub const fn changes(&self) -> bool {
        !matches!(self, Self::Wait | Self::Drift(_) | Self::Foreign(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateTable => {
                f.write_str("create the table with its index, paid by request, encrypted")
            }
            Self::Wait => f.write_str("wait until the table is active"),
            Self::AddIndex => write!(f, "add the index '{}'", schema::DUE_INDEX),
            Self::EnableExpiry => write!(
                f,
                "let finished tasks expire by the attribute '{}'",
                schema::TTL
            ),
            Self::EnableBackups => f.write_str("turn point-in-time recovery on"),
            Self::WriteMeta { slots } => {
                write!(
                    f,
                    "mark the table as a dueline store of version {} with {slots} slots",
                    schema::VERSION
                )
            }
            Self::Drift(what) => write!(f, "left as it is: {what}"),
            Self::Foreign(why) => write!(f, "cannot be used: {why}"),
        }
    }
}

/// The steps from what was found to what is wanted, in their order. Empty when nothing is to be done or said.
pub fn plan(found: &Found, wanted: &Wanted) -> Vec<Step> {
    let mut steps = Vec::new();
    let slots = wanted.slots.clamp(1, schema::SLOTS_MAX);
    let Some(table) = &found.table else {
        steps.extend([Step::CreateTable, Step::Wait, Step::EnableExpiry]);
        steps.extend(wanted.backups.then_some(Step::EnableBackups));
        steps.push(Step::WriteMeta { slots });
        return steps;
    };
    if !table.is_active() {
        steps.push(Step::Wait);
        if table.status == "DELETING" {
            return vec![Step::Foreign("the table is being deleted".into())];
        }
    }
    if !table.has_our_key() {
        return vec![Step::Foreign(format!("its key is {}", table.key))];
    }
    if let Some(meta) = &found.meta {
        if meta.app != schema::APP {
            return vec![Step::Foreign(format!("it belongs to '{}'", meta.app))];
        }
        if meta.version > i64::from(schema::VERSION) {
            let (found, known) = (meta.version, schema::VERSION);
            return vec![Step::Foreign(format!(
                "its version {found} is newer than {known}"
            ))];
        }
    }
    match &table.index {
        None => steps.extend([Step::AddIndex, Step::Wait]),
        Some(index) => {
            if let Some(flaw) = table
                .index_flaw()
                .filter(|_| !index.status.contains("CREATING"))
            {
                return vec![Step::Foreign(format!(
                    "there is no index '{}'{flaw}",
                    schema::DUE_INDEX
                ))];
            }
            if index.status.contains("CREATING") {
                steps.push(Step::Wait);
            }
            if index.projection != "KEYS_ONLY" {
                let carried = &index.projection;
                steps.push(Step::Drift(format!(
                    "the index carries {carried} and not only keys, so each write costs more"
                )));
            }
        }
    }
    if !table.on_demand {
        steps.push(Step::Drift(
            "capacity is provisioned, not paid by request".into(),
        ));
    }
    if found.ttl == Some(false) {
        steps.push(Step::EnableExpiry);
    }
    if wanted.backups && found.backups == Some(false) {
        steps.push(Step::EnableBackups);
    }
    match &found.meta {
        None => steps.push(Step::WriteMeta { slots }),
        Some(meta) if meta.slots != slots => {
            let (have, asked) = (meta.slots, slots);
            steps.push(Step::Drift(format!(
                "the table has {have} slots for ever, {asked} were asked for"
            )));
        }
        Some(_) => {}
    }
    steps.dedup();
    steps
}
