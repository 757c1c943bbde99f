//! The consumer of Dueline.
