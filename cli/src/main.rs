//! The `uu` command.
fn main() {}
