//! Messages that are none of ours are kept for people to look at, and never come back.

use std::sync::Arc;

use dueline_aws::Failure;

use crate::{
    job_queue::JobQueue,
    pack::{ENTRIES_MAX, fit},
    service::{Incoming, Outgoing},
    wire::Reason,
};

/// Largest request that SQS takes, less what goes beside the bodies.
const BODIES_BYTES_MAX: usize = 1024 * 1024 - 8 * 1024;

/// A message that is none of ours.
pub(crate) struct Stray {
    pub(crate) incoming: Incoming,
    pub(crate) reason: Reason,
}

impl JobQueue {
    /// Sets messages aside in the background. While enough of that is going on, they just stay invisible: they come
    /// back by their visibility timeout, so nothing loops.
    pub(crate) fn begin_set_aside(self: &Arc<Self>, level: usize, strays: Vec<Stray>) {
        if strays.is_empty() || self.setting_aside.available_permits() == 0 {
            return;
        }
        let queue = self.clone();
        self.common.crew.spawn(async move {
            let Ok(_permit) = queue.setting_aside.try_acquire() else {
                return;
            };
            let mut rest = &strays[..];
            while !rest.is_empty() {
                let sizes = rest.iter().map(|stray| stray.incoming.body.len());
                let count = fit(sizes, ENTRIES_MAX, BODIES_BYTES_MAX);
                let (some, others) = rest.split_at(count);
                queue.set_aside(level, some).await;
                rest = others;
            }
        });
    }

    async fn set_aside(&self, level: usize, strays: &[Stray]) {
        let source = &self.levels[level].place;
        let copies: Vec<_> = strays
            .iter()
            .map(|stray| stray.copy(&source.name))
            .collect();
        let results = match self.copy(&copies).await {
            Ok(results) => results,
            Err(why) => {
                tracing::warn!(
                    queue = source.name,
                    why,
                    "failed to set messages aside; they are tried again later"
                );
                return;
            }
        };
        let mut over = Vec::new();
        for (stray, result) in strays.iter().zip(results) {
            let reason = stray.reason.name();
            match result {
                Ok(()) => {
                    let count =
                        metrics::counter!("dueline_queue_set_aside_total", "reason" => reason);
                    count.increment(1);
                    tracing::warn!(
                        queue = source.name,
                        message = stray.incoming.id,
                        reason,
                        "set a message aside that is none of ours"
                    );
                    over.push(stray.incoming.handle.as_str().into());
                }
                Err(failure) => tracing::warn!(
                    queue = source.name, message = stray.incoming.id, reason, why = %failure.message,
                    "failed to set a message aside; it is tried again later"
                ),
            }
        }
        // One that cannot be deleted comes back and is set aside once more.
        self.levels[level].deletes.submit(over).await;
    }

    async fn copy(&self, copies: &[Outgoing]) -> Result<Vec<Result<(), Failure>>, String> {
        let place = &self.common.set_aside;
        let made = place.ensure(&self.common.crew).await;
        made.map_err(|error| error.to_string())?;
        let url = place.url().await.map_err(|error| error.to_string())?;
        let sent = place.service.send(Some(&self.job), &url, copies).await;
        // Forgets a queue that is gone, so that it is made again the next time.
        sent.map_err(|failure| place.error(&failure).to_string())
    }
}

impl Stray {
    fn copy(&self, source: &str) -> Outgoing {
        let body = &self.incoming.body;
        let cut = body.floor_char_boundary(BODIES_BYTES_MAX);
        let mut attributes = vec![
            ("source_queue", source.to_owned()),
            ("reason", self.reason.name().to_owned()),
        ];
        if !self.incoming.id.is_empty() {
            attributes.push(("message_id", self.incoming.id.clone()));
        }
        if cut < body.len() {
            attributes.push(("cut_from_bytes", body.len().to_string()));
        }
        Outgoing {
            body: body[..cut].to_owned(),
            delay_s: 0,
            attributes,
        }
    }
}
