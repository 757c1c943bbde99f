//! The controller of Dueline.
