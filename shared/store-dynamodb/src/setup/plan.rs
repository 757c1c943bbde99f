//! The plan of a setup: the steps that bring a table to its specification.

use std::fmt;

use super::TableState;
use crate::schema;

/// The specification of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Its name.
    pub table: String,
    /// Slots of each job, for a new table.
    pub slots: u16,
    /// Whether point-in-time recovery is on.
    pub backups: bool,
}

/// A step of a plan: something to do, or a difference to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupStep {
    /// Create the table with its index.
    CreateTable,
    /// Wait until table and index can be used.
    Wait,
    /// Add the index to a table that has only the key.
    AddIndex,
    /// Turn the expiry of items on.
    EnableExpiry,
    /// Turn point-in-time recovery on.
    EnableBackups,
    /// Write the meta item, which marks the table as a Dueline store.
    WriteMeta {
        /// Slots of each job.
        slots: u16,
    },
    /// A difference from the specification that is left as it is.
    Drift(String),
    /// The table cannot be used: it belongs to another program or a newer version, or is being deleted.
    Foreign(String),
}

/// A step that was skipped because the engine does not support it. The table works without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedStep {
    /// The step.
    pub step: SetupStep,
    /// The message of the engine.
    pub why: String,
}

impl SetupStep {
    /// Whether executing the step changes the table.
    pub const fn changes(&self) -> bool {
        !matches!(self, Self::Wait | Self::Drift(_) | Self::Foreign(_))
    }
}

impl fmt::Display for SetupStep {
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

/// The steps from the current state of a table to its specification, in order. Empty when there is nothing to do or to
/// report.
pub fn plan(found: &TableState, spec: &TableSpec) -> Vec<SetupStep> {
    let mut steps = Vec::new();
    let slots = spec.slots.clamp(1, schema::SLOTS_MAX);
    let Some(table) = &found.table else {
        steps.extend([
            SetupStep::CreateTable,
            SetupStep::Wait,
            SetupStep::EnableExpiry,
        ]);
        steps.extend(spec.backups.then_some(SetupStep::EnableBackups));
        steps.push(SetupStep::WriteMeta { slots });
        return steps;
    };
    if !table.is_active() {
        steps.push(SetupStep::Wait);
        if table.status == "DELETING" {
            return vec![SetupStep::Foreign("the table is being deleted".into())];
        }
    }
    if !table.has_dueline_key() {
        return vec![SetupStep::Foreign(format!("its key is {}", table.key))];
    }
    if let Some(meta) = &found.meta {
        if meta.app != schema::APP {
            return vec![SetupStep::Foreign(format!("it belongs to '{}'", meta.app))];
        }
        if meta.version > i64::from(schema::VERSION) {
            let (found, known) = (meta.version, schema::VERSION);
            return vec![SetupStep::Foreign(format!(
                "its version {found} is newer than {known}"
            ))];
        }
    }
    match &table.index {
        None => steps.extend([SetupStep::AddIndex, SetupStep::Wait]),
        Some(index) => {
            if let Some(problem) = table
                .index_problem()
                .filter(|_| !index.status.contains("CREATING"))
            {
                return vec![SetupStep::Foreign(format!(
                    "there is no index '{}'{problem}",
                    schema::DUE_INDEX
                ))];
            }
            if index.status.contains("CREATING") {
                steps.push(SetupStep::Wait);
            }
            if index.projection != "KEYS_ONLY" {
                let projection = &index.projection;
                steps.push(SetupStep::Drift(format!(
                    "the index projects {projection} and not only keys, so each write costs more"
                )));
            }
        }
    }
    if !table.on_demand {
        steps.push(SetupStep::Drift(
            "capacity is provisioned, not paid by request".into(),
        ));
    }
    if found.ttl == Some(false) {
        steps.push(SetupStep::EnableExpiry);
    }
    if spec.backups && found.backups == Some(false) {
        steps.push(SetupStep::EnableBackups);
    }
    match &found.meta {
        None => steps.push(SetupStep::WriteMeta { slots }),
        Some(meta) if meta.slots != slots => {
            let current = meta.slots;
            steps.push(SetupStep::Drift(format!(
                "the table has {current} slots, not {slots}; the slots of a table cannot be changed"
            )));
        }
        Some(_) => {}
    }
    steps.dedup();
    steps
}
