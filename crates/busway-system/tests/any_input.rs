//! Whatever stands in the file, the answer is a system or a list of what is wrong, never a panic.

use std::path::Path;

use busway_system::System;
use proptest::prelude::*;

const EXAMPLES: [&str; 3] = [
    include_str!("../../../examples/two-hosts-memory.toml"),
    include_str!("../../../examples/two-hosts-tcp.toml"),
    include_str!("../../../examples/triangle.toml"),
];

/// Pieces that mean something here, to get past the syntax.
const PIECES: [&str; 30] = [
    "[host.a]\n",
    "[host.b]\n",
    "[host]\n",
    "[[host]]\n",
    "[[link]]\n",
    "[link]\n",
    "hosts = [\"a\", \"b\"]\n",
    "hosts = [1, \"a\"]\n",
    "buses = [\"tcp\", \"memory\"]\n",
    "buses = 1979-05-27\n",
    "tcp.a = { listen = \"x\" }\n",
    "tcp = 3\n",
    "memory = { path = \"/x\", length = \"1EiB\", offset = -1 }\n",
    "memory.a.read = { path = 1 }\n",
    "[[service]]\n",
    "name = \"*\"\n",
    "name = \"\"\n",
    "keep = \"all\"\n",
    "depth = 99999999999999999999\n",
    "policy = \"block\"\n",
    "lane = \"ü\"\n",
    "[[lane]]\n",
    "name = \"default\"\n",
    "wait = \"spin\"\n",
    "cpu = 0x7\n",
    "priority = 1.5\n",
    "lock_memory = {}\n",
    "[gateway]\n",
    "allow = [[[]]]\n",
    "[[partition]]\n",
];

/// Every message must be printable and lie within the file.
fn judge(text: &str) -> Result<(), TestCaseError> {
    let Err(error) = System::parse(text, Path::new("s.toml")) else {
        return Ok(());
    };
    prop_assert!(!error.diagnostics().is_empty());
    for diagnostic in error.diagnostics() {
        prop_assert!(
            diagnostic.line >= 1 && diagnostic.line <= text.matches('\n').count() + 1,
            "{diagnostic:?}"
        );
        prop_assert!(
            diagnostic.column >= 1 && diagnostic.column <= text.chars().count() + 1,
            "{diagnostic:?}"
        );
        prop_assert!(
            !diagnostic.mend.is_empty() && !diagnostic.problem.is_empty(),
            "{diagnostic:?}"
        );
    }
    prop_assert!(!error.to_string().is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_judged(text in any::<String>()) {
        judge(&text)?;
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        judge(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn any_order_of_known_pieces_is_judged(at in prop::collection::vec(0..PIECES.len(), 0..20)) {
        judge(&at.iter().map(|&at| PIECES[at]).collect::<String>())?;
    }

    #[test]
    fn a_damaged_example_is_judged(
        which in 0..EXAMPLES.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<char>(), 0..3_u8), 1..6),
    ) {
        let mut text: Vec<char> = EXAMPLES[which].chars().collect();
        for (at, character, how) in damage {
            let at = at.index(text.len());
            match how {
                0 => text[at] = character,
                1 => text.insert(at, character),
                _ => drop(text.remove(at)),
            }
        }
        judge(&text.into_iter().collect::<String>())?;
    }
}
