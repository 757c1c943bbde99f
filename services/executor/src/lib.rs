//! The executor of Dueline.
