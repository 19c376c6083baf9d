//! What a user reads for each mistake: place, key, value, what is wrong and what would be right.

use std::path::Path;

use busway_system::{Severity, System};

/// Two hosts and a link that are right, on lines 1 to 6; what a test adds begins on line 7.
const RIGHT: &str = r#"[host.vision]
[host.control]
[[link]]
hosts = ["vision", "control"]
buses = ["tcp"]
tcp.vision = { listen = "192.0.2.1:7400" }
"#;

/// The first line of everything that is said about a file, warnings included.
fn said(text: &str) -> Vec<String> {
    let found = match System::parse(text, Path::new("s.toml")) {
        Ok(system) => system.warnings,
        Err(error) => error.diagnostics().to_vec(),
    };
    found
        .iter()
        .map(|it| it.to_string().lines().next().unwrap_or_default().to_string())
        .collect()
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    assert_eq!(said(text), expected, "\nin:\n{text}");
}

#[track_caller]
fn adding(text: &str, expected: &[&str]) {
    says(&format!("{RIGHT}{text}"), expected);
}

/// What is said of the host `a`, whose table is `text`; the rest of the file is right.
#[track_caller]
fn host_a(text: &str, expected: &[&str]) {
    let rest = "[host.b]\n[[link]]\nhosts = [\"a\", \"b\"]\nbuses = [\"tcp\"]\ntcp.a = { listen = \"192.0.2.1:7400\" }\n";
    says(&format!("{text}{rest}"), expected);
}

#[test]
fn a_right_file_has_nothing_to_say() {
    adding("", &[]);
}

#[test]
fn the_source_line_stands_below_with_a_caret() {
    let error = System::parse(
        &format!("\t[gateway]\n\tdenny = 3 # ü\n{RIGHT}"),
        Path::new("s.toml"),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "s.toml:2:2: gateway.denny: unknown key `denny`; write `deny`\n2 | \tdenny = 3 # ü\n  | \t^^^^^"
    );
}

#[test]
fn columns_count_characters_and_not_bytes() {
    host_a(
        "[host.a]\nstatus = \"ü\"\nx = {\"ä\" = 1}\n",
        &[
            "s.toml:3:1: host.a.x: unknown key `x`; known here: `iceoryx2`, `status`, `ports`, `gateway` or `major_frame`",
        ],
    );
    host_a(
        "[host.a]\niceoryx2 = { prefix = \"ü\", root = \"/x\" }\n",
        &[
            "s.toml:2:23: host.a.iceoryx2.prefix: \"ü\" can't begin a file name of iceoryx2; use 1 to 64 letters, \
             digits, `-`, `_` and `.`, such as \"iox2_\"",
            "s.toml:2:28: host.a.iceoryx2.root: unknown key `root`; known here: `config`, `root_path` or `prefix`",
        ],
    );
}

#[test]
fn broken_toml_is_named_with_its_place() {
    let text = format!("{RIGHT}[gateway\n");
    let lines = said(&text);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("s.toml:7:9: "), "{lines:?}");
    assert!(
        lines[0].ends_with("; mend the TOML syntax (https://toml.io)"),
        "{lines:?}"
    );
}

#[test]
fn a_key_that_stands_twice_is_an_error() {
    adding(
        "[host.vision]\n",
        &["s.toml:7:7: duplicate key; mend the TOML syntax (https://toml.io)"],
    );
}

#[test]
fn an_unreadable_file_is_named_with_the_reason() {
    let error = System::load(Path::new("/nonexistent/s.toml")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nonexistent/s.toml: cannot read the system file: No such file or directory (os error 2); \
         give the path of a TOML or ARINC 653 XML file that this user may read"
    );
}

#[test]
fn unknown_tables_get_the_nearest_name() {
    adding(
        "[[servce]]\n",
        &["s.toml:7:3: servce: unknown key `servce`; write `service`"],
    );
    adding(
        "[bridge]\n",
        &[
            "s.toml:7:2: bridge: unknown key `bridge`; known here: `host`, `link`, `gateway`, `service`, `lane`, `module`, `partition` or `channel`",
        ],
    );
}

#[test]
fn a_host_is_not_called_like_a_key_of_a_bus() {
    says(
        "[host.listen]\n[host.b]\n[[link]]\nhosts = [\"listen\", \"b\"]\nbuses = [\"tcp\"]\ntcp.b = { listen = \"192.0.2.1:7400\" }\n",
        &[
            "s.toml:1:7: host.listen: \"listen\" is a key of the bus \"tcp\": `tcp.listen` could be a host's table or that key; \
             give the host another name",
        ],
    );
}

#[test]
fn a_link_says_how_its_hosts_compare_times() {
    adding(
        "clock = \"gps\"\n",
        &["s.toml:7:9: link[0].clock: \"gps\" is unknown; write `estimated` or `ptp`"],
    );
}

#[test]
fn hosts_are_named_tables() {
    says(
        "",
        &["s.toml:1:1: host: there is no host; add [host.NAME] for each of your computers"],
    );
    says(
        "[[host]]\nname = \"a\"\n",
        &["s.toml:1:1: host: a list is not a table of hosts; write [host.NAME], with one bracket"],
    );
    says(
        "[host]\nstatus = \"x\"\n",
        &["s.toml:2:1: host.status: unknown key `status`; known here: `NAME`"],
    );
}

#[test]
fn what_stands_in_a_host_is_checked() {
    host_a(
        "[host.a]\nstatus = \"\"\niceoryx2 = { config = 3, root = \"/x\", prefix = \"a/b\" }\n",
        &[
            "s.toml:2:10: host.a.status: is empty; write for example \"/run/busway/status.json\"",
            "s.toml:3:23: host.a.iceoryx2.config: 3 is not a text; write \"iceoryx2.toml\"",
            "s.toml:3:26: host.a.iceoryx2.root: unknown key `root`; known here: `config`, `root_path` or `prefix`",
            "s.toml:3:48: host.a.iceoryx2.prefix: \"a/b\" can't begin a file name of iceoryx2; use 1 to 64 letters, \
             digits, `-`, `_` and `.`, such as \"iox2_\"",
        ],
    );
}

#[test]
fn a_host_that_nothing_joins_is_a_warning() {
    adding(
        "[host.spare]\n",
        &[
            "s.toml:7:7: warning: host.spare: no link joins this host to another; \
         add a [[link]] with \"spare\" in its hosts, or remove the host",
        ],
    );
}

#[test]
fn a_link_names_two_known_hosts() {
    adding(
        "[[link]]\nhosts = [\"vision\", \"contrl\"]\nbuses = [\"tcp\"]\n",
        &[
            "s.toml:8:20: link[1].hosts[1]: there is no host \"contrl\"; write \"control\", or add [host.contrl]",
        ],
    );
    adding(
        "[[link]]\nhosts = [\"vision\", \"vision\"]\nbuses = [\"tcp\"]\n",
        &["s.toml:8:20: link[1].hosts: \"vision\" is linked to itself; name two different hosts"],
    );
    adding(
        "[[link]]\nhosts = [\"vision\"]\nbuses = [\"tcp\"]\n",
        &[
            "s.toml:8:9: link[1].hosts: a link joins two hosts, not 1; write hosts = [\"a\", \"b\"], and one [[link]] for each pair",
        ],
    );
    adding(
        "[[link]]\nhosts = \"vision\"\nbuses = [\"tcp\"]\n",
        &["s.toml:8:9: link[1].hosts: \"vision\" is not a list of texts; write hosts = [\"a\", \"b\"]"],
    );
    adding(
        "[[link]]\n",
        &[
            "s.toml:7:1: link[1]: `hosts` is missing; add hosts = [\"a\", \"b\"]",
            "s.toml:7:1: link[1]: `buses` is missing; add buses = [\"tcp\"]",
        ],
    );
    says(
        "[host.a]\n[link]\n",
        &["s.toml:2:1: link: a table is not a list of tables; write [[link]], with two brackets"],
    );
}

#[test]
fn a_link_names_known_buses_once() {
    let link = "[[link]]\nhosts = [\"vision\", \"control\"]\n";
    adding(
        &format!("{link}buses = [\"memry\", \"zenoh\", \"can\"]\n"),
        &[
            "s.toml:9:10: link[1].buses[0]: there is no bus \"memry\"; write \"memory\"",
            "s.toml:9:19: link[1].buses[1]: the bus \"zenoh\" is not built yet; use `memory`, `pci`, `tcp`, `tipc`, `udp`, `rdma-send` or `rdma-write` for now",
            "s.toml:9:28: link[1].buses[2]: there is no bus \"can\"; write `memory`, `pci`, `tcp`, `tipc`, `udp`, `rdma-send` or `rdma-write`",
        ],
    );
    adding(
        &format!("{link}buses = []\n"),
        &["s.toml:9:9: link[1].buses: there is no bus; write buses = [\"tcp\"]"],
    );
    adding(
        &format!("{link}buses = [\"tcp\", \"tcp\"]\ntcp.vision = {{ listen = \"192.0.2.1:7401\" }}\n"),
        &["s.toml:9:17: link[1].buses[1]: \"tcp\" is named twice; name each bus once, the best first"],
    );
}

#[test]
fn the_other_order_of_a_link_names_a_length_and_buses_of_the_link() {
    adding(
        "large = { from = \"64KiB\" }\n",
        &["s.toml:7:9: link[0].large: `buses` is missing; add buses = [\"tcp\"]"],
    );
    adding(
        "large = { from = \"lots\", buses = [\"memory\"], above = 1 }\n",
        &[
            "s.toml:7:18: link[0].large.from: `lots` has the unknown unit `lots`; use KiB, MiB or GiB, as in \"64MiB\"",
            "s.toml:7:35: link[0].large.buses: the link has no bus \"memory\"; add \"memory\" to the link's `buses` and give it a table, or remove it here",
            "s.toml:7:46: link[0].large.above: unknown key `above`; known here: `from` or `buses`",
        ],
    );
}

#[test]
fn each_mistake_of_the_other_order_is_told_with_its_place_and_mend() {
    let range = "write 1 to 4294967295 bytes, such as 64 or \"4KiB\"";
    for (large, expected) in [
        ("from = 0, buses = [\"tcp\"]", format!("7:18: link[0].large.from: 0 is out of range; {range}")),
        ("from = \"4GiB\", buses = [\"tcp\"]", format!("7:18: link[0].large.from: \"4GiB\" is out of range; {range}")),
        ("from = -1, buses = [\"tcp\"]", format!("7:18: link[0].large.from: -1 is no size; {range}")),
        ("from = true, buses = [\"tcp\"]", format!("7:18: link[0].large.from: true is not a size; {range}")),
        (
            "from = 64, buses = []",
            "7:30: link[0].large.buses: there is no bus; write buses = [\"tcp\"]".into(),
        ),
        (
            "from = 64, buses = [\"tcp\", \"tcp\"]",
            "7:38: link[0].large.buses[1]: \"tcp\" is named twice; name each bus once, the best first".into(),
        ),
        (
            "from = 64, buses = [\"tcp\", \"udp\"]",
            "7:38: link[0].large.buses: the link has no bus \"udp\"; add \"udp\" to the link's `buses` and give it a table, or remove it here".into(),
        ),
        (
            "from = 64, buses = \"tcp\"",
            "7:30: link[0].large.buses: \"tcp\" is not a list of texts; write buses = [\"tcp\"]".into(),
        ),
    ] {
        // A link with two buses, whose other one is the first: else a warning would stand beside
        // the error.
        let text = RIGHT.replace("[\"tcp\"]", "[\"tipc\", \"tcp\"]");
        says(&format!("{text}large = {{ {large} }}\n"), &[&format!("s.toml:{expected}")]);
    }
}

#[test]
fn an_other_order_without_effect_is_a_warning() {
    let mend = "name a bus first that the link does not have first, or remove `large`";
    adding(
        "large = { from = \"64KiB\", buses = [\"tcp\"] }\n",
        &[&format!(
            "s.toml:7:9: warning: link[0].large: no effect: \"tcp\" is the link's only bus; {mend}"
        )],
    );
    let two = RIGHT.replace("[\"tcp\"]", "[\"tipc\", \"tcp\"]");
    for (buses, is_same) in [
        ("\"tipc\", \"tcp\"", true),
        ("\"tipc\"", true),
        ("\"tcp\"", false),
        ("\"tcp\", \"tipc\"", false),
    ] {
        let warning =
            format!("s.toml:7:9: warning: link[0].large: no effect: it is the link's own order; {mend}");
        let expected: &[&str] = if is_same { &[&warning] } else { &[] };
        says(
            &format!("{two}large = {{ from = 1, buses = [{buses}] }}\n"),
            expected,
        );
    }
}

#[test]
fn a_link_has_no_other_keys() {
    adding(
        "memory = { path = \"/dev/shm/x\" }\ntpc = 3\n",
        &[
            "s.toml:7:1: warning: link[0].memory: the table is not used: `buses` does not name \"memory\"; \
         add \"memory\" to `buses`, or remove the table",
            "s.toml:8:1: link[0].tpc: unknown key `tpc`; write `tcp`",
        ],
    );
}

#[test]
fn the_gateway_takes_lists_of_patterns() {
    adding(
        "[gateway]\nallow = []\ndeny = [1, \"\", \"x\"]\nalow = 1\n",
        &[
            "s.toml:8:9: warning: gateway.allow: nothing is allowed: no service will cross; write for example [\"*\"]",
            "s.toml:9:9: gateway.deny[0]: 1 is not a text; write [\"camera/*\"]",
            "s.toml:9:12: gateway.deny[1]: is empty; write [\"camera/*\"]",
            "s.toml:10:1: gateway.alow: unknown key `alow`; write `allow`",
        ],
    );
    adding(
        "[gateway]\ndeny = \"x\"\n",
        &["s.toml:8:8: gateway.deny: \"x\" is not a list of texts; write [\"camera/*\"]"],
    );
}

#[test]
fn a_rule_needs_a_name_and_known_words() {
    adding(
        "[[service]]\nkeep = \"lastest\"\npolicy = \"drop\"\n",
        &[
            "s.toml:7:1: service[0]: `name` is missing; add name = \"camera/*\"",
            "s.toml:8:8: service[0].keep: \"lastest\" is unknown; write \"latest\"",
            "s.toml:9:10: service[0].policy: \"drop\" is unknown; write `block`, `drop-oldest` or `drop-newest`",
        ],
    );
}

#[test]
fn depth_and_policy_belong_to_keep_all() {
    adding(
        "[[service]]\nname = \"a\"\nkeep = \"latest\"\ndepth = 3\n[[service]]\nname = \"b\"\npolicy = \"block\"\n",
        &[
            "s.toml:10:9: service[0].depth: `depth` has no meaning with keep = \"latest\"; write keep = \"all\", or remove `depth`",
            "s.toml:13:10: service[1].policy: `policy` has no meaning without `keep`; write keep = \"all\", or remove `policy`",
        ],
    );
}

#[test]
fn numbers_are_kept_in_their_range() {
    adding(
        "[[service]]\nname = \"a\"\nkeep = \"all\"\ndepth = 0\n",
        &["s.toml:10:9: service[0].depth: 0 is out of range; write a whole number from 1 to 1048576"],
    );
    adding(
        "[[lane]]\nname = \"l\"\nservices = [\"*\"]\ncpu = -1\npriority = 0xff\nlock_memory = 1\n",
        &[
            "s.toml:10:7: lane[0].cpu: -1 is out of range; write a whole number from 0 to 1023",
            "s.toml:11:12: lane[0].priority: 0xff is out of range; write a whole number from 1 to 99",
            "s.toml:12:15: lane[0].lock_memory: 1 is not a truth value; write true or false",
        ],
    );
    adding(
        "[[lane]]\nname = \"default\"\ncpu = 99999999999999999999\npriority = \"high\"\n",
        &[
            "s.toml:9:7: lane[0].cpu: 99999999999999999999 is out of range; write a whole number from 0 to 1023",
            "s.toml:10:12: lane[0].priority: \"high\" is not a whole number; write a whole number from 1 to 99",
        ],
    );
}

#[test]
fn a_rule_that_is_never_reached_is_a_warning() {
    adding(
        "[[service]]\nname = \"*\"\n[[service]]\nname = \"camera/*\"\n",
        &[
            "s.toml:10:8: warning: service[1].name: never used: the rule for \"*\" above takes these services; \
         put this rule before it, or remove it",
        ],
    );
}

#[test]
fn a_service_takes_buses_that_some_link_has() {
    adding(
        "[[service]]\nname = \"a\"\nbuses = [\"tcp\", \"tipc\"]\n",
        &[
            "s.toml:9:17: service[0].buses: no link has the bus \"tipc\"; write \"tcp\", or add \"tipc\" to a link",
        ],
    );
}

#[test]
fn a_rule_whose_buses_are_those_of_other_hosts_is_a_warning_for_each_pair_of_hosts() {
    let links = "[host.logger]\n[[link]]\nhosts = [\"control\", \"logger\"]\nbuses = [\"tipc\"]\n\
                 [[link]]\nhosts = [\"logger\", \"vision\"]\nbuses = [\"udp\"]\nudp.vision = { listen = \"192.0.2.1:7402\" }\nudp.logger = { address = \"192.0.2.3\" }\n";
    let rule = |buses: &str| format!("{links}[[service]]\nname = \"camera/*\"\nbuses = [{buses}]\n");
    let warning = |one: &str, other: &str, theirs: &str, named: &str| {
        format!(
            "s.toml:18:9: warning: service[0].buses: \"camera/*\" does not cross between {one:?} and {other:?}, \
             whose links have none of these buses; add `{theirs}` here, or {named} to a link between the two"
        )
    };
    adding(
        &rule("\"tipc\""),
        &[
            &warning("vision", "control", "tcp", "`tipc`"),
            &warning("logger", "vision", "udp", "`tipc`"),
        ],
    );
    adding(
        &rule("\"tipc\", \"tcp\""),
        &[&warning("logger", "vision", "udp", "`tipc` or `tcp`")],
    );
    adding(&rule("\"tipc\", \"tcp\", \"udp\""), &[]);
    // A parallel link is as good.
    let parallel = "[[link]]\nhosts = [\"control\", \"vision\"]\nbuses = [\"tipc\"]\n";
    adding(
        &format!("{}{parallel}", rule("\"tipc\"")),
        &[&warning("logger", "vision", "udp", "`tipc`")],
    );
}

#[test]
fn lanes_are_named_once_known_and_used() {
    adding(
        "[[service]]\nname = \"a\"\nlane = \"contrl\"\n[[lane]]\nname = \"control\"\n",
        &[
            "s.toml:9:8: service[0].lane: there is no lane \"contrl\"; write \"control\"",
            "s.toml:11:8: warning: lane[0].name: no service runs on the lane \"control\"; \
         add services = [..] to it, or lane = \"control\" to a [[service]] or a [[channel]]",
        ],
    );
    let twice = "[[lane]]\nname = \"l\"\nservices = [\"a\"]\n[[lane]]\nname = \"l\"\nservices = [\"b\"]\n";
    adding(
        twice,
        &["s.toml:11:8: lane[1].name: there is a lane \"l\" already; rename one of the two"],
    );
    adding(
        "[[lane]]\nname = \"default\"\nservices = [\"a\"]\nwait = \"busy\"\n",
        &[
            "s.toml:9:12: lane[0].services: the default lane takes every service that no other lane takes; remove `services`",
            "s.toml:10:8: lane[0].wait: \"busy\" is unknown; write `spin`, `adaptive` or `event`",
        ],
    );
}

#[test]
fn a_real_time_lane_that_spins_without_a_cpu_is_a_warning() {
    adding(
        "[[lane]]\nname = \"l\"\nservices = [\"a\"]\nwait = \"spin\"\npriority = 80\n",
        &[
            "s.toml:11:12: warning: lane[0].priority: a lane that spins with real-time priority keeps everything else off \
         whichever CPU it is on; give it a `cpu` of its own, or wait = \"event\"",
        ],
    );
}

#[test]
fn warnings_alone_do_not_stop_a_system() {
    let system = System::parse(&format!("{RIGHT}[host.spare]\n"), Path::new("s.toml")).unwrap();
    assert_eq!(system.warnings.len(), 1);
    assert_eq!(system.warnings[0].severity, Severity::Warning);
    assert_eq!((system.warnings[0].line, system.warnings[0].column), (7, 7));
}
