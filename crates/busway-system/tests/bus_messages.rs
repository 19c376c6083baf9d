//! What a user reads for each mistake in the bus tables of a link, and for links that get in each
//! other's way.

use std::path::Path;

use busway_system::System;

/// The first line of everything that is said about two hosts and a link with these lines, which
/// begin on line 4.
fn said(link: &str) -> Vec<String> {
    let text = format!("[host.a]\n[host.b]\n[[link]]\n{link}");
    let found = match System::parse(&text, Path::new("s.toml")) {
        Ok(system) => system.warnings,
        Err(error) => error.diagnostics().to_vec(),
    };
    found
        .iter()
        .map(|it| it.to_string().lines().next().unwrap_or_default().to_string())
        .collect()
}

const TCP: &str = "hosts = [\"a\", \"b\"]\nbuses = [\"tcp\"]\n";
const MEMORY: &str = "hosts = [\"a\", \"b\"]\nbuses = [\"memory\"]\n";

#[track_caller]
fn tcp(lines: &str, expected: &[&str]) {
    assert_eq!(said(&format!("{TCP}{lines}")), expected, "\nin:\n{lines}");
}

#[track_caller]
fn memory(lines: &str, expected: &[&str]) {
    assert_eq!(said(&format!("{MEMORY}{lines}")), expected, "\nin:\n{lines}");
}

#[test]
fn an_address_needs_a_port() {
    tcp(
        "tcp.a = { listen = \"192.0.2.2\" }\n",
        &[
            "s.toml:6:20: link[0].tcp.a.listen: \"192.0.2.2\" is not an address with a port; write \"192.0.2.2:7400\"",
        ],
    );
    tcp(
        "tcp.a = { listen = \"pc7:7400\" }\n",
        &[
            "s.toml:6:20: link[0].tcp.a.listen: \"pc7:7400\" is not an address with a port; write \"192.0.2.1:7400\"",
        ],
    );
    tcp(
        "tcp.a = { listen = 7400 }\n",
        &["s.toml:6:20: link[0].tcp.a.listen: 7400 is not an address with a port; write \"192.0.2.1:7400\""],
    );
}

#[test]
fn every_wrong_key_of_a_table_is_named() {
    tcp(
        "tcp.a = { listne = \"192.0.2.1:7400\", heartbeat = \"soon\", timeout = 3 }\n",
        &[
            "s.toml:6:11: link[0].tcp.a.listne: unknown key `listne`; write `listen`",
            "s.toml:6:50: link[0].tcp.a.heartbeat: `soon` is no duration (expected number at 0); write for example \"200ms\" or \"2s\"",
            "s.toml:6:68: link[0].tcp.a.timeout: 3 does not fit here; write a string",
        ],
    );
}

#[test]
fn a_table_for_a_host_that_is_not_in_the_link_is_an_unknown_key() {
    tcp(
        "tcp.a = { listen = \"192.0.2.1:7400\" }\ntcp.c = { connect = \"192.0.2.1:7400\" }\n",
        &[
            "s.toml:7:5: link[0].tcp.c: unknown key `c`; known here: `listen`, `connect`, `heartbeat`, `timeout`, `send_buffer`, `a` or `b`",
        ],
    );
    tcp(
        "tcp = 3\n",
        &["s.toml:6:7: link[0].tcp: 3 is not a table; write { .. }"],
    );
    tcp(
        "tcp.a = 3\n",
        &["s.toml:6:9: link[0].tcp.a: 3 is not a table; write { .. }"],
    );
}

#[test]
fn somebody_must_listen() {
    tcp(
        "",
        &[
            "s.toml:5:10: link[0].tcp.a.listen: neither host of the link listens; give one of them `listen = \"ADDRESS:PORT\"`",
        ],
    );
    tcp(
        "tcp.a = {}\n",
        &[
            "s.toml:6:9: link[0].tcp.a.listen: neither host of the link listens; give one of them `listen = \"ADDRESS:PORT\"`",
        ],
    );
    tcp(
        "tcp.a = { listen = \"0.0.0.0:7400\" }\n",
        &[
            "s.toml:6:20: link[0].tcp.a.listen: nobody can connect to 0.0.0.0:7400; give an address and port that host \"b\" reaches, or give that host `connect = \"ADDRESS:PORT\"`",
        ],
    );
}

#[test]
fn a_timeout_must_see_two_heartbeats() {
    tcp(
        "tcp.a = { listen = \"192.0.2.1:7400\", timeout = \"300ms\" }\n",
        &[
            "s.toml:6:48: link[0].tcp.a.timeout: a peer silent for 300ms is held for lost, but host \"b\"'s heartbeat comes every 200ms; give at least 400ms",
        ],
    );
}

#[test]
fn keys_beside_the_hosts_hold_for_both() {
    tcp(
        "tcp = { timeout = \"100ms\", a = { listen = \"192.0.2.1:7400\" } }\n",
        &[
            "s.toml:6:19: link[0].tcp.timeout: a peer silent for 100ms is held for lost, but host \"b\"'s heartbeat comes every 200ms; give at least 400ms",
        ],
    );
    tcp(
        "tcp = { timeout = \"2s\", a = { listen = \"192.0.2.1:7400\" } }\n",
        &[],
    );
}

#[test]
fn a_window_needs_a_place_and_a_size() {
    memory(
        "",
        &[
            "s.toml:5:10: link[0].memory.a.path: no window is named; say `path = \"/dev/shm/NAME\"`, or name two windows by `read` and `write`",
        ],
    );
    memory(
        "memory = { path = \"/dev/shm/x\", length = \"64MB\" }\n",
        &[
            "s.toml:6:42: link[0].memory.length: `64MB` has the unknown unit `MB`; use KiB, MiB or GiB, as in \"64MiB\"",
        ],
    );
    memory(
        "memory = { path = \"/dev/shm/x\", length = 100 }\n",
        &[
            "s.toml:6:42: link[0].memory.length: a window of 0 bytes is too small; give each window at least 32 KiB",
        ],
    );
    memory(
        "memory = { path = \"/dev/shm/x\", medium = \"coherrent\" }\n",
        &["s.toml:6:42: link[0].memory.medium: \"coherrent\" is unknown; write \"coherent\""],
    );
    memory(
        "memory = { path = \"/dev/shm/x\", offset = -1 }\n",
        &["s.toml:6:42: link[0].memory.offset: -1 is negative; a size is not"],
    );
}

#[test]
fn what_stands_inside_a_window_has_its_own_place() {
    let right = "memory.b = { read = { path = \"/y\", length = \"1MiB\" }, write = { path = \"/x\", length = \"1MiB\" } }\n";
    memory(
        &format!(
            "memory.a = {{ read = {{ path = \"/x\", lenght = \"1MiB\" }}, write = {{ path = \"/y\", length = \"1MB\" }} }}\n{right}"
        ),
        &[
            "s.toml:6:36: link[0].memory.a.read.lenght: unknown key `lenght`; write `length`",
            "s.toml:6:87: link[0].memory.a.write.length: `1MB` has the unknown unit `MB`; use KiB, MiB or GiB, as in \"64MiB\"",
        ],
    );
    memory(
        &format!("memory.a = {{ read = {{ path = \"/x\" }} }}\n{right}"),
        &["s.toml:6:21: link[0].memory.a.read: `length` is missing; add `length`"],
    );
    memory(
        &format!(
            "memory.a = {{ read = {{ path = \"/x\", length = \"2MiB\" }}, write = {{ path = \"/y\", length = \"1MiB\" }} }}\n{right}"
        ),
        &[
            "s.toml:6:21: link[0].memory.a.read: host \"a\"'s read window has 2097152 bytes, host \"b\"'s write window has 1048576; give both hosts the same length: they are the two views of one window",
        ],
    );
    memory(
        &format!(
            "memory.a = {{ read = {{ path = \"/x\", length = \"1MiB\" }}, write = {{ path = \"/x\", length = \"1MiB\" }} }}\n{right}"
        ),
        &[
            "s.toml:6:63: link[0].memory.a.write: the two windows overlap in /x; move one of them by its `offset`",
        ],
    );
}

#[test]
fn two_links_can_t_use_the_same_memory() {
    memory(
        "memory = { path = \"/dev/shm/x\", length = \"64MiB\" }\n[[link]]\nhosts = [\"b\", \"a\"]\nbuses = [\"memory\"]\n\
         memory = { path = \"/dev/shm/x\", offset = \"32MiB\", length = \"64MiB\" }\n",
        &[
            "s.toml:10:1: link[1].memory: bytes 33554432 to 67108864 of /dev/shm/x overlap with bytes 33554432 to 67108864, which host \"b\" uses for link[0]; begin at `offset` 67108864 or beyond, or name another file",
        ],
    );
    memory(
        "memory = { path = \"/dev/shm/x\", length = \"64MiB\" }\n[[link]]\nhosts = [\"b\", \"a\"]\nbuses = [\"memory\"]\n\
         memory = { path = \"/dev/shm/x\", offset = \"64MiB\", length = \"64MiB\" }\n",
        &[],
    );
}

#[test]
fn parallel_links_need_addresses_of_their_own() {
    let second = "[[link]]\nhosts = [\"b\", \"a\"]\nbuses = [\"tcp\"]\n";
    tcp(
        &format!(
            "tcp.a = {{ listen = \"192.0.2.1:7400\" }}\n{second}tcp.a = {{ listen = \"192.0.2.1:7400\" }}\n"
        ),
        &[
            "s.toml:10:1: link[1].tcp: host \"a\" listens on 192.0.2.1:7400 for \"b\" in link[0] already: the two links can't be told apart; listen on another port, such as 192.0.2.1:7401",
        ],
    );
    tcp(
        &format!(
            "tcp.a = {{ listen = \"192.0.2.1:7400\" }}\n{second}tcp.a = {{ listen = \"192.0.2.1:7401\" }}\n"
        ),
        &[],
    );
}

#[test]
fn link_over_another_bus_needs_an_address_of_its_own() {
    let second = "[[link]]\nhosts = [\"b\", \"a\"]\nbuses = [\"udp\"]\nudp.b = { address = \"192.0.2.2\" }\n";
    tcp(
        &format!(
            "tcp.a = {{ listen = \"192.0.2.1:7400\" }}\n{second}udp.a = {{ listen = \"192.0.2.1:7400\" }}\n"
        ),
        &[
            "s.toml:10:1: link[1].udp: host \"a\" listens on 192.0.2.1:7400 for \"b\" in link[0] already: the two links can't be told apart; listen on another port, such as 192.0.2.1:7401",
        ],
    );
}

#[test]
fn one_address_serves_links_to_different_hosts() {
    tcp(
        "tcp.a = { listen = \"192.0.2.1:7400\" }\n[host.c]\n[[link]]\nhosts = [\"a\", \"c\"]\nbuses = [\"tcp\"]\n\
         tcp.a = { listen = \"192.0.2.1:7400\" }\n",
        &[],
    );
}

#[test]
fn two_hosts_on_one_address_are_a_warning() {
    tcp(
        "tcp.a = { listen = \"192.0.2.1:7400\" }\n[host.c]\n[[link]]\nhosts = [\"b\", \"c\"]\nbuses = [\"tcp\"]\n\
         tcp.c = { listen = \"192.0.2.1:7400\" }\n",
        &[
            "s.toml:11:1: warning: link[1].tcp: host \"c\" listens on 192.0.2.1:7400, and so does host \"a\" in link[0]; give each host its own address, or its own port where they share a machine",
        ],
    );
}

#[test]
fn a_link_local_address_needs_an_interface_and_no_datagram_can_name_one() {
    tcp(
        "tcp.a = { listen = \"[fe80::1%2]:7400\" }\n",
        &[
            "s.toml:6:1: link[0].tcp.b.connect: the interface in [fe80::1%2]:7400 is counted by host \"a\", and every host counts its own; add `connect = \"[fe80::1%2]:7400\"` with the number of the interface on the host that connects (`ip link`)",
        ],
    );
    tcp(
        "tcp.a = { listen = \"[fe80::1%2]:7400\" }\ntcp.b = { connect = \"[fe80::1%3]:7400\" }\n",
        &[],
    );
    let udp = |lines: &str, expected: &[&str]| {
        let link = format!("hosts = [\"a\", \"b\"]\nbuses = [\"udp\"]\n{lines}");
        assert_eq!(said(&link), expected, "\nin:\n{link}");
    };
    udp(
        "udp.a = { listen = \"[fe80::1%2]:7402\" }\nudp.b = { address = \"fd00::2\" }\n",
        &[
            "s.toml:6:20: link[0].udp.a.listen: messages can't go by the link-local address fe80::1, which needs an interface beside it; give that host a unique local address such as fd00::1 (`ip address add`), a global or an IPv4 one",
        ],
    );
    udp(
        "udp.a = { listen = \"[fd00::1]:7402\" }\nudp.b = { address = \"fe80::2%3\" }\n",
        &[
            "s.toml:7:21: link[0].udp.b.address: \"fe80::2%3\" is not an address; write one that needs no interface beside it, such as \"fd00::1\"",
        ],
    );
}
