//! Hosts without a gateway, real-time cores: where their channels lie, and what a user reads for
//! each mistake.

use std::path::Path;

use busway_system::{Carrier, System, Way};

/// A Linux host, a core, and one queue each way.
fn text(link: &str, core_ports: &str, channels: &str) -> String {
    format!(
        r#"[host.linux]
[host.other]
[host.core]
gateway = false
[[link]]
hosts = ["linux", "core"]
{link}
[[link]]
hosts = ["linux", "other"]
buses = ["tcp"]
tcp.linux = {{ listen = "192.0.2.1:7400" }}
[[link]]
hosts = ["other", "core"]
buses = ["memory"]
memory = {{ path = "/dev/shm/other" }}
clock = "ptp"
[[partition]]
name = "p"
host = "linux"
ports = [
  {{ name = "OUT", kind = "queuing", direction = "source", max_size = 64, max_messages = 100 }},
  {{ name = "IN", kind = "queuing", direction = "destination", max_size = 64, max_messages = 100 }},
]
[[partition]]
name = "q"
host = "other"
ports = [{{ name = "IN", kind = "queuing", direction = "destination", max_size = 64, max_messages = 8 }}]
[[partition]]
name = "c"
host = "core"
ports = [
{core_ports}
]
{channels}
"#
    )
}

const LINK: &str = r#"buses = ["memory"]
memory = { path = "/dev/shm/x", length = "256KiB" }
clock = "ptp""#;

const PORTS: &str = r#"
  { name = "IN", kind = "queuing", direction = "destination", max_size = 64, max_messages = 10 },
  { name = "OUT", kind = "queuing", direction = "source", max_size = 64, max_messages = 20 },
"#;

const CHANNELS: &str = r#"
[[channel]]
name = "there"
source = "p/OUT"
destinations = ["c/IN"]
[[channel]]
name = "back"
source = "c/OUT"
destinations = ["p/IN"]
"#;

fn parse(text: &str) -> System {
    System::parse(text, Path::new("s.toml")).unwrap_or_else(|error| panic!("{error}\nin:\n{text}"))
}

/// What is said of `text`; what it says of idle ports is left out.
fn said(text: &str) -> String {
    match System::parse(text, Path::new("s.toml")) {
        Ok(system) => system.warnings.iter().map(ToString::to_string).collect(),
        Err(error) => error.diagnostics().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn each_end_of_a_cores_queue_has_a_part_in_the_memory_that_its_host_writes() {
    let system = parse(&text(LINK, PORTS, CHANNELS));
    let linux = system.port_area(0, "memory", "linux").queues;
    let core = system.port_area(0, "memory", "core").queues;
    assert_eq!((linux.len(), core.len()), (2, 2));
    for (one, other) in linux.iter().zip(&core) {
        assert_eq!((one.channel, one.layout), (other.channel, other.layout));
    }
    // The core's own ports say how many messages the rings hold: 10 and 20, rounded up.
    assert_eq!(linux[0].layout.lines(), 16);
    assert_eq!(linux[1].layout.lines(), 32);
    // A line and the ring; a line and the credits.
    assert_eq!(linux[0].len_bytes, 64 + linux[0].layout.required_bytes());
    assert_eq!(linux[1].len_bytes, 128);
    assert_eq!((core[0].len_bytes, core[0].offset_bytes), (128, 0));
    assert_eq!(core[1].offset_bytes, 128);
    assert!(system.port_area(0, "memory", "other").queues.is_empty());
}

#[test]
fn a_queue_of_a_core_goes_by_one_gateway_and_any_other_by_two() {
    let system = parse(&text(
        LINK,
        PORTS,
        &CHANNELS.replace("[\"c/IN\"]", "[\"c/IN\", \"q/IN\"]"),
    ));
    let carriers: Vec<Carrier> = system
        .routes_of(&system.channels[0])
        .iter()
        .map(|route| match route.way {
            Way::Link { carrier, .. } => carrier,
            Way::InsideHost => panic!("they are on three hosts"),
        })
        .collect();
    assert_eq!(carriers, [Carrier::Core, Carrier::Gateways]);
}

#[test]
fn a_core_that_is_joined_by_another_bus_is_an_error() {
    let link = r#"buses = ["memory", "tcp"]
memory = { path = "/dev/shm/x" }
tcp.linux = { listen = "192.0.2.1:7401" }
clock = "ptp""#;
    let said = said(&text(link, PORTS, CHANNELS));
    assert!(
        said.contains("no gateway runs on \"core\", so nothing can go there over tcp"),
        "{said}"
    );
    assert!(said.contains("with the bus \"memory\" alone"), "{said}");
}

#[test]
fn a_core_whose_clock_nobody_compares_is_a_warning() {
    let said = said(&text(&LINK.replace("clock = \"ptp\"", ""), PORTS, CHANNELS));
    assert!(said.contains("nobody estimates the clock of \"core\""), "{said}");
}

#[test]
fn a_queue_for_which_the_window_has_no_room_is_an_error() {
    let ports = PORTS.replace("max_messages = 20", "max_messages = 2000");
    let said = said(&text(LINK, &ports, CHANNELS));
    assert!(said.contains("has no room for \"back\""), "{said}");
    assert!(said.contains("a longer window"), "{said}");
}

#[test]
fn a_core_that_would_have_to_write_a_message_twice_is_an_error() {
    let channels = CHANNELS.replace("[\"p/IN\"]", "[\"p/IN\", \"q/IN\"]");
    let said = said(&text(LINK, PORTS, &channels));
    assert!(said.contains("leaves \"core\" for several hosts"), "{said}");
}

#[test]
fn two_readers_of_one_ring_and_a_channel_inside_a_core_are_errors() {
    let more = r#"  { name = "IN2", kind = "queuing", direction = "destination", max_size = 64, max_messages = 10 },"#;
    let ports = format!("{PORTS}{more}");
    let both = said(&text(
        LINK,
        &ports,
        &CHANNELS.replace("[\"c/IN\"]", "[\"c/IN\", \"c/IN2\"]"),
    ));
    assert!(
        both.contains("two queuing ports on \"core\" receive \"there\""),
        "{both}"
    );
    let inside = said(&text(
        LINK,
        &ports,
        &CHANNELS.replace("[\"p/IN\"]", "[\"c/IN2\"]"),
    ));
    assert!(
        inside.contains("both ends of \"back\" are on \"core\""),
        "{inside}"
    );
}

#[test]
fn whether_a_gateway_runs_is_true_or_false() {
    let said = said("[host.a]\ngateway = \"no\"\n");
    assert!(
        said.contains("host.a.gateway") && said.contains("true or false"),
        "{said}"
    );
}
