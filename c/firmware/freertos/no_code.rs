//! See Cargo.toml: this package is nothing but its dependency.
