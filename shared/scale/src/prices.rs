//! AWS's prices of units and requests.

use serde::{Deserialize, Serialize};

/// List prices in US dollars; the default is us-east-1, on demand, of 2026. Compare them with your own bill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// A million DynamoDB write request units, on demand (half of what it was before November 2024).
    pub million_wru: f64,
    /// A million DynamoDB read request units, on demand.
    pub million_rru: f64,
    /// A million SQS requests, standard queues, up to 100 thousand million a month. The cheaper tiers above, and the
    /// free first million of a month, are left out.
    pub million_sqs_requests: f64,
    /// A gigabyte in a DynamoDB table for a month, standard class.
    pub gb_month: f64,
    /// A gigabyte of continuous backup (point in time recovery) for a month.
    pub backup_gb_month: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            million_wru: 0.625,
            million_rru: 0.125,
            million_sqs_requests: 0.40,
            gb_month: 0.25,
            backup_gb_month: 0.20,
        }
    }
}

impl Prices {
    /// What units and requests cost.
    pub fn usd(&self, wru: f64, rru: f64, sqs_requests: f64) -> f64 {
        (wru * self.million_wru + rru * self.million_rru + sqs_requests * self.million_sqs_requests)
            / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_tasks_that_run_at_once_cost_list_prices() {
        let usd = Prices::default().usd(5e6, 0.0, 300_000.0);
        assert!((usd - (3.125 + 0.12)).abs() < 1e-9);
    }
}
