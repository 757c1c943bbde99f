//! The `dueline` command line.
fn main() {}
