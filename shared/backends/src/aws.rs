//! Parses the URIs of DynamoDB and SQS, and classifies the errors of opening them.

use std::time::Duration;

use dueline_aws::{AwsSettings, SetupError};
use dueline_queue_sqs::{OpenError as SqsError, SqsOptions};
use dueline_store_dynamodb::{DynamoOptions, OpenError as DynamoError};

use crate::{
    BackendError, Fault,
    uri::{Uri, wrong_value},
};

pub(crate) fn dynamodb(mut uri: Uri<'_>) -> Result<DynamoOptions, BackendError> {
    let mut options = DynamoOptions::of(uri.path);
    options.aws = settings(&mut uri)?;
    if let Some(slots) = uri.parsed::<u16>("slots", "a number from 1 to 256")? {
        if !(1..=256).contains(&slots) {
            return Err(wrong_value(
                "slots",
                &slots.to_string(),
                "a number from 1 to 256",
            ));
        }
        options.slots = slots;
    }
    uri.end("region, endpoint, profile, slots, timeout_ms, connect_timeout_ms")?;
    Ok(options)
}

pub(crate) fn sqs(mut uri: Uri<'_>) -> Result<SqsOptions, BackendError> {
    let mut options = SqsOptions::default();
    if !uri.path.is_empty() {
        uri.path.clone_into(&mut options.prefix);
    }
    options.aws = settings(&mut uri)?;
    if let Some(seconds) = uri.parsed::<u64>("visibility_timeout_s", SECONDS)? {
        if !(1..=43_200).contains(&seconds) {
            return Err(wrong_value(
                "visibility_timeout_s",
                &seconds.to_string(),
                SECONDS,
            ));
        }
        options.visibility_timeout = Duration::from_secs(seconds);
    }
    if let Some(priority_queues) = uri.parsed("priority_queues", "true or false")? {
        options.priority_queues = priority_queues;
    }
    uri.end(
        "region, endpoint, profile, visibility_timeout_s, priority_queues, timeout_ms, connect_timeout_ms",
    )?;
    Ok(options)
}

const SECONDS: &str = "seconds from 1 to 43200";

fn settings(uri: &mut Uri<'_>) -> Result<AwsSettings, BackendError> {
    let mut settings = AwsSettings {
        region: uri.option("region").map(str::to_owned),
        endpoint: uri.option("endpoint").map(str::to_owned),
        profile: uri.option("profile").map(str::to_owned),
        ..AwsSettings::default()
    };
    const MILLIS: &str = "milliseconds from 1 to 600000";
    for (name, to) in [
        ("timeout_ms", &mut settings.timeout),
        ("connect_timeout_ms", &mut settings.connect_timeout),
    ] {
        if let Some(millis) = uri.parsed::<u64>(name, MILLIS)? {
            if !(1..=600_000).contains(&millis) {
                return Err(wrong_value(name, &millis.to_string(), MILLIS));
            }
            *to = Duration::from_millis(millis);
        }
    }
    Ok(settings)
}

pub(crate) fn store_fault(error: &DynamoError) -> Fault {
    match error {
        DynamoError::Settings(error) => setup_fault(error),
        DynamoError::Missing { .. } => Fault::Missing,
        DynamoError::Denied { .. } => Fault::Denied,
        DynamoError::Unreachable { .. } | DynamoError::NotActive { .. } => Fault::Unreachable,
        _ => Fault::Wrong,
    }
}

pub(crate) fn queue_fault(error: &SqsError) -> Fault {
    match error {
        SqsError::Setup(error) => setup_fault(error),
        SqsError::Denied { .. } => Fault::Denied,
        SqsError::Unreachable { .. } => Fault::Unreachable,
        _ => Fault::Wrong,
    }
}

const fn setup_fault(error: &SetupError) -> Fault {
    match error {
        SetupError::NoCredentials { .. } => Fault::Denied,
        SetupError::NoRegion(_) | SetupError::Endpoint(_) => Fault::Wrong,
    }
}
