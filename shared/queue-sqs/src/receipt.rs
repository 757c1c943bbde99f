//! The handle in a receipt: the level, the reference within a packed message, and SQS's own receipt handle.

use std::sync::Arc;

use dueline_domain::JobName;
use dueline_ports::Receipt;

use crate::name::LEVELS;

/// A decoded receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SqsReceipt {
    /// The level of the job's queue.
    pub(crate) level: usize,
    /// The number of the packed message; 0 for a message with a single reference.
    pub(crate) serial: u64,
    /// The index of the reference in its message.
    pub(crate) index: usize,
    /// SQS's receipt handle; new with each receive.
    pub(crate) handle: Arc<str>,
}

impl SqsReceipt {
    pub(crate) fn receipt(&self, job: &JobName) -> Receipt {
        let Self {
            level,
            serial,
            index,
            handle,
        } = self;
        Receipt::Handle {
            job: job.clone(),
            handle: format!("{level}.{serial}.{index}/{handle}").into(),
        }
    }

    /// Decodes a receipt; `None` if this queue did not issue it.
    pub(crate) fn parse(receipt: &Receipt) -> Option<Self> {
        let Receipt::Handle { handle, .. } = receipt else {
            return None;
        };
        let (numbers, handle) = handle.split_once('/')?;
        let mut numbers = numbers.splitn(3, '.');
        let level = numbers.next()?.parse().ok();
        Some(Self {
            level: level.filter(|level| *level < LEVELS)?,
            serial: numbers.next()?.parse().ok()?,
            index: numbers.next()?.parse().ok()?,
            handle: handle.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_round_trip_and_foreign_ones_are_refused() {
        let job = JobName::parse("mail").expect("a legal job name");
        let receipt = SqsReceipt {
            level: 4,
            serial: 77,
            index: 12,
            handle: "AQEB/x.y+z==".into(),
        };
        assert_eq!(SqsReceipt::parse(&receipt.receipt(&job)), Some(receipt));
        for text in ["", "AQEB", "9.1.1/x", "1.1/x", "1.x.1/y", "-1.1.1/x"] {
            let handle = text.into();
            let receipt = Receipt::Handle {
                job: job.clone(),
                handle,
            };
            assert_eq!(SqsReceipt::parse(&receipt), None, "{text}");
        }
        assert_eq!(SqsReceipt::parse(&Receipt::Local { job, number: 1 }), None);
    }
}
