//! The guard: rules of this repository that no compiler checks.
//!
//! Each test names the places that break its rule, and the fix. Where the tree still breaks a rule,
//! `allowed.toml` has the count of each crate. A count must not grow; lower it when it falls.

mod modules;
mod sources;

use std::collections::BTreeMap;
use std::fs;

use sources::Source;

const WIDEST: usize = 100;
const LONGEST: usize = 600;
/// Type names that say nothing about the type, and the fix.
const RIDDLES: [(&str, &str); 12] = [
    ("Company", "MulticastGroup"),
    ("Ear", "EventListener"),
    ("Inlet", "SamplePublisher"),
    ("Outlet", "SampleSubscriber"),
    ("Parting", "CloseReason"),
    ("Patience", "BackpressureTimer"),
    ("Place", "what it locates: Landing, Offset, WindowRegion"),
    ("Say", "ControlMessage"),
    ("Spout", "PortReceiver"),
    ("Tap", "PortSource"),
    ("Voice", "EventNotifier"),
    ("Ways", "Routes"),
];

/// Fails where a crate breaks `rule` more often than `allowed.toml` says.
fn hold(rule: &str, fix: &str, places: &[(String, String)]) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guard/allowed.toml");
    let text = fs::read_to_string(path).expect("allowed.toml is beside this file");
    let allowed: BTreeMap<String, BTreeMap<String, usize>> =
        toml::from_str(&text).expect("allowed.toml has tables of counts");
    let mut counts = allowed.get(rule).cloned().unwrap_or_default();
    for count in counts.values_mut() {
        *count = 0;
    }
    for (package, _) in places {
        *counts.entry(package.clone()).or_default() += 1;
    }
    let mut broken = String::new();
    for (package, count) in counts {
        let limit = allowed.get(rule).and_then(|it| it.get(&package)).copied();
        let limit = limit.unwrap_or_default();
        if count > limit {
            broken += &format!("{package}: {count}, at most {limit} allowed\n");
            for (_, place) in places.iter().filter(|it| it.0 == package) {
                broken += &format!("  {place}\n");
            }
        } else if count < limit {
            println!("lower {rule} of {package} in {path} from {limit} to {count}");
        }
    }
    assert!(broken.is_empty(), "{rule}: {fix}\n{broken}");
}

fn places(find: impl Fn(&Source) -> Vec<String>) -> Vec<(String, String)> {
    let sources = sources::all();
    assert!(sources.len() > 300, "the guard found the sources");
    let in_one = |source: &Source| {
        let found = find(source).into_iter();
        let package = source.package.clone();
        found
            .map(move |place| (package.clone(), place))
            .collect::<Vec<_>>()
    };
    sources.iter().flat_map(in_one).collect()
}

#[test]
fn comments_are_at_most_100_columns_wide() {
    let wide = |source: &Source| {
        let lines = source.text.lines().enumerate();
        lines
            .filter(|(_, line)| line.trim_start().starts_with("//"))
            .filter(|(_, line)| line.chars().count() > WIDEST)
            .map(|(index, _)| format!("{}:{}", source.path, index + 1))
            .collect()
    };
    hold("wide_comments", "wrap the comment, or cut it", &places(wide));
}

#[test]
fn files_have_at_most_600_lines() {
    let long = |source: &Source| {
        let lines = source.text.lines().count();
        let is_long = lines > LONGEST && !source.is_generated();
        is_long
            .then(|| format!("{}: {lines} lines", source.path))
            .into_iter()
            .collect()
    };
    hold("long_files", "split the file by its parts", &places(long));
}

#[test]
fn type_names_say_what_the_type_is() {
    let riddles = |source: &Source| {
        let names = source.type_names().into_iter();
        let riddle = |name: String| {
            let (_, better) = RIDDLES.iter().find(|(riddle, _)| *riddle == name)?;
            Some(format!("{}: {name}, better {better}", source.path))
        };
        names.filter_map(riddle).collect()
    };
    hold("riddles", "rename the type", &places(riddles));
}

#[test]
fn contract_of_a_bus_imports_no_bus() {
    let imports = modules::imports_of_buses();
    let fix = "move what both need below the buses, or into the contract";
    hold("contract_imports", fix, &imports);
}

#[test]
fn circles_of_modules_are_named_in_architecture_md() {
    let path = sources::root().join("ARCHITECTURE.md");
    let architecture = fs::read_to_string(path).expect("ARCHITECTURE.md exists");
    let named: Vec<&str> = architecture.split('`').collect();
    let mut unnamed = Vec::new();
    for package in ["busway-gateway", "busway-bench", "busway-transport"] {
        for circle in modules::circles(package) {
            // What is left of a circle that is named needs no name of its own.
            let is_named = named.iter().any(|it| {
                let members = it.strip_prefix(package).and_then(|it| it.strip_prefix(": "));
                let members: Vec<&str> = members.unwrap_or_default().split(", ").collect();
                circle.iter().all(|one| members.contains(&one.as_str()))
            });
            if !is_named {
                let place = format!("`{package}: {}`", circle.join(", "));
                unnamed.push((format!("crates/{package}"), place));
            }
        }
    }
    let fix = "break the circle, or name it under \"Circles that stay\" in ARCHITECTURE.md, with its reason";
    hold("circles", fix, &unnamed);
}
