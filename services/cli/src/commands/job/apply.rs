//! `dueline job apply`.

use std::{io, path::Path, time::Duration};

use dueline_api::v1::{JobView, RetriesMax};
use dueline_domain::{JobName, Quota, Sink};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::http_handler::{http_config, parse_header};
use crate::{
    client::RequestBody,
    commands::payload::{read_text, read_text_file},
    context::Context,
    exit::{CliError, Exit},
    sanitize::clean,
    units::{millis, parse_duration},
};

const EXAMPLES: &str = "\
Examples:
  dueline job apply greet --command 'read -r name; echo \"hello $name\"' --retries 3
  dueline job apply notify --url https://example.org/hook --header 'X-Team: mail' --timeout 30s
  dueline job get greet --json > greet.json; dueline job apply greet.json --retention 7d";

/// Creates a job or replaces its definition. Flags override the file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Apply {
    /// File with the definition in JSON or TOML (its name contains a '.' or '/'), - for standard input, or the name of
    /// a job that the flags define
    #[arg(value_name = "FILE|-|NAME")]
    target: String,

    /// Name of the job, instead of the file's `name`
    #[arg(long)]
    name: Option<JobName>,

    /// Handler that runs the tasks: worker, exec, http or noop
    #[arg(long, value_name = "KIND")]
    handler: Option<String>,

    /// Shell command that the exec handler runs with the payload on standard input
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["url", "handler_config"])]
    command: Option<String>,

    /// URL that the http handler calls with the payload as the body
    #[arg(long)]
    url: Option<String>,

    /// Method of the http handler [default: POST]
    #[arg(long, requires = "url")]
    method: Option<String>,

    /// Header that the http handler sends; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = parse_header, requires = "url")]
    headers: Vec<(String, String)>,

    /// Settings of the handler as a JSON object; --url, --method and --header override them
    #[arg(long, value_name = "JSON")]
    handler_config: Option<String>,

    /// Description of the job
    #[arg(long, value_name = "TEXT")]
    info: Option<String>,

    /// Most retries: a number or `unlimited`
    #[arg(long, value_name = "N", value_parser = parse_retries, allow_hyphen_values = true)]
    retries: Option<RetriesMax>,

    /// Longest duration of a run
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,

    /// Time without a heartbeat after which a run is lost; at least 100ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    heartbeat_timeout: Option<Duration>,

    /// Time after which a claimed task that has not started is enqueued again; at least 100ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    claim_timeout: Option<Duration>,

    /// Time after which an enqueued task that is not claimed is enqueued again; at least 100ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    enqueue_timeout: Option<Duration>,

    /// How long finished tasks are kept
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, allow_hyphen_values = true)]
    retention: Option<Duration>,

    /// Where each finished task is delivered before it may be deleted: file:NAME, http://…, https://… or sqs://QUEUE
    #[arg(long, value_name = "URI", value_parser = parse_sink)]
    sink: Option<Sink>,

    /// Most tasks enqueued per second
    #[arg(long, value_name = "PER_SECOND", value_parser = parse_rate, allow_hyphen_values = true)]
    rate: Option<f64>,

    /// Most tasks enqueued at once after a pause
    #[arg(long, value_name = "N", value_parser = parse_burst, allow_hyphen_values = true, requires = "rate")]
    burst: Option<u32>,

    /// Most tasks enqueued or owned by workers at the same time, in the whole fleet
    #[arg(long, value_name = "N", value_parser = parse_running_max, allow_hyphen_values = true)]
    running_max: Option<u32>,

    /// Let the fairness keys of the tasks take turns, so that one with many tasks does not delay the others; cannot be undone
    #[arg(long)]
    fair_share: bool,

    /// Most tasks of each fairness key enqueued or owned by workers at the same time; implies --fair-share
    #[arg(long, value_name = "N", value_parser = parse_running_max, allow_hyphen_values = true)]
    key_running_max: Option<u32>,
}

fn parse_retries(text: &str) -> Result<RetriesMax, String> {
    if text == "unlimited" {
        return Ok(RetriesMax::Unlimited);
    }
    text.parse()
        .map(RetriesMax::Limited)
        .map_err(|_| format!("give a number from 0 to {}, or `unlimited`", u32::MAX))
}

/// A rate within the server's bounds. NaN and infinity must be refused here: JSON cannot express them and would send
/// null, which means "no limit".
fn parse_rate(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(rate) if rate > 0.0 && rate <= Quota::RATE_MAX => Ok(rate),
        _ => Err(format!(
            "give a number above 0 and at most {}; omit --rate for no limit, or pause the job to stop it",
            Quota::RATE_MAX
        )),
    }
}

fn parse_sink(text: &str) -> Result<Sink, String> {
    Sink::parse(text).map_err(|error| error.to_string())
}

fn parse_burst(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(burst @ 1..) => Ok(burst),
        _ => Err(format!("give a number from 1 to {}", u32::MAX)),
    }
}

fn parse_running_max(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(max @ 1..=Quota::RUNNING_MAX) => Ok(max),
        _ => Err(format!("give a number from 1 to {}", Quota::RUNNING_MAX)),
    }
}

impl Apply {
    pub(super) async fn run(self, context: &Context) -> Result<Exit, CliError> {
        let (name, spec) = self.spec()?;
        let path = ["jobs", name.as_str()];
        let answer = context
            .client()?
            .send(Method::PUT, &path, RequestBody::json(&spec)?)
            .await?;
        context.output.show(&answer, context.now(), |_| {
            let job: JobView = answer.read()?;
            Ok(format!(
                "job {} applied (handler {})",
                job.name,
                clean(&job.handler.kind)
            ))
        })?;
        Ok(Exit::Ok)
    }

    /// The name of the job and the body of the request.
    fn spec(self) -> Result<(JobName, Value), CliError> {
        let is_file = self.target == "-" || self.target.contains(['.', '/', '\\']);
        let (mut name, mut spec) = (None, Map::new());
        if is_file {
            spec = read(&self.target)?;
            name = spec.remove("name");
        } else {
            name.replace(Value::String(self.target.clone()));
        }
        let name = match (&self.name, name) {
            (Some(name), _) => name.to_string(),
            (None, Some(Value::String(name))) => name,
            (None, Some(_)) => return Err(CliError::invalid("the job's `name` must be a string")),
            (None, None) => {
                let message = format!("{} contains no job name", self.target);
                let hint = "add a field `name`, or set --name";
                return Err(CliError::invalid(message).with_hint(hint));
            }
        };
        let name = JobName::parse(&name).map_err(|error| CliError::invalid(error.to_string()))?;
        self.put_flags(&mut spec)?;
        // The whole definition is replaced. The default handler is `worker`, so a missing flag would change the
        // handler.
        if !is_file && !spec.contains_key("handler") {
            let message = format!("no flag sets the handler of {name}");
            let hint = format!(
                "apply replaces the whole definition: set --command, --url or --handler worker; to change a part of \
                 it, edit the output of `dueline job get {name} --json` and apply that file"
            );
            return Err(CliError::invalid(message).with_hint(hint));
        }
        Ok((name, Value::Object(spec)))
    }

    fn put_flags(self, spec: &mut Map<String, Value>) -> Result<(), CliError> {
        let ms = |duration: Option<Duration>| duration.map(|duration| json!(millis(duration)));
        let quota = [
            ("rate_per_s", self.rate.map(|rate| json!(rate))),
            ("burst", self.burst.map(|burst| json!(burst))),
            ("running_max", self.running_max.map(|max| json!(max))),
        ];
        let quota = quota.into_iter();
        let quota = quota.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let quota = Map::from_iter(quota);
        let quota = (!quota.is_empty()).then_some(Value::Object(quota));
        let fair_share = match self.key_running_max {
            Some(max) => Some(json!({ "running_max": max })),
            None => self.fair_share.then(|| json!({})),
        };
        let fields = [
            ("fair_share", fair_share),
            ("info", self.info.as_ref().map(|info| json!(info))),
            ("retries_max", self.retries.map(|retries| json!(retries))),
            ("run_timeout_ms", ms(self.timeout)),
            ("heartbeat_timeout_ms", ms(self.heartbeat_timeout)),
            ("claim_timeout_ms", ms(self.claim_timeout)),
            ("enqueue_timeout_ms", ms(self.enqueue_timeout)),
            ("retention_ms", ms(self.retention)),
            ("sink", self.sink.as_ref().map(|sink| json!(sink.as_str()))),
            ("quota", quota),
            ("handler", self.handler_spec()?),
        ];
        spec.extend(
            fields
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?))),
        );
        Ok(())
    }

    fn handler_spec(self) -> Result<Option<Value>, CliError> {
        let config = self.handler_config.map(|text| {
            serde_json::from_str::<Value>(&text).map_err(|error| {
                CliError::invalid(format!("--handler-config is not JSON: {error}"))
            })
        });
        let config = config.transpose()?;
        let (implied, config) = match (self.command, self.url) {
            (Some(command), _) => ("exec", Some(json!({ "command": ["sh", "-c", command] }))),
            (None, Some(url)) => {
                let config = http_config(config, url, self.method, self.headers)?;
                ("http", Some(config))
            }
            (None, None) if config.is_some() && self.handler.is_none() => {
                let message = "--handler-config needs --handler or --url";
                return Err(CliError::invalid(message));
            }
            (None, None) => ("", config),
        };
        let kind = match self.handler {
            Some(kind) if !implied.is_empty() && kind != implied => {
                let message = format!("--command belongs to exec and --url to http, not to {kind}");
                return Err(CliError::invalid(message));
            }
            Some(kind) => kind,
            None if implied.is_empty() => return Ok(None),
            None => implied.to_owned(),
        };
        let mut handler = Map::from_iter([("kind".to_owned(), json!(kind))]);
        handler.extend(config.map(|config| ("config".to_owned(), config)));
        Ok(Some(Value::Object(handler)))
    }
}

/// Fields in the output of `job get` that are not part of a definition. They are removed, so that the output can be
/// edited and applied.
const READ_ONLY_FIELDS: [&str; 6] = [
    "id",
    "status",
    "created_at",
    "created_by",
    "changed_at",
    "frequency",
];

fn read(target: &str) -> Result<Map<String, Value>, CliError> {
    let text = match target {
        "-" => read_text("standard input", io::stdin().lock())?,
        path => read_text_file(Path::new(path))?,
    };
    let is_toml = Path::new(target)
        .extension()
        .is_some_and(|extension| extension == "toml");
    let invalid = |error: &dyn std::fmt::Display| {
        CliError::invalid(format!("{target} is not a job definition: {error}"))
    };
    // Some editors write a byte order mark at the beginning of a file.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let parsed: Value = if is_toml {
        let parsed: toml::Value = toml::from_str(text).map_err(|error| invalid(&error))?;
        if let Some(field) = not_finite(&parsed) {
            return Err(invalid(&format!("{field} must be a finite number")));
        }
        serde_json::to_value(parsed).map_err(|error| invalid(&error))?
    } else {
        serde_json::from_str(text).map_err(|error| invalid(&error))?
    };
    let Value::Object(mut spec) = parsed else {
        return Err(invalid(&"expected an object"));
    };
    if spec.contains_key("created_at") {
        spec.retain(|field, _| !READ_ONLY_FIELDS.contains(&field.as_str()));
    }
    Ok(spec)
}

/// The first field with the value `nan` or `inf`. JSON cannot express these and would send null, which means the
/// default.
fn not_finite(value: &toml::Value) -> Option<String> {
    let within = |name: String, value: &toml::Value| {
        let field = not_finite(value)?;
        Some(if field.is_empty() {
            name
        } else {
            format!("{name}.{field}")
        })
    };
    match value {
        toml::Value::Float(number) => (!number.is_finite()).then(String::new),
        toml::Value::Table(table) => table
            .iter()
            .find_map(|(name, value)| within(name.clone(), value)),
        toml::Value::Array(values) => values
            .iter()
            .enumerate()
            .find_map(|(index, value)| within(index.to_string(), value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;
    use dueline_api::v1::JobSpec;
    use dueline_domain::Policy;

    use super::*;

    #[derive(clap::Parser)]
    struct ApplyCommand {
        #[command(flatten)]
        apply: Apply,
    }

    fn spec(args: &[&str]) -> Result<(JobName, Value), CliError> {
        let args = std::iter::once("apply").chain(args.iter().copied());
        ApplyCommand::try_parse_from(args).unwrap().apply.spec()
    }

    /// Asserts that the server would accept the definition.
    #[track_caller]
    fn assert_accepted(name: &JobName, spec: &Value) {
        let text = spec.to_string();
        let spec: JobSpec = dueline_api::v1::parse(text.as_bytes()).unwrap();
        let job = spec.into_job(name.clone(), &Policy::default()).unwrap();
        dueline_api::check::job(&job).unwrap();
    }

    #[test]
    fn flags_define_a_job() {
        let args = [
            "mail",
            "--command",
            "cat | mail",
            "--retries",
            "unlimited",
            "--timeout",
            "30s",
            "--rate",
            "2.5",
            "--burst",
            "9",
            "--running-max",
            "4",
            "--info",
            "sends mail",
            "--heartbeat-timeout",
            "9s",
        ];
        let (name, spec) = spec(&args).unwrap();
        assert_eq!(name.as_str(), "mail");
        let expected = json!({
            "info": "sends mail",
            "handler": { "kind": "exec", "config": { "command": ["sh", "-c", "cat | mail"] } },
            "retries_max": "unlimited",
            "run_timeout_ms": 30_000,
            "heartbeat_timeout_ms": 9_000,
            "quota": { "rate_per_s": 2.5, "burst": 9, "running_max": 4 },
        });
        assert_eq!(spec, expected);
        assert_accepted(&name, &spec);
    }

    #[test]
    fn a_url_implies_the_http_handler_and_flags_must_set_a_handler() {
        let (name, spec_of_url) = spec(&["hook", "--url", "http://x/y"]).unwrap();
        assert_eq!(spec_of_url["handler"]["kind"], "http");
        assert_accepted(&name, &spec_of_url);
        let (name, worker) = spec(&["hook", "--handler", "worker"]).unwrap();
        assert_eq!(worker, json!({ "handler": { "kind": "worker" } }));
        assert_accepted(&name, &worker);
        for args in [&["hook"][..], &["hook", "--info", "x", "--retries", "3"]] {
            let error = spec(args).unwrap_err().to_string();
            assert_eq!(error, "no flag sets the handler of hook");
        }
        assert!(spec(&["hook", "--handler", "exec", "--url", "http://x/y"]).is_err());
    }

    #[test]
    fn a_file_in_json_or_toml_defines_a_job_and_flags_override_it() {
        let home = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let path = home.path().join(file);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let json = write("j.json", r#"{"name": "a", "info": "x", "retries_max": 1}"#);
        let toml = write("j.toml", "name = \"b\"\n[handler]\nkind = \"noop\"\n");
        let (name, of_json) = spec(&[&json, "--retries", "7"]).unwrap();
        assert_eq!(
            (name.as_str(), &of_json),
            ("a", &json!({ "info": "x", "retries_max": 7 }))
        );
        let (name, of_toml) = spec(&[&toml, "--name", "c"]).unwrap();
        assert_eq!(name.as_str(), "c");
        assert_accepted(&name, &of_toml);
        let nameless = write("n.json", "{}");
        assert!(
            spec(&[&nameless])
                .unwrap_err()
                .to_string()
                .contains("contains no job name")
        );
        assert!(spec(&["./no-such-file"]).is_err());
    }

    #[test]
    fn a_number_that_is_not_valid_is_refused_with_the_valid_range() {
        let error_of = |args: &[&str]| {
            let args = ["apply", "mail", "--handler", "noop"]
                .iter()
                .chain(args)
                .copied();
            ApplyCommand::try_parse_from(args)
                .err()
                .unwrap()
                .to_string()
        };
        for rate in ["nan", "inf", "-inf", "-1", "0", "1e7", "many"] {
            let error = error_of(&["--rate", rate]);
            assert!(
                error.contains("above 0 and at most 1000000"),
                "{rate}: {error}"
            );
        }
        for burst in ["-1", "0", "nan", "4294967296"] {
            let error = error_of(&["--rate", "1", "--burst", burst]);
            assert!(error.contains("from 1 to 4294967295"), "{burst}: {error}");
        }
        for retries in ["-1", "99999999999", "few"] {
            let error = error_of(&["--retries", retries]);
            assert!(
                error.contains("from 0 to 4294967295, or `unlimited`"),
                "{retries}: {error}"
            );
        }
    }

    #[test]
    fn a_file_with_a_number_that_is_not_finite_is_refused_with_the_field() {
        let home = tempfile::tempdir().unwrap();
        let error_of = |file: &str, text: &str| {
            let path = home.path().join(file);
            fs::write(&path, text).unwrap();
            spec(&[path.to_str().unwrap()]).unwrap_err().to_string()
        };
        for number in ["nan", "inf", "-inf"] {
            let text = format!("name = \"a\"\n[quota]\nrate_per_s = {number}\n");
            let error = error_of("j.toml", &text);
            assert!(
                error.contains("quota.rate_per_s must be a finite number"),
                "{error}"
            );
            let text = format!(r#"{{"name": "a", "quota": {{"rate_per_s": {number}}}}}"#);
            error_of("j.json", &text);
        }
        error_of("j.json", r#"{"name": "a", "quota": {"rate_per_s": 1e999}}"#);
    }

    #[test]
    fn a_byte_order_mark_before_a_definition_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("j.json", "\u{feff}{\"name\": \"a\"}"),
            ("j.toml", "\u{feff}name = \"a\"\n"),
        ] {
            let path = home.path().join(file);
            fs::write(&path, text).unwrap();
            assert_eq!(spec(&[path.to_str().unwrap()]).unwrap().0.as_str(), "a");
        }
    }

    #[test]
    fn the_output_of_get_can_be_applied_again() {
        let home = tempfile::tempdir().unwrap();
        let (name, sent) = spec(&["mail", "--command", "true", "--info", "x"]).unwrap();
        let sent: JobSpec = serde_json::from_value(sent).unwrap();
        let job = sent.into_job(name, &Policy::default()).unwrap();
        let output = serde_json::to_string(&JobView::try_from(&job).unwrap()).unwrap();
        let path = home.path().join("output.json");
        fs::write(&path, output).unwrap();
        let (name, again) = spec(&[path.to_str().unwrap()]).unwrap();
        assert_eq!(name.as_str(), "mail");
        assert_accepted(&name, &again);
    }
}
