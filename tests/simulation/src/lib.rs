//! The whole cluster in one thread, driven by one seed.
