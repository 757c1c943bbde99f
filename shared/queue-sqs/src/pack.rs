//! Packing: how many references a message carries, and how many messages a request.

use std::ops::Range;

use crate::wire::ENVELOPE_BYTES_MAX;

/// Most references in a message.
const REFERENCES_PER_MESSAGE_MAX: usize = 25;
/// Most entries in a batch request of any kind.
pub(crate) const ENTRIES_MAX: usize = 10;
/// Most references in a request.
pub(crate) const REFERENCES_PER_REQUEST_MAX: usize = REFERENCES_PER_MESSAGE_MAX * ENTRIES_MAX;
/// Bytes that SQS bills as one request.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;
/// Most bytes of references in a request that is billed as one.
pub(crate) const REFERENCE_BYTES_MAX: usize = CHUNK_BYTES - ENTRIES_MAX * ENVELOPE_BYTES_MAX;
/// Longest reference that SQS accepts, alone in a message.
pub(crate) const REFERENCE_LEN_MAX: usize = 1024 * 1024 - ENVELOPE_BYTES_MAX;

/// Which references go into which message of one request. Up to ten are sent as one message each; more are spread
/// evenly over ten messages, because a message is received by one host as a whole.
pub(crate) fn spread(references: usize) -> impl Iterator<Item = Range<usize>> {
    let messages = references.min(ENTRIES_MAX);
    (0..messages).map(move |n| n * references / messages..(n + 1) * references / messages)
}

/// How many references of these sizes fit into one request; at least one, if there is one.
pub(crate) fn fit(sizes: impl Iterator<Item = usize>, count_max: usize, bytes_max: usize) -> usize {
    let mut bytes = 0_usize;
    let fitting = sizes.take(count_max).enumerate().take_while(|(n, size)| {
        bytes = bytes.saturating_add(*size);
        *n == 0 || bytes <= bytes_max
    });
    fitting.count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::{self, tests as samples};

    #[test]
    fn few_references_are_sent_alone_and_many_are_spread_evenly() {
        let sizes = |n| spread(n).map(|range| range.len()).collect::<Vec<_>>();
        assert_eq!(sizes(0), Vec::<usize>::new());
        assert_eq!(sizes(3), [1, 1, 1]);
        assert_eq!(sizes(10), [1; 10]);
        assert_eq!(sizes(64).iter().sum::<usize>(), 64);
        assert!(sizes(64).iter().all(|n| (6..=7).contains(n)));
        assert_eq!(sizes(250), [25; 10]);
    }

    proptest! {
        #[test]
        fn every_reference_is_packed_once_within_all_limits(
            traces in prop::collection::vec(0_usize..70_000, 1..20),
            short in 0_usize..600,
        ) {
            let task = wire::decode(&samples::job(), &wire::body(&samples::job(), 0, [
                r#"{"id":"00000000-0000-0000-0000-000000000001","token":"0000000000000002","priority":0,"weight":1,"due":5}"#,
            ].into_iter())).expect("a valid message").tasks.remove(0);
            let traces = traces.into_iter().chain(std::iter::repeat_n(55, short));
            let tasks: Vec<_> = traces.map(|len| dueline_domain::TaskRef {
                trace: Some("é".repeat(len / 6).into()),
                ..task.clone()
            }).collect();
            let mut rest: Vec<_> = tasks.iter().map(wire::reference).collect();
            let mut unpacked = Vec::new();
            while !rest.is_empty() {
                let sizes = rest.iter().map(|r| r.len() + 1);
                let count = fit(sizes, REFERENCES_PER_REQUEST_MAX, REFERENCE_BYTES_MAX);
                prop_assert!(count >= 1);
                let request: Vec<_> = rest.drain(..count).collect();
                let mut bytes = 0;
                let mut messages = 0;
                for range in spread(request.len()) {
                    prop_assert!((1..=REFERENCES_PER_MESSAGE_MAX).contains(&range.len()));
                    let references = request[range].iter().map(String::as_str);
                    let body = wire::body(&samples::job(), 7, references);
                    bytes += body.len();
                    messages += 1;
                    unpacked.extend(wire::decode(&samples::job(), &body).expect("a valid message").tasks);
                }
                prop_assert!(messages <= ENTRIES_MAX);
                prop_assert!(bytes <= CHUNK_BYTES || request.len() == 1);
            }
            prop_assert_eq!(unpacked, tasks);
        }
    }
}
