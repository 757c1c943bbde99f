//! Backends are selected by URI, and the error for a wrong URI names valid ones.

use dueline_backends::{BackendError, Fault, QueueAddress, StoreAddress, open_queue, open_store};

fn store_error(uri: &str) -> String {
    match StoreAddress::parse(uri) {
        Ok(_) => panic!("'{uri}' was accepted"),
        Err(error) => error.to_string(),
    }
}

fn queue_error(uri: &str) -> String {
    match QueueAddress::parse(uri) {
        Ok(_) => panic!("'{uri}' was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn f_139_unknown_schemes_and_options_are_refused_with_the_known_ones() {
    assert!(store_error("mysql://x").contains("use one of sqlite, dynamodb"));
    assert!(store_error("sqlite:x.db?colour=red").contains("durability"));
    assert!(store_error("sqlite:x.db?durability=maybe").contains("full or normal"));
    for bad in ["", "sqlite", "sqlite:", "sqlite://", ":x"] {
        assert!(store_error(bad).contains("sqlite:///path"), "{bad}");
    }
    assert!(queue_error("kafka:x").contains("use one of local, sqs"));
    for bad in ["local", "local:x"] {
        assert!(queue_error(bad).contains("write local:"), "{bad}");
    }
}

#[tokio::test]
async fn a_database_in_memory_is_refused_because_no_task_would_survive_in_it() {
    for uri in ["sqlite::memory:", "sqlite::memory:?durability=full"] {
        let refused = open_store(uri).await.map(|_| ());
        assert!(
            matches!(refused, Err(BackendError::InMemory)),
            "{uri}: {refused:?}"
        );
        assert!(!std::path::Path::new(":memory:").exists());
    }
}

#[tokio::test]
async fn f_139_a_file_is_opened_by_both_forms_of_its_uri() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    for uri in [
        format!("sqlite:{}", path.display()),
        format!("sqlite://{}?durability=normal", path.display()),
    ] {
        let opened = open_store(&uri).await.unwrap();
        assert!(opened.bytes_on_disk() > 0);
        assert!(!opened.is_shared());
        assert!(opened.connection().is_empty(), "a file has no connection");
    }
    assert!(!open_queue("local:").await.unwrap().is_shared());
}

#[tokio::test]
async fn f_141_opening_a_file_in_use_reports_it() {
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("sqlite:{}", folder.path().join("t.db").display());
    let _owner = open_store(&uri).await.unwrap();
    let refused = open_store(&uri).await.map(|_| ());
    let fault = refused.as_ref().map_err(BackendError::fault);
    assert_eq!(fault, Err(Fault::InUse), "{refused:?}");
}

#[cfg(not(feature = "aws"))]
#[test]
fn a_build_without_aws_names_the_feature_to_enable() {
    assert!(store_error("dynamodb://t").contains("feature 'aws'"));
    assert!(queue_error("sqs://p").contains("feature 'aws'"));
}

#[cfg(feature = "aws")]
mod aws {
    use std::time::Duration;

    use super::*;

    #[test]
    fn f_143_options_of_a_uri_reach_the_client() {
        let uri = "dynamodb://tasks?region=eu-west-1&endpoint=http://127.0.0.1:8000&profile=p\
                   &slots=64&timeout_ms=700&connect_timeout_ms=80";
        let StoreAddress::DynamoDb(options) = StoreAddress::parse(uri).unwrap() else {
            panic!("another store");
        };
        assert_eq!((options.table.as_str(), options.slots), ("tasks", 64));
        let aws = options.aws;
        assert_eq!(aws.region.as_deref(), Some("eu-west-1"));
        assert_eq!(aws.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
        assert_eq!(aws.profile.as_deref(), Some("p"));
        assert_eq!(aws.timeout, Duration::from_millis(700));
        assert_eq!(aws.connect_timeout, Duration::from_millis(80));

        let uri = "sqs://fleet?visibility_timeout_s=45&priority_queues=true";
        let QueueAddress::Sqs(options) = QueueAddress::parse(uri).unwrap() else {
            panic!("another queue");
        };
        assert_eq!(options.prefix, "fleet");
        assert_eq!(options.visibility_timeout, Duration::from_secs(45));
        assert!(options.priority_queues);
        // The text `false` parses as false.
        for uri in ["sqs:", "sqs://", "sqs://?priority_queues=false"] {
            let QueueAddress::Sqs(options) = QueueAddress::parse(uri).unwrap() else {
                panic!("another queue");
            };
            assert_eq!(options.prefix, "dueline", "{uri}");
            assert!(!options.priority_queues, "{uri}");
        }
    }

    #[test]
    fn f_139_invalid_options_of_aws_are_refused() {
        assert!(store_error("dynamodb:").contains("dynamodb://TABLE"));
        for (uri, why) in [
            ("dynamodb://t?slots=0", "from 1 to 256"),
            ("dynamodb://t?slots=many", "from 1 to 256"),
            ("dynamodb://t?timeout_ms=0", "milliseconds"),
            ("dynamodb://t?visibility_timeout_s=3", "region, endpoint"),
        ] {
            assert!(store_error(uri).contains(why), "{uri}");
        }
        for (uri, why) in [
            ("sqs://p?visibility_timeout_s=43201", "43200"),
            ("sqs://p?priority_queues=yes", "true or false"),
            ("sqs://p?slots=3", "visibility_timeout_s"),
        ] {
            assert!(queue_error(uri).contains(why), "{uri}");
        }
    }

    #[tokio::test]
    async fn f_141_an_invalid_endpoint_is_named_at_start() {
        let uri = "dynamodb://t?region=eu-west-1&endpoint=nonsense";
        let refused = open_store(uri).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.fault(), Fault::Wrong);
        let source = std::error::Error::source(&refused).map(ToString::to_string);
        assert!(source.unwrap_or_default().contains("'nonsense'"));
    }
}
