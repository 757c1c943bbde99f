//! Opens stores and queues by URI; the only crate that names the adapters.
