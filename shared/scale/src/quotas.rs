//! AWS's quotas.

use serde::{Deserialize, Serialize};

/// Quotas of an account; the default is AWS's default of 2026, before any raise on request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// Write units a second of one table on demand; may be raised on request.
    pub table_wru: f64,
    /// Read units a second of one table on demand; may be raised on request.
    pub table_rru: f64,
    /// Write units a second of one index on demand, apart from its table's.
    pub index_wru: f64,
    /// Read units a second of one index on demand, apart from its table's.
    pub index_rru: f64,
    /// Write units a second of one partition. AWS does not raise this quota, so no key may take more.
    pub key_wru: f64,
    /// Write units a second that a new table on demand takes at once; warm throughput raises it beforehand.
    pub warm_wru: f64,
    /// Messages of one standard queue that were received and not deleted yet.
    pub queue_in_flight: f64,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            table_wru: 40_000.0,
            table_rru: 40_000.0,
            index_wru: 40_000.0,
            index_rru: 40_000.0,
            key_wru: 1_000.0,
            warm_wru: 4_000.0,
            queue_in_flight: 120_000.0,
        }
    }
}
