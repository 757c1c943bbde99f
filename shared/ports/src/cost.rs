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

    /// In dollars.
    #[expect(clippy::cast_precision_loss, reason = "a bill needs no more digits")]
    pub fn dollars(&self, prices: &Prices) -> f64 {
        (self.write_units * prices.write_usd_per_million
            + self.read_units * prices.read_usd_per_million
            + self.queue_requests as f64 * prices.queue_usd_per_million)
            / 1e6
    }
}

/// List prices of a million units or requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Write units.
    pub write_usd_per_million: f64,
    /// Read units.
    pub read_usd_per_million: f64,
    /// Requests to SQS.
    pub queue_usd_per_million: f64,
}

impl Default for Prices {
    /// On-demand list prices of us-east-1 in 2026.
    fn default() -> Self {
        Self {
            write_usd_per_million: 0.625,
            read_usd_per_million: 0.125,
            queue_usd_per_million: 0.40,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_run_now_tasks_cost_what_the_price_list_says() {
        let cost = Cost {
            write_units: 5e6,
            queue_requests: 300_000,
            ..Cost::default()
        };
        assert!((cost.dollars(&Prices::default()) - (3.125 + 0.12)).abs() < 1e-9);
    }
}
