//! The billed cost of store and queue calls.

/// Billed requests and units of DynamoDB and SQS.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Requests to DynamoDB.
    pub store_requests: u64,
    /// Write units of DynamoDB, of table and index together. Writes whose condition failed are included.
    pub write_units: f64,
    /// The part of `write_units` that the index consumed.
    pub index_write_units: f64,
    /// Read units of DynamoDB.
    pub read_units: f64,
    /// Requests to SQS, as billed: one for each started 64 KiB of a call.
    pub queue_requests: u64,
}

impl Cost {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            store_requests: self.store_requests + other.store_requests,
            write_units: self.write_units + other.write_units,
            index_write_units: self.index_write_units + other.index_write_units,
            read_units: self.read_units + other.read_units,
            queue_requests: self.queue_requests + other.queue_requests,
        }
    }

    /// The difference from `earlier` to this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            store_requests: self.store_requests.saturating_sub(earlier.store_requests),
            write_units: (self.write_units - earlier.write_units).max(0.0),
            index_write_units: (self.index_write_units - earlier.index_write_units).max(0.0),
            read_units: (self.read_units - earlier.read_units).max(0.0),
            queue_requests: self.queue_requests.saturating_sub(earlier.queue_requests),
        }
    }
}
