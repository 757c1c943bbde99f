//! Client configurations.

use std::time::Duration;

use aws_config::{
    BehaviorVersion, ConfigLoader, Region, retry::RetryConfig, timeout::TimeoutConfig,
};
use aws_credential_types::{Credentials, provider::ProvideCredentials};
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, rustls_provider::CryptoMode},
};
use aws_types::{SdkConfig, service_config::ServiceConfigKey};

/// Longest wait for credentials: the metadata service of a host answers at once or not at all.
const CREDENTIALS_WAIT: Duration = Duration::from_secs(5);
/// Attempts of one call by the SDK, the first included. Further retries are up to the caller.
const ATTEMPTS_MAX: u32 = 3;

/// A service of AWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The service of the task store.
    DynamoDb,
    /// The service of the task queue.
    Sqs,
}

impl Service {
    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DynamoDb => "DynamoDB",
            Self::Sqs => "SQS",
        }
    }
}

/// Explicit settings; the rest comes from the usual AWS variables and profiles.
#[derive(Clone, PartialEq, Eq)]
pub struct AwsSettings {
    /// Region.
    pub region: Option<String>,
    /// Endpoint instead of the region's own, for example of a local engine.
    pub endpoint: Option<String>,
    /// Profile in the AWS files.
    pub profile: Option<String>,
    /// Access key and secret key.
    pub keys: Option<(String, String)>,
    /// Timeout of one attempt of a call, the response included. A long poll adds its wait.
    pub timeout: Duration,
    /// Timeout of connecting.
    pub connect_timeout: Duration,
}

/// Omits the secret key.
impl std::fmt::Debug for AwsSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsSettings")
            .field("region", &self.region)
            .field("endpoint", &self.endpoint)
            .field("profile", &self.profile)
            .field("has_keys", &self.keys.is_some())
            .field("timeout", &self.timeout)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

impl Default for AwsSettings {
    /// No explicit settings; 5 s for an attempt, 2 s to connect.
    fn default() -> Self {
        Self {
            region: None,
            endpoint: None,
            profile: None,
            keys: None,
            timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
        }
    }
}

/// Why a client cannot be configured. Each message names what is missing and how to set it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// No region.
    #[error("no AWS region for {0}: set AWS_REGION, or 'region' in the URI")]
    NoRegion(&'static str),
    /// No credentials.
    #[error(
        "no AWS credentials for {service}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role ({why})"
    )]
    NoCredentials {
        /// The service.
        service: &'static str,
        /// The error of the credentials provider.
        why: String,
    },
    /// The endpoint is not a URL.
    #[error("'{0}' is not an endpoint; write http://HOST:PORT or https://HOST")]
    Endpoint(String),
}

/// Builds the configuration of a client. Checks that it has a region, credentials, and, if an endpoint is set anywhere,
/// that the endpoint is a URL.
pub async fn connect(service: Service, settings: &AwsSettings) -> Result<SdkConfig, SetupError> {
    let mut config = loader(settings).load().await;
    let endpoint = settings.endpoint.clone();
    if let Some(url) = endpoint.or_else(|| configured_endpoint(service, &config)) {
        if !is_endpoint(&url) {
            return Err(SetupError::Endpoint(url));
        }
        config = config.into_builder().endpoint_url(url).build();
    }
    if config.region().is_none() {
        return Err(SetupError::NoRegion(service.name()));
    }
    let missing = |why: String| SetupError::NoCredentials {
        service: service.name(),
        why,
    };
    let provider = config
        .credentials_provider()
        .ok_or_else(|| missing("none configured".into()))?;
    match tokio::time::timeout(CREDENTIALS_WAIT, provider.provide_credentials()).await {
        Ok(Ok(_)) => Ok(config),
        Ok(Err(error)) => Err(missing(innermost(&error))),
        Err(_) => Err(missing("no answer in time".into())),
    }
}

/// The endpoint of a service in the usual AWS variables or the profile.
fn configured_endpoint(service: Service, config: &SdkConfig) -> Option<String> {
    let key = ServiceConfigKey::builder()
        .service_id(service.name())
        .env("AWS_ENDPOINT_URL")
        .profile("endpoint_url");
    let own = key.build().ok().and_then(|key| {
        let settings = config.service_config()?;
        settings.load_config(key)
    });
    own.or_else(|| config.endpoint_url().map(ToOwned::to_owned))
}

/// The endpoint of a configuration, or else its region, for messages.
pub fn endpoint_or_region(config: &SdkConfig) -> String {
    let region = || {
        let region = config.region().map_or("unknown", AsRef::as_ref);
        format!("region {region}")
    };
    config.endpoint_url().map_or_else(region, ToOwned::to_owned)
}

fn loader(settings: &AwsSettings) -> ConfigLoader {
    let tls = Provider::Rustls(CryptoMode::Ring);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(settings.connect_timeout)
        .operation_attempt_timeout(settings.timeout)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(Builder::new().tls_provider(tls).build_https())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX));
    if let Some(region) = &settings.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &settings.endpoint {
        loader = loader.endpoint_url(endpoint.clone());
    }
    if let Some(profile) = &settings.profile {
        loader = loader.profile_name(profile.clone());
    }
    if let Some((access, secret)) = &settings.keys {
        let keys = Credentials::new(access.clone(), secret.clone(), None, None, "settings");
        loader = loader.credentials_provider(keys);
    }
    loader
}

fn is_endpoint(url: &str) -> bool {
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|host| !host.is_empty() && !host.contains(char::is_whitespace))
}

/// The innermost cause, which is the specific one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> AwsSettings {
        AwsSettings {
            region: Some("eu-central-1".into()),
            keys: Some(("key".into(), "very secret".into())),
            ..AwsSettings::default()
        }
    }

    #[tokio::test]
    async fn explicit_settings_are_sufficient() {
        let config = connect(Service::DynamoDb, &settings()).await;
        let config = config.expect("a configuration");
        assert_eq!(config.region().map(AsRef::as_ref), Some("eu-central-1"));
        assert_eq!(endpoint_or_region(&config), "region eu-central-1");
        let endpoint = Some("http://127.0.0.1:4566".to_owned());
        let settings = AwsSettings {
            endpoint,
            ..settings()
        };
        let config = connect(Service::Sqs, &settings).await;
        assert_eq!(
            endpoint_or_region(&config.expect("a configuration")),
            "http://127.0.0.1:4566"
        );
    }

    #[tokio::test]
    async fn an_endpoint_must_be_a_url() {
        for bad in ["localhost:4566", "http://", "ftp://x", "http://a b"] {
            let endpoint = Some(bad.to_owned());
            let settings = AwsSettings {
                endpoint,
                ..settings()
            };
            let error = connect(Service::Sqs, &settings).await.map(|_| ());
            assert_eq!(error, Err(SetupError::Endpoint(bad.into())));
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?}", settings());
        assert!(!shown.contains("very secret"), "{shown}");
    }
}
