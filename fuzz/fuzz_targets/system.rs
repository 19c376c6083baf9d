//! System files: whatever bytes lie there, reading ends with a system or with messages that lie in
//! the file. TOML and XML.

#![no_main]

use std::path::Path;

use busway_system::System;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    // The extension decides where the first character does not.
    for file in ["system.toml", "module.xml"] {
        match System::parse(text, Path::new(file)) {
            Ok(system) => judge_system(&system),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                for diagnostic in error.diagnostics() {
                    assert!((1..=text.matches('\n').count() + 1).contains(&diagnostic.line));
                    assert!((1..=text.chars().count() + 1).contains(&diagnostic.column));
                }
            }
        }
    }
});

/// What the types promise of a right system.
fn judge_system(system: &System) {
    for channel in &system.channels {
        let source = system.port(channel.source);
        assert!(!channel.destinations.is_empty());
        assert_eq!(system.routes_of(channel).len(), channel.destinations.len());
        for &at in &channel.destinations {
            let destination = system.port(at);
            assert_eq!(destination.kind.name(), source.kind.name());
            assert_eq!(destination.max_size_bytes, source.max_size_bytes);
        }
    }
    for partition in &system.partitions {
        assert!(system.host(&partition.host).is_some());
    }
}
