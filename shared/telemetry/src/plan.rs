//! What the standard `OTEL_*` variables ask for.

use std::ops::RangeInclusive;

const DISABLED: &str = "OTEL_SDK_DISABLED";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// The samplers that OpenTelemetry defines and its SDK has.
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];
const RATIOS: RangeInclusive<f64> = 0.0..=1.0;

/// A variable `OTEL_*` whose value Dueline cannot follow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("environment variable {name}={value}: {fix}")]
pub struct BadVariable {
    /// The variable.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What to set instead.
    pub fix: String,
}

/// What is exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExportPlan {
    pub(crate) traces: bool,
    pub(crate) metrics: bool,
}

impl ExportPlan {
    /// Reads the variables. Nothing is exported unless an endpoint or an exporter is named.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, BadVariable> {
        // An empty variable counts as not set, as OpenTelemetry defines.
        let get = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        if get(DISABLED).is_some_and(|value| value.trim().eq_ignore_ascii_case("true")) {
            return Ok(Self::default());
        }
        let plan = Self {
            traces: is_exported(&get, "TRACES", &["otlp"])?,
            // Prometheus text is always served.
            metrics: is_exported(&get, "METRICS", &["otlp", "prometheus"])?,
        };
        if plan.traces {
            check_sampler(&get)?;
        }
        Ok(plan)
    }
}

/// Whether a signal is exported over OTLP. `known` are the exporters that the signal has.
fn is_exported(
    get: &impl Fn(&str) -> Option<String>,
    signal: &str,
    known: &[&str],
) -> Result<bool, BadVariable> {
    let name = format!("OTEL_{signal}_EXPORTER");
    let is_on = match get(&name) {
        None => {
            let own_endpoint = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
            get(ENDPOINT).or_else(|| get(&own_endpoint)).is_some()
        }
        Some(value) => {
            let exporters: Vec<_> = value.split(',').map(str::trim).collect();
            let is_known = |exporter: &&str| known.contains(exporter) || *exporter == "none";
            if !exporters.iter().all(is_known) {
                let fix = format!("set it to none or {}", known.join(", "));
                return Err(BadVariable { name, value, fix });
            }
            exporters.contains(&"otlp")
        }
    };
    if is_on {
        check_protocol(get, signal)?;
    }
    Ok(is_on)
}

fn check_protocol(get: &impl Fn(&str) -> Option<String>, signal: &str) -> Result<(), BadVariable> {
    let own = format!("OTEL_EXPORTER_OTLP_{signal}_PROTOCOL");
    let given = get(&own).map(|value| (own, value));
    let given = given.or_else(|| Some((PROTOCOL.to_owned(), get(PROTOCOL)?)));
    match given {
        Some((name, value)) if value.trim() != "grpc" => {
            let fix = "only grpc is supported; set it to grpc and the endpoint to the collector's gRPC port, \
                       usually 4317";
            Err(BadVariable {
                name,
                value,
                fix: fix.to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// Checks the sampler, for which the SDK would silently take another one.
fn check_sampler(get: &impl Fn(&str) -> Option<String>) -> Result<(), BadVariable> {
    let Some(sampler) = get(SAMPLER) else {
        return Ok(());
    };
    if !SAMPLERS.contains(&sampler.as_str()) {
        return Err(BadVariable {
            name: SAMPLER.to_owned(),
            value: sampler,
            fix: format!("set it to one of {}", SAMPLERS.join(", ")),
        });
    }
    let argument = get(SAMPLER_ARG);
    let ratio = argument.as_deref().and_then(|text| text.parse().ok());
    if sampler.ends_with("traceidratio") && !ratio.is_some_and(|ratio| RATIOS.contains(&ratio)) {
        return Err(BadVariable {
            name: SAMPLER_ARG.to_owned(),
            value: argument.unwrap_or_default(),
            fix: format!("{sampler} needs the share of traces to keep, from 0.0 to 1.0"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<(bool, bool), String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let plan = ExportPlan::read(get).map_err(|bad| bad.name)?;
        Ok((plan.traces, plan.metrics))
    }

    #[test]
    fn f_130_nothing_is_exported_unless_a_variable_asks_for_it() {
        assert_eq!(read(&[]), Ok((false, false)));
        assert_eq!(read(&[(ENDPOINT, "")]), Ok((false, false)));
        assert_eq!(read(&[("OTEL_SERVICE_NAME", "x")]), Ok((false, false)));
        let endpoint = (ENDPOINT, "http://collector:4317");
        assert_eq!(read(&[endpoint]), Ok((true, true)));
        assert_eq!(read(&[endpoint, (DISABLED, "True")]), Ok((false, false)));
        let none = ("OTEL_TRACES_EXPORTER", "none");
        assert_eq!(read(&[endpoint, none]), Ok((false, true)));
        let prometheus = ("OTEL_METRICS_EXPORTER", "prometheus");
        assert_eq!(read(&[endpoint, prometheus]), Ok((true, false)));
        let both = ("OTEL_METRICS_EXPORTER", "prometheus,otlp");
        assert_eq!(read(&[both]), Ok((false, true)));
        assert_eq!(read(&[("OTEL_TRACES_EXPORTER", "otlp")]), Ok((true, false)));
        let own = (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://collector:4317",
        );
        assert_eq!(read(&[own]), Ok((true, false)));
    }

    #[test]
    fn a_value_that_cannot_be_followed_is_refused_and_named() {
        let on = ("OTEL_TRACES_EXPORTER", "otlp");
        for (name, bad) in [
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_METRICS_EXPORTER", "otlp,console"),
        ] {
            assert_eq!(read(&[(name, bad)]), Err(name.to_owned()));
        }
        for (name, bad) in [
            (PROTOCOL, "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
            (SAMPLER, "xray"),
        ] {
            assert_eq!(read(&[on, (name, bad)]), Err(name.to_owned()));
            assert_eq!(read(&[(name, bad)]), Ok((false, false)), "off");
        }
        let ratio = (SAMPLER, "parentbased_traceidratio");
        for bad in ["", "1.5", "half"] {
            let read = read(&[on, ratio, (SAMPLER_ARG, bad)]);
            assert_eq!(read, Err(SAMPLER_ARG.to_owned()), "{bad}");
        }
        assert_eq!(read(&[on, ratio, (SAMPLER_ARG, "0.1")]), Ok((true, false)));
        assert_eq!(read(&[on, (PROTOCOL, "grpc")]), Ok((true, false)));
    }
}
