//! The status-controller of Dueline.
