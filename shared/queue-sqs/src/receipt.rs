//! What a receipt says to us: which level, which reference of which packed message, and SQS's own handle.

use std::sync::Arc;

use dueline_domain::JobName;
use dueline_ports::Receipt;

use crate::name::LEVELS;

/// A receipt, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Which of the queues of the job.
    pub(crate) level: usize,
    /// Number of the packed message; 0 for a message with a single reference.
    pub(crate) serial: u64,
    /// Place of the reference in its message.
    pub(crate) index: usize,
    /// SQS's own handle; new with each receive.
    pub(crate) handle: Arc<str>,
}

impl Ticket {
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

    /// `None` when the receipt is none of ours.
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
    fn a_receipt_is_read_back_and_strangers_are_not() {
        let job = JobName::parse("mail").expect("a legal job name");
        let ticket = Ticket {
            level: 4,
            serial: 77,
            index: 12,
            handle: "AQEB/x.y+z==".into(),
        };
        assert_eq!(Ticket::parse(&ticket.receipt(&job)), Some(ticket));
        for text in ["", "AQEB", "9.1.1/x", "1.1/x", "1.x.1/y", "-1.1.1/x"] {
            let handle = text.into();
            let receipt = Receipt::Handle {
                job: job.clone(),
                handle,
            };
            assert_eq!(Ticket::parse(&receipt), None, "{text}");
        }
        assert_eq!(Ticket::parse(&Receipt::Local { job, number: 1 }), None);
    }
}
