//! A write request: a verb of the writer with its arguments, and the reply that follows the commit.
//!
//! The writer keeps requests as boxed trait objects, so a new verb is a method of [`Writer`] and its call in
//! `store.rs`.

use std::sync::Arc;

use dueline_ports::StoreError;
use tokio::sync::oneshot;

use super::Writer;
use crate::error::TransactionFailure;

/// A request, whichever verb it has.
pub(super) trait WriteRequest: Send {
    /// How many items the request adds to a transaction.
    fn items(&self) -> usize;

    /// Executes the verb in the open transaction and keeps its results. The error ends the transaction.
    fn execute(&mut self, writer: &mut Writer) -> rusqlite::Result<()>;

    /// Sends the results, after the commit.
    fn succeed(self: Box<Self>);

    /// Answers that nothing of the request was written, whether or not it was executed.
    fn fail(self: Box<Self>, failure: &TransactionFailure);
}

/// The results of a batch, in the order of its items.
pub(super) type BatchResults<T> = Vec<Result<T, StoreError>>;

/// The error of an item.
pub(crate) enum ItemError {
    /// Concerns only this item.
    Item(StoreError),
    /// Ends the transaction.
    Transaction(rusqlite::Error),
}

impl From<rusqlite::Error> for ItemError {
    fn from(error: rusqlite::Error) -> Self {
        match error {
            // An unreadable row concerns only its own task.
            error @ rusqlite::Error::FromSqlConversionFailure(..) => {
                Self::Item(StoreError::Corrupt(Arc::from(error.to_string())))
            }
            error => Self::Transaction(error),
        }
    }
}

impl From<StoreError> for ItemError {
    fn from(error: StoreError) -> Self {
        Self::Item(error)
    }
}

/// Separates the result of an item from an error that ends the transaction.
fn settle<T>(result: Result<T, ItemError>) -> rusqlite::Result<Result<T, StoreError>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(ItemError::Item(error)) => Ok(Err(error)),
        Err(ItemError::Transaction(error)) => Err(error),
    }
}

/// A request of one item.
struct SingleWrite<T, F> {
    /// `None` once executed.
    verb: Option<F>,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

/// A request of one item, and the receiver of its result.
pub(super) fn single<T, F>(
    verb: F,
) -> (
    Box<dyn WriteRequest>,
    oneshot::Receiver<Result<T, StoreError>>,
)
where
    T: Send + 'static,
    F: FnOnce(&mut Writer) -> Result<T, ItemError> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let request = SingleWrite {
        verb: Some(verb),
        result: None,
        reply,
    };
    (Box::new(request), answer)
}

impl<T, F> WriteRequest for SingleWrite<T, F>
where
    T: Send,
    F: FnOnce(&mut Writer) -> Result<T, ItemError> + Send,
{
    fn items(&self) -> usize {
        1
    }

    fn execute(&mut self, writer: &mut Writer) -> rusqlite::Result<()> {
        if let Some(verb) = self.verb.take() {
            self.result = Some(settle(verb(writer))?);
        }
        Ok(())
    }

    fn succeed(self: Box<Self>) {
        // The send fails when the caller was cancelled.
        if let Some(result) = self.result {
            drop(self.reply.send(result));
        }
    }

    fn fail(self: Box<Self>, failure: &TransactionFailure) {
        drop(self.reply.send(Err(failure.to_store())));
    }
}

/// A request of many items, each independent of the others until an error ends the transaction.
struct BatchWrite<I, T, F> {
    count: usize,
    /// Empty once executed.
    items: Vec<I>,
    verb: F,
    results: BatchResults<T>,
    reply: oneshot::Sender<BatchResults<T>>,
}

/// A request of many items, and the receiver of their results.
pub(super) fn batch<I, T, F>(
    items: Vec<I>,
    verb: F,
) -> (Box<dyn WriteRequest>, oneshot::Receiver<BatchResults<T>>)
where
    I: Send + 'static,
    T: Send + 'static,
    F: FnMut(&mut Writer, I) -> Result<T, ItemError> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    let request = BatchWrite {
        count: items.len(),
        items,
        verb,
        results: Vec::new(),
        reply,
    };
    (Box::new(request), answer)
}

impl<I, T, F> WriteRequest for BatchWrite<I, T, F>
where
    I: Send,
    T: Send,
    F: FnMut(&mut Writer, I) -> Result<T, ItemError> + Send,
{
    fn items(&self) -> usize {
        self.count
    }

    fn execute(&mut self, writer: &mut Writer) -> rusqlite::Result<()> {
        self.results.reserve_exact(self.count);
        for item in std::mem::take(&mut self.items) {
            self.results.push(settle((self.verb)(writer, item))?);
        }
        Ok(())
    }

    fn succeed(self: Box<Self>) {
        // The send fails when the caller was cancelled.
        drop(self.reply.send(self.results));
    }

    fn fail(self: Box<Self>, failure: &TransactionFailure) {
        let results = (0..self.count).map(|_| Err(failure.to_store()));
        drop(self.reply.send(results.collect()));
    }
}
