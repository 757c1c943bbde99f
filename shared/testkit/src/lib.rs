//! Tools for tests: manual clock, seeded randomness, fault-injecting store and queue, history checker.
