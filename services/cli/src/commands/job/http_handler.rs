//! The flags of `dueline job apply` for the handler `http`.

use serde_json::{Value, json};

use crate::exit::CliError;

/// A header as curl takes it: `Name: value`.
pub(super) fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as 'Name: value'".into()),
    }
}

/// The settings of the http handler: those of `--handler-config` with the flags.
pub(super) fn http_config(
    config: Option<Value>,
    url: String,
    method: Option<String>,
    headers: Vec<(String, String)>,
) -> Result<Value, CliError> {
    let not_object = |what| CliError::invalid(format!("{what} must be a JSON object"));
    let Value::Object(mut config) = config.unwrap_or_else(|| json!({})) else {
        return Err(not_object("--handler-config"));
    };
    config.insert("url".into(), json!(url));
    match method {
        Some(method) => {
            config.insert("method".into(), json!(method));
        }
        None => {
            config.entry("method").or_insert_with(|| json!("POST"));
        }
    }
    if !headers.is_empty() {
        let Value::Object(all) = config.entry("headers").or_insert_with(|| json!({})) else {
            return Err(not_object("`headers` in --handler-config"));
        };
        all.extend(
            headers
                .into_iter()
                .map(|(name, value)| (name, json!(value))),
        );
    }
    Ok(Value::Object(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(
        settings: Option<Value>,
        method: Option<&str>,
        headers: &[&str],
    ) -> Result<Value, CliError> {
        let headers = headers.iter().map(|header| parse_header(header).unwrap());
        let method = method.map(str::to_owned);
        http_config(settings, "http://x/y".into(), method, headers.collect())
    }

    #[test]
    fn flags_override_the_settings_and_all_other_settings_stay() {
        let settings = json!({ "url": "http://z/", "method": "PUT", "timeout_ms": 9, "headers": { "A": "1", "B": "2" } });
        let expected = json!({
            "url": "http://x/y", "method": "PUT", "timeout_ms": 9, "headers": { "A": "x: y", "B": "2", "C": "" },
        });
        let headers = ["A: x: y", "C:"];
        assert_eq!(
            config(Some(settings.clone()), None, &headers).unwrap(),
            expected
        );
        assert_eq!(
            config(Some(settings), Some("GET"), &[]).unwrap()["method"],
            "GET"
        );
        let plain = json!({ "url": "http://x/y", "method": "POST" });
        assert_eq!(config(None, None, &[]).unwrap(), plain);
    }

    #[test]
    fn headers_without_a_name_and_settings_that_are_no_object_are_refused() {
        for bad in ["", "x", ": y", "  : y"] {
            assert!(parse_header(bad).is_err(), "{bad:?}");
        }
        assert!(config(Some(json!([])), None, &[]).is_err());
        assert!(config(Some(json!({ "headers": 1 })), None, &["A: 1"]).is_err());
    }
}
