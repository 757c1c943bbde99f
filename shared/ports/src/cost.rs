//! What calls of a store or queue cost where they are billed.

/// Requests and units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Requests to DynamoDB.
    pub store_requests: u64,
    /// Write units of DynamoDB, table and index together; failed conditions included.
    pub write_units: f64,
    /// Those of them that the index took.
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

    /// What was added since `earlier`.
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
