//! What a user reads for each mistake in partitions, ports and channels written in TOML.

use std::path::Path;

use busway_system::{Route, System, Way, WhenFull};

/// Three hosts: `a` and `b` joined by memory and TCP, `c` by nothing. Lines 1 to 8.
const HOSTS: &str = r#"[host.a]
[host.b]
[host.c]
[[link]]
hosts = ["a", "b"]
buses = ["memory", "tcp"]
memory = { path = "/dev/shm/x" }
tcp.a = { listen = "192.0.2.1:7400" }
"#;

/// A source and a destination that fit; lines 9 to 16.
const PORTS: &str = r#"[[partition]]
name = "p"
host = "a"
ports = [{ name = "OUT", kind = "sampling", direction = "source", max_size = 64 }]
[[partition]]
name = "q"
host = "b"
ports = [{ name = "IN", kind = "sampling", direction = "destination", max_size = 64, refresh_period = "20ms" }]
"#;

fn said(text: &str) -> Vec<String> {
    let found = match System::parse(text, Path::new("s.toml")) {
        Ok(system) => system.warnings,
        Err(error) => error.diagnostics().to_vec(),
    };
    let lines = found
        .iter()
        .map(|it| it.to_string().lines().next().unwrap_or_default().to_string());
    // The host `c` is there to have no link.
    lines
        .filter(|line| !line.contains("no link joins this host"))
        .collect()
}

/// Partitions and channels that begin on line 9.
#[track_caller]
fn module(text: &str, expected: &[&str]) {
    let text = format!("{HOSTS}{text}");
    assert_eq!(said(&text), expected, "\nin:\n{text}");
}

/// A channel that begins on line 17, between the ports that fit.
#[track_caller]
fn channel(text: &str, expected: &[&str]) {
    module(&format!("{PORTS}[[channel]]\n{text}"), expected);
}

/// One port on line 12, of a partition; that it is in no channel is left out.
#[track_caller]
fn port(table: &str, expected: &[&str]) {
    let text = format!("{HOSTS}[[partition]]\nname = \"p\"\nhost = \"a\"\nports = [{{ {table} }}]\n");
    let mut lines = said(&text);
    lines.retain(|line| !line.contains("no channel joins"));
    assert_eq!(lines, expected, "\nin:\n{text}");
}

#[test]
fn a_right_module_has_nothing_to_say() {
    channel("source = \"p/OUT\"\ndestinations = [\"q/IN\"]\n", &[]);
}

#[test]
fn a_port_needs_kind_direction_size_and_what_belongs_to_its_kind() {
    port(
        "name = \"P\"",
        &[
            "s.toml:12:10: partition[0].ports[0]: `kind` is missing; add kind = \"sampling\"",
            "s.toml:12:10: partition[0].ports[0]: `direction` is missing; add direction = \"source\"",
            "s.toml:12:10: partition[0].ports[0]: `max_size` is missing; add max_size = 64",
        ],
    );
    port(
        "name = \"P\", kind = \"sampling\", direction = \"destination\", max_size = 8",
        &["s.toml:12:10: partition[0].ports[0]: `refresh_period` is missing; add refresh_period = \"20ms\""],
    );
    port(
        "name = \"P\", kind = \"queuing\", direction = \"source\", max_size = 8",
        &["s.toml:12:10: partition[0].ports[0]: `max_messages` is missing; add max_messages = 16"],
    );
    port(
        "name = \"P\", kind = \"queueing\", direction = \"src\", max_size = 8",
        &[
            "s.toml:12:31: partition[0].ports[0].kind: \"queueing\" is unknown; write \"queuing\"",
            "s.toml:12:55: partition[0].ports[0].direction: \"src\" is unknown; write `source` or `destination`",
        ],
    );
}

#[test]
fn numbers_of_a_port_are_kept_in_their_range() {
    port(
        "name = \"P\", kind = \"queuing\", direction = \"source\", max_size = 0, max_messages = 0",
        &[
            "s.toml:12:75: partition[0].ports[0].max_size: 0 is out of range; write 1 to 2147483647 bytes, such as 64 or \"4KiB\"",
            "s.toml:12:93: partition[0].ports[0].max_messages: 0 is out of range; write a whole number from 1 to 1048576",
        ],
    );
    port(
        "name = \"P\", kind = \"sampling\", direction = \"source\", max_size = \"4KB\", min_write_interval = 3",
        &[
            "s.toml:12:76: partition[0].ports[0].max_size: `4KB` has the unknown unit `KB`; use KiB, MiB or GiB, as in \"64MiB\"",
            "s.toml:12:104: partition[0].ports[0].min_write_interval: 3 is not a duration; write for example \"20ms\" or \"2s\"",
        ],
    );
    port(
        "name = \"P\", kind = \"sampling\", direction = \"destination\", max_size = 4, refresh_period = \"0s\"",
        &[
            "s.toml:12:101: partition[0].ports[0].refresh_period: \"0s\" is out of range; write for example \"20ms\" or \"2s\"",
        ],
    );
}

#[test]
fn keys_of_the_other_kind_or_direction_are_refused() {
    port(
        "name = \"P\", kind = \"queuing\", direction = \"source\", max_size = 8, max_messages = 1, refresh_period = \"1s\"",
        &[
            "s.toml:12:96: partition[0].ports[0].refresh_period: `refresh_period` belongs to a sampling port; remove `refresh_period`",
        ],
    );
    port(
        "name = \"P\", kind = \"sampling\", direction = \"destination\", max_size = 8, refresh_period = \"1s\", min_write_interval = \"1s\", discipline = \"fifo\"",
        &[
            "s.toml:12:107: partition[0].ports[0].min_write_interval: `min_write_interval` belongs to the source port, which is written; \
             remove `min_write_interval`",
            "s.toml:12:134: partition[0].ports[0].discipline: `discipline` belongs to a queuing port; remove `discipline`",
        ],
    );
}

#[test]
fn names_are_those_of_arinc_653_and_stand_once() {
    module(
        "[[partition]]\nname = \"a/b\"\nhost = \"a\"\n[[partition]]\nname = \"123456789012345678901234567890123\"\nhost = \"a\"\n",
        &[
            "s.toml:10:8: partition[0].name: the name \"a/b\" has a `/`, which parts partition and port; write 1 to 32 bytes, as ARINC 653 has it",
            "s.toml:13:8: partition[1].name: the name \"123456789012345678901234567890123\" has 33 bytes; write 1 to 32 bytes, as ARINC 653 has it",
        ],
    );
    module(
        "[[partition]]\nname = \"p\"\nhost = \"a\"\n[[partition]]\nname = \"p\"\nhost = \"b\"\n",
        &["s.toml:13:8: partition[1].name: there is a partition \"p\" already; rename one of the two"],
    );
    let q = "kind = \"queuing\", direction = \"source\", max_size = 8, max_messages = 1";
    module(
        &format!(
            "[[partition]]\nname = \"p\"\nhost = \"a\"\nports = [\n{{ name = \"X\", {q} }},\n{{ name = \"X\", {q} }}]\n"
        ),
        &[
            "s.toml:13:10: warning: partition[0].ports[0].name: no channel joins the port p/X; name it in a channel, or remove it",
            "s.toml:14:10: partition[0].ports[1].name: there is a port of p \"X\" already; rename one of the two",
            "s.toml:14:10: warning: partition[0].ports[1].name: no channel joins the port p/X; name it in a channel, or remove it",
        ],
    );
}

#[test]
fn a_partition_runs_on_a_known_host() {
    module(
        "[[partition]]\nname = \"p\"\n",
        &[
            "s.toml:10:8: partition[0].name: it is not said on which host partition \"p\" runs; give it a host: `a`, `b` or `c`",
        ],
    );
    module(
        "[[partition]]\nname = \"p\"\nhost = \"d\"\nhots = 3\n",
        &[
            "s.toml:11:8: partition[0].host: there is no host \"d\"; write `a`, `b` or `c`",
            "s.toml:12:1: partition[0].hots: unknown key `hots`; write `host`",
        ],
    );
}

#[test]
fn partitions_with_one_identifier_are_a_warning() {
    module(
        "[[partition]]\nname = \"p\"\nhost = \"a\"\nid = 7\n[[partition]]\nname = \"q\"\nhost = \"a\"\nid = 7\n",
        &[
            "s.toml:14:8: warning: partition[1].name: partition \"q\" has the identifier 7, and so has \"p\"; \
             give each partition an identifier of its own: its programs are told this one",
        ],
    );
}

#[test]
fn an_end_of_a_channel_names_a_port() {
    channel(
        "source = \"P/OUT\"\ndestinations = [\"q/IM\", \"q\"]\n",
        &[
            "s.toml:12:19: warning: partition[0].ports[0].name: no channel joins the port p/OUT; name it in a channel, or remove it",
            "s.toml:16:19: warning: partition[1].ports[0].name: no channel joins the port q/IN; name it in a channel, or remove it",
            "s.toml:18:10: channel[0].source: there is no partition \"P\"; name a partition of this module",
            "s.toml:19:17: channel[0].destinations[0]: partition \"q\" has no port \"IM\"; write \"IN\"",
            "s.toml:19:25: channel[0].destinations[1]: \"q\" names no port; write \"PARTITION/PORT\", such as \"navigation/ATTITUDE\"",
        ],
    );
}

#[test]
fn a_channel_has_one_source_and_at_least_one_destination() {
    channel(
        "source = [\"p/OUT\", \"p/OUT\"]\ndestinations = [\"q/IN\"]\n",
        &[
            "s.toml:12:19: warning: partition[0].ports[0].name: no channel joins the port p/OUT; name it in a channel, or remove it",
            "s.toml:18:10: channel[0].source: a channel has one source; write source = \"PARTITION/PORT\", and a channel for each source",
        ],
    );
    channel(
        "source = \"p/OUT\"\ndestinations = []\n",
        &[
            "s.toml:16:19: warning: partition[1].ports[0].name: no channel joins the port q/IN; name it in a channel, or remove it",
            "s.toml:17:1: channel[0]: the channel has no destination; name at least one destination port",
        ],
    );
}

#[test]
fn directions_are_kept() {
    channel(
        "source = \"q/IN\"\ndestinations = [\"p/OUT\"]\n",
        &[
            "s.toml:18:10: channel[0].source: q/IN is a destination port; name a source port here, or change the port's direction",
            "s.toml:19:17: channel[0].destinations[0]: p/OUT is a source port; name a destination port here, or change the port's direction",
        ],
    );
}

#[test]
fn a_port_is_in_one_channel() {
    channel(
        "source = \"p/OUT\"\ndestinations = [\"q/IN\", \"q/IN\"]\n[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\n",
        &[
            "s.toml:19:25: channel[0].destinations[1]: q/IN stands here twice; name each port once",
            "s.toml:21:10: channel[1].source: p/OUT is in channel[0] already; add these destinations to channel[0]",
            "s.toml:22:17: channel[1].destinations[0]: q/IN is in channel[0] already; give the partition a port for each channel",
        ],
    );
}

#[test]
fn the_ports_of_a_channel_are_of_one_kind_and_size() {
    let two = |size: u32, rest: &str| {
        format!(
            "[[partition]]\nname = \"p\"\nhost = \"a\"\nports = [\n{{ name = \"OUT\", kind = \"sampling\", direction = \"source\", max_size = 64 }},\n\
             {{ name = \"IN\", direction = \"destination\", max_size = {size}, {rest} }}]\n\
             [[channel]]\nsource = \"p/OUT\"\ndestinations = [\"p/IN\"]\n"
        )
    };
    module(
        &two(64, "kind = \"queuing\", max_messages = 1"),
        &[
            "s.toml:17:17: channel[0].destinations[0]: p/IN is a queuing port, its source p/OUT a sampling port; join ports of one kind",
        ],
    );
    module(
        &two(32, "kind = \"sampling\", refresh_period = \"1s\""),
        &[
            "s.toml:17:17: channel[0].destinations[0]: p/IN takes 32 bytes, its source p/OUT writes up to 64; \
             give all ports of a channel the same maximum size",
        ],
    );
}

#[test]
fn the_hosts_of_a_channel_are_linked_by_the_wanted_bus() {
    channel(
        "source = \"p/OUT\"\ndestinations = [\"q/IN\"]\nbus = \"tpc\"\n",
        &["s.toml:20:7: channel[0].bus: no link between \"a\" and \"b\" has the bus \"tpc\"; write \"tcp\""],
    );
    channel(
        "source = \"p/OUT\"\ndestinations = [\"q/IN\"]\nbus = \"rdma-write\"\n",
        &[
            "s.toml:20:7: channel[0].bus: no link between \"a\" and \"b\" has the bus \"rdma-write\"; \
             write `memory` or `tcp`, or add \"rdma-write\" to the link",
        ],
    );
    let on_c = PORTS.replace("host = \"b\"", "host = \"c\"");
    module(
        &format!("{on_c}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\n"),
        &[
            "s.toml:19:17: channel[0].destinations[0]: p/OUT runs on host \"a\" and q/IN on host \"c\", and no link joins the two; \
             add a [[link]] with hosts = [\"a\", \"c\"]",
        ],
    );
    let on_a = PORTS.replace("host = \"b\"", "host = \"a\"");
    module(
        &format!("{on_a}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\nbus = \"tcp\"\n"),
        &[
            "s.toml:20:7: warning: channel[0].bus: the channel stays inside host \"a\": no bus carries it; remove \"tcp\"",
        ],
    );
}

#[test]
fn slots_are_for_sampling_channels_and_at_least_3() {
    channel(
        "source = \"p/OUT\"\ndestinations = [\"q/IN\"]\nslots = 2\n",
        &["s.toml:20:9: channel[0].slots: 2 is out of range; write a whole number from 3 to 4096"],
    );
    let queuing = PORTS
        .replace("kind = \"sampling\"", "kind = \"queuing\", max_messages = 4")
        .replace(", refresh_period = \"20ms\"", "");
    module(
        &format!("{queuing}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\nslots = 5\n"),
        &[
            "s.toml:20:9: channel[0].slots: 5 slots for a queuing channel; remove the number: the ports' own queues say how many messages wait",
        ],
    );
}

#[test]
fn a_port_that_is_wrong_makes_no_follow_up_errors() {
    let wrong = PORTS.replace("max_size = 64 }", "max_size = -1 }");
    module(
        &format!("{wrong}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\n"),
        &[
            "s.toml:12:78: partition[0].ports[0].max_size: -1 is no size; write 1 to 2147483647 bytes, such as 64 or \"4KiB\"",
        ],
    );
}

#[test]
fn a_module_names_a_file_that_can_be_read() {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no-module.toml");
    std::fs::write(&file, "[host.a]\n[module]\nxml = \"nonexistent.xml\"\n").expect("written");
    let error = System::load(&file)
        .expect_err("there is no such file")
        .to_string();
    assert!(error.contains(":3:7: module.xml: "), "{error}");
    assert!(
        error.contains("nonexistent.xml can't be read: No such file"),
        "{error}"
    );
}

/// A queuing source and destination that fit, on the hosts `a` and `b`; lines 9 to 16.
const QUEUES: &str = r#"[[partition]]
name = "p"
host = "a"
ports = [{ name = "OUT", kind = "queuing", direction = "source", max_size = 64, max_messages = 4 }]
[[partition]]
name = "q"
host = "b"
ports = [{ name = "IN", kind = "queuing", direction = "destination", max_size = 64, max_messages = 4 }]
"#;

#[test]
fn a_full_queue_has_one_of_two_meanings_and_a_sampling_channel_none() {
    module(
        &format!(
            "{QUEUES}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\nwhen_full = \"drop\"\n"
        ),
        &["s.toml:20:13: channel[0].when_full: \"drop\" is unknown; write `wait` or `overflow`"],
    );
    channel(
        "source = \"p/OUT\"\ndestinations = [\"q/IN\"]\nwhen_full = \"wait\"\n",
        &[
            "s.toml:20:13: channel[0].when_full: a sampling channel is never full; remove the word: a newer message replaces an older one",
        ],
    );
}

#[test]
fn a_full_queue_means_what_the_file_says_else_what_suits_the_number_of_destinations() {
    let meaning = |more: &str| {
        let text =
            format!("{HOSTS}{QUEUES}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\n{more}");
        let system = System::parse(&text, Path::new("s.toml")).expect("right");
        system.channels[0].when_full
    };
    assert_eq!(meaning(""), Some(WhenFull::Wait));
    assert_eq!(meaning("when_full = \"wait\"\n"), Some(WhenFull::Wait));
    assert_eq!(meaning("when_full = \"overflow\"\n"), Some(WhenFull::Overflow));
}

#[test]
fn a_channel_runs_on_the_lane_that_it_names() {
    let lanes = "[[lane]]\nname = \"other\"\nservices = [\"x\"]\n[[lane]]\nname = \"loop\"\n";
    let text = |lane: &str| {
        format!(
            "{HOSTS}{QUEUES}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\nlane = {lane:?}\n{lanes}"
        )
    };
    let system = System::parse(&text("loop"), Path::new("s.toml")).expect("right");
    assert_eq!(system.lanes[system.channels[0].lane].name, "loop");
    assert!(!system.warnings.iter().any(|it| it.to_string().contains("loop")));
    let lines = said(&text("lop"));
    assert_eq!(
        lines,
        [
            "s.toml:20:8: channel[0].lane: there is no lane \"lop\"; write \"loop\"",
            "s.toml:25:8: warning: lane[1].name: no service runs on the lane \"loop\"; add services = [..] to it, or lane = \"loop\" to a \
             [[service]] or a [[channel]]",
        ]
    );
}

#[test]
fn a_channel_names_the_order_of_its_buses_or_the_only_one() {
    let ends = "source = \"p/OUT\"\ndestinations = [\"q/IN\"]\n";
    channel(
        &format!("{ends}buses = [\"tcp\", \"tcp\", \"mem\"]\n"),
        &[
            "s.toml:20:17: channel[0].buses[1]: \"tcp\" is named twice; name each bus once, the best first",
            "s.toml:20:24: channel[0].buses[2]: there is no bus \"mem\"; write `memory`, `pci`, `tcp`, `tipc`, `udp`, `rdma-send` or `rdma-write`",
        ],
    );
    channel(
        &format!("{ends}buses = [\"tcp\", \"rdma-send\"]\n"),
        &[
            "s.toml:20:17: channel[0].buses: no link between \"a\" and \"b\" has the bus \"rdma-send\"; \
             write `memory` or `tcp`, or add \"rdma-send\" to the link",
        ],
    );
    channel(
        &format!("{ends}bus = \"tcp\"\nbuses = [\"memory\"]\n"),
        &[
            "s.toml:21:9: channel[0].buses: stands beside `bus`, which names the only one; remove one of the two",
        ],
    );
    channel(
        &format!("{ends}buses = []\n"),
        &["s.toml:20:9: channel[0].buses: there is no bus; write buses = [\"tcp\"]"],
    );
}

#[test]
fn a_channel_that_the_gateways_move_has_the_other_buses_to_fall_back_on() {
    let hops = |more: &str| {
        let text =
            format!("{HOSTS}{PORTS}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\n{more}");
        let system = System::parse(&text, Path::new("s.toml")).unwrap_or_else(|error| panic!("{error}"));
        let route = system.routes_of(&system.channels[0]).remove(0);
        let Way::Link { bus, .. } = route.way else {
            panic!("{route:?}")
        };
        let others = route.fallbacks.iter().map(|hop| hop.bus);
        std::iter::once(bus).chain(others).collect::<Vec<_>>()
    };
    assert_eq!(hops("buses = [\"tcp\", \"memory\"]"), ["tcp", "memory"]);
    assert_eq!(hops("buses = [\"tcp\"]"), ["tcp"]);
    assert_eq!(hops("bus = \"tcp\""), ["tcp"]);
    // The partition writes the other host's memory itself, and knows no other way.
    assert_eq!(hops(""), ["memory"]);
}

#[test]
fn buses_behind_one_that_the_source_s_own_process_writes_are_never_used() {
    let ends = "source = \"p/OUT\"\ndestinations = [\"q/IN\"]\n";
    channel(
        &format!("{ends}buses = [\"memory\", \"tcp\"]\n"),
        &[
            "s.toml:20:20: warning: channel[0].buses: \"p/OUT\" never takes `tcp`: over \"memory\" the source's own process writes into the \
             other host's memory, and moves to no other bus; name \"tcp\" first for fail-over, or name \"memory\" alone if that is meant",
        ],
    );
    // Meant so, moved by the gateways, or left to the link, of which `busway check` says it without
    // a warning.
    for more in ["bus = \"memory\"\n", "buses = [\"tcp\", \"memory\"]\n", ""] {
        channel(&format!("{ends}{more}"), &[]);
    }
    let unused = |more: &str| {
        let text = format!("{HOSTS}{PORTS}[[channel]]\n{ends}{more}");
        let system = System::parse(&text, Path::new("s.toml")).unwrap_or_else(|error| panic!("{error}"));
        system.routes_of(&system.channels[0]).remove(0).unused
    };
    assert_eq!(unused(""), ["tcp"]);
    assert!(unused("bus = \"memory\"").is_empty() && unused("buses = [\"tcp\", \"memory\"]").is_empty());
    // Queues are always moved by the gateways.
    module(
        &format!("{QUEUES}[[channel]]\n{ends}buses = [\"memory\", \"tcp\"]\n"),
        &[],
    );
}

#[test]
fn what_is_as_long_as_the_link_says_takes_its_other_order() {
    let with = |large: &str, max_size: u32, channel: &str| {
        let hosts = format!("{HOSTS}large = {{ from = \"1KiB\", buses = [{large}] }}\n");
        let ports = QUEUES.replace("max_size = 64", &format!("max_size = {max_size}"));
        let text =
            format!("{hosts}{ports}[[channel]]\nsource = \"p/OUT\"\ndestinations = [\"q/IN\"]\n{channel}");
        let system = System::parse(&text, Path::new("s.toml")).unwrap_or_else(|error| panic!("{error}"));
        match system.routes_of(&system.channels[0]).remove(0) {
            Route {
                way: Way::Link { bus, .. },
                fallbacks,
                ..
            } => (bus, fallbacks[0].bus),
            other => panic!("{other:?}"),
        }
    };
    let bus = |max_size, channel| with("\"tcp\", \"memory\"", max_size, channel);
    assert_eq!(bus(1023, ""), ("memory", "tcp"));
    assert_eq!(bus(1024, ""), ("tcp", "memory"));
    assert_eq!(bus(1024, "buses = [\"memory\", \"tcp\"]"), ("memory", "tcp"));
    // What the other order leaves out is still there to fall back on.
    assert_eq!(with("\"tcp\"", 1024, ""), ("tcp", "memory"));
}
