//! Filled in with the measurements of the ports.
fn main() {}
