//! A process whose sampler keeps all spans that it is asked for.

use dueline_domain::{JobName, TaskId};
use dueline_trace::{Began, Step, TaskSpan, switch_on};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};

const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

#[test]
fn f_130_a_step_of_an_unsampled_trace_is_not_recorded_whatever_the_sampler_of_its_process() {
    let provider = SdkTracerProvider::builder().with_sampler(Sampler::AlwaysOn);
    opentelemetry::global::set_tracer_provider(provider.build());
    switch_on();
    let (job, id) = (JobName::parse("job").unwrap(), TaskId::from_bytes([1; 16]));
    let start = |trace: &str| TaskSpan::start(Step::Run, Some(trace), &job, &id, Began::now());
    assert!(start(UNSAMPLED).is_none());
    assert!(start(&UNSAMPLED.replace("-00", "-01")).is_some());
}
