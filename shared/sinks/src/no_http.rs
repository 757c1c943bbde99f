//! URLs as sinks in a program that was built without them: they are refused.

use dueline_ports::{SinkFailure, SinkRecord, SinkRefused};

#[derive(Debug)]
pub(crate) struct HttpSinks;

impl HttpSinks {
    pub(crate) const fn new(_allow_private: bool) -> Self {
        Self
    }

    pub(crate) fn check(&self, _url: &str) -> Result<(), SinkRefused> {
        Err(refused())
    }

    pub(crate) async fn deliver(
        &self,
        _url: &str,
        records: &[SinkRecord],
    ) -> Vec<Result<(), SinkFailure>> {
        let failure = SinkFailure::new(refused().message);
        vec![Err(failure); records.len()]
    }
}

fn refused() -> SinkRefused {
    SinkRefused {
        reason: "sink_not_available",
        message: "this program was built without URLs as sinks (feature `http`)".into(),
    }
}
