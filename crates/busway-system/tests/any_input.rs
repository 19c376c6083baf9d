//! Whatever stands in the file, the answer is a system or a list of what is wrong, never a panic.

use std::path::Path;

use busway_system::System;
use proptest::prelude::*;

const EXAMPLES: [&str; 8] = [
    include_str!("../../../examples/two-hosts-memory.toml"),
    include_str!("../../../examples/two-hosts-tcp.toml"),
    include_str!("../../../examples/triangle.toml"),
    include_str!("../../../examples/two-buses.toml"),
    include_str!("../../../examples/ports.toml"),
    include_str!("../../../examples/core.toml"),
    include_str!("../../../examples/arinc653.toml"),
    include_str!("../../../examples/arinc653.xml"),
];

/// Pieces that mean something here, to get past the syntax.
const PIECES: [&str; 49] = [
    "[host.a]\n",
    "gateway = false\n",
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
    "[[partition.port]]\n",
    "name = \"p\"\nhost = \"a\"\n",
    "name = \"OUT\"\nkind = \"sampling\"\ndirection = \"source\"\nmax_size = 64\n",
    "name = \"IN\"\nkind = \"sampling\"\ndirection = \"destination\"\nmax_size = 64\nrefresh_period = \"1s\"\n",
    "name = \"Q\"\nkind = \"queuing\"\ndirection = \"source\"\nmax_size = 0\nmax_messages = 0\n",
    "ports = [{ name = \"IN\" }, 3]\n",
    "id = -1\n",
    "[[channel]]\n",
    "source = \"p/OUT\"\ndestinations = [\"p/IN\"]\n",
    "source = [\"p/OUT\"]\n",
    "destinations = [\"p\", \"/\", \"q/IN\"]\n",
    "bus = \"tcp\"\n",
    "slots = 2\n",
    "min_write_interval = \"99999999999999y\"\n",
    "refresh_period = \"0s\"\n",
    "[module]\n",
    "xml = \"module.xml\"\n",
    "clock = \"ptp\"\n",
];

/// The same for XML.
const XML_PIECES: [&str; 30] = [
    "<ARINC_653_Module>",
    "</ARINC_653_Module>",
    "<chpok-configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\">",
    "</chpok-configuration>",
    "<Partitions>",
    "</Partitions>",
    "<xi:include href=\"P1/config.xml\"/>",
    "<Partition PartitionIdentifier=\"1\" PartitionName=\"a\">",
    "<Partition>",
    "</Partition>",
    "<Definition Identifier=\"0x1\" Name=\"b\"/>",
    "<ARINC653_Ports>",
    "</ARINC653_Ports>",
    "<Sampling_Port Name=\"S\" MaxMessageSize=\"64\" Direction=\"SOURCE\" RefreshRateSeconds=\"1e-400\"/>",
    "<Sampling_Port Name=\"D\" MaxMessageSize=\"K\" Direction=\"DESTINATION\" RefreshRateSeconds=\"NaN\"/>",
    "<Queueing_Port Name=\"Q\" MaxMessageSize=\"4K\" Direction=\"DESTINATION\" MaxNbMessage=\"10\"/>",
    "<Connection_Table>",
    "</Connection_Table>",
    "<Channel ChannelIdentifier=\"99999999999\">",
    "<Channel>",
    "</Channel>",
    "<Source>",
    "</Source>",
    "<Destination>",
    "</Destination>",
    "<Standard_Partition PartitionIdentifier=\"1\" PortName=\"S\"/>",
    "<Standard_Partition PartitionName=\"b\" PortName=\"D\"/>",
    "<Pseudo_Partition/>",
    "<!DOCTYPE x [<!ENTITY y \"z\">]>",
    "&y;",
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
    fn any_order_of_known_xml_pieces_is_judged(at in prop::collection::vec(0..XML_PIECES.len(), 0..20)) {
        judge(&format!("<{}", at.iter().map(|&at| XML_PIECES[at]).collect::<String>().trim_start_matches('<')))?;
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
