//! Opens stores and queues by URI.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use dueline_ports::{Cost, Store, TaskQueue};
use dueline_queue_local::{LocalQueue, LocalQueueConfig};
use dueline_sinks::{DeploymentSinks, SinkOptions};
use dueline_store_sqlite::SqliteStore;

use crate::{BackendError, QueueAddress, StoreAddress};

/// An opened store.
pub struct OpenedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The durability of acknowledged writes, as displayed to users.
    pub durability: &'static str,
    adapter: StoreAdapter,
}

enum StoreAdapter {
    Sqlite(Arc<SqliteStore>),
    #[cfg(feature = "aws")]
    DynamoDb(Arc<dueline_store_dynamodb::DynamoStore>),
}

impl OpenedStore {
    /// Resolves with the reason when the store has failed permanently and the process should end. A store over the
    /// network never does.
    pub fn broken(&self) -> Pin<Box<dyn Future<Output = Arc<str>> + Send>> {
        match &self.adapter {
            StoreAdapter::Sqlite(sqlite) => {
                let sqlite = sqlite.clone();
                Box::pin(async move { sqlite.broken().await })
            }
            #[cfg(feature = "aws")]
            StoreAdapter::DynamoDb(_) => Box::pin(std::future::pending()),
        }
    }

    /// Why writes are refused at present. A store over the network refuses each call by itself.
    pub fn refuses_writes(&self) -> Option<Arc<str>> {
        match &self.adapter {
            StoreAdapter::Sqlite(sqlite) => sqlite.refuses_writes(),
            #[cfg(feature = "aws")]
            StoreAdapter::DynamoDb(_) => None,
        }
    }

    /// The size of the store on this machine's disk.
    pub fn bytes_on_disk(&self) -> u64 {
        match &self.adapter {
            StoreAdapter::Sqlite(sqlite) => sqlite.bytes_on_disk(),
            #[cfg(feature = "aws")]
            StoreAdapter::DynamoDb(_) => 0,
        }
    }

    /// Whether other processes may use the same store and every write is billed.
    pub const fn is_shared(&self) -> bool {
        match &self.adapter {
            StoreAdapter::Sqlite(_) => false,
            #[cfg(feature = "aws")]
            StoreAdapter::DynamoDb(_) => true,
        }
    }

    /// The costs of the store that this process has caused; zero for a store that is not billed.
    pub fn cost(&self) -> Cost {
        match &self.adapter {
            StoreAdapter::Sqlite(_) => Cost::default(),
            #[cfg(feature = "aws")]
            StoreAdapter::DynamoDb(store) => store.meter().total(),
        }
    }

    /// The latest changes of the connection, oldest first: up or down, and how long ago. Empty for a store without a
    /// connection.
    pub fn connection(&self) -> Vec<(bool, Duration)> {
        match &self.adapter {
            StoreAdapter::Sqlite(_) => Vec::new(),
            #[cfg(feature = "aws")]
            StoreAdapter::DynamoDb(store) => store.connection().changes(),
        }
    }
}

/// An opened queue.
pub struct OpenedQueue {
    /// The queue.
    pub queue: Arc<dyn TaskQueue>,
    adapter: QueueAdapter,
}

enum QueueAdapter {
    Local,
    #[cfg(feature = "aws")]
    Sqs(dueline_aws::Meter),
}

impl OpenedQueue {
    /// Whether other processes may send to and receive from the same queues.
    pub const fn is_shared(&self) -> bool {
        match &self.adapter {
            QueueAdapter::Local => false,
            #[cfg(feature = "aws")]
            QueueAdapter::Sqs(_) => true,
        }
    }

    /// The costs of the queue that this process has caused; zero for a queue that is not billed.
    pub fn cost(&self) -> Cost {
        match &self.adapter {
            QueueAdapter::Local => Cost::default(),
            #[cfg(feature = "aws")]
            QueueAdapter::Sqs(meter) => meter.total(),
        }
    }
}

/// Opens a store by its URI, see [`StoreAddress::parse`].
pub async fn open_store(uri: &str) -> Result<OpenedStore, BackendError> {
    match StoreAddress::parse(uri)? {
        StoreAddress::Sqlite(options) => {
            let sqlite = Arc::new(SqliteStore::open(options).map_err(BackendError::Sqlite)?);
            Ok(OpenedStore {
                durability: sqlite.durability().name(),
                store: sqlite.clone(),
                adapter: StoreAdapter::Sqlite(sqlite),
            })
        }
        #[cfg(feature = "aws")]
        StoreAddress::DynamoDb(options) => {
            let meter = dueline_aws::Meter::default();
            // Boxed, because the SDK's futures would make the futures of all callers large.
            let opening = dueline_store_dynamodb::DynamoStore::open(options, meter);
            let store = Box::pin(opening).await;
            let store = Arc::new(store.map_err(BackendError::DynamoDb)?);
            Ok(OpenedStore {
                durability: "replicated",
                store: store.clone(),
                adapter: StoreAdapter::DynamoDb(store),
            })
        }
    }
}

/// Opens a queue by its URI, see [`QueueAddress::parse`].
pub async fn open_queue(uri: &str) -> Result<OpenedQueue, BackendError> {
    match QueueAddress::parse(uri)? {
        QueueAddress::Local => Ok(OpenedQueue {
            queue: LocalQueue::new(LocalQueueConfig::default()),
            adapter: QueueAdapter::Local,
        }),
        #[cfg(feature = "aws")]
        QueueAddress::Sqs(options) => {
            let meter = dueline_aws::Meter::default();
            let opening = dueline_queue_sqs::SqsQueue::open(options, meter.clone());
            let queue = Box::pin(opening).await;
            Ok(OpenedQueue {
                queue: queue.map_err(BackendError::Sqs)?,
                adapter: QueueAdapter::Sqs(meter),
            })
        }
    }
}

/// Opens the sinks of a deployment. Queues of SQS are sinks where the deployment's own queues are on SQS.
pub async fn open_sinks(
    options: SinkOptions,
    queue_uri: &str,
    queue: &OpenedQueue,
) -> Result<DeploymentSinks, BackendError> {
    let sinks = DeploymentSinks::new(options);
    match (QueueAddress::parse(queue_uri)?, &queue.adapter) {
        #[cfg(feature = "aws")]
        (QueueAddress::Sqs(options), QueueAdapter::Sqs(meter)) => {
            let service = dueline_aws::Service::Sqs;
            let config = Box::pin(dueline_aws::connect(service, &options.aws)).await;
            let config = config.map_err(|error| BackendError::Sqs(error.into()))?;
            let client = aws_sdk_sqs::Client::new(&config);
            let sqs = dueline_sinks::SqsSinks::new(client, meter.clone(), options.prefix);
            Ok(sinks.with_sqs(sqs))
        }
        _ => Ok(sinks),
    }
}
