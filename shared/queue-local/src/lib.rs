//! The task queue inside one process, with real visibility timeouts.
