//! What buses and technologies need of the kernel, the machine and its libraries.

use rustix::net::{AddressFamily, SocketType, socket};

use super::{Capability, Finding, Group, Probes, Subject, may};
use crate::facts;
use crate::tree::Tree;

pub(super) fn check(tree: &Tree, probes: &Probes) -> Vec<Finding> {
    vec![
        rdma_kernel(tree),
        rdma_libraries(tree),
        rdma_devices(tree),
        tipc(tree, probes),
        isolated_hosts(tree),
        iceoryx(tree),
    ]
}

fn subject(name: &'static str, source: impl Into<String>) -> Subject {
    Subject::new(Group::Buses, name, source)
}

pub(super) fn try_tipc() -> Result<(), String> {
    socket(AddressFamily::TIPC, SocketType::RDM, None)
        .map(drop)
        .map_err(|error| error.to_string())
}

/// What to do about a part of the kernel: load it, or take another kernel if this one was built
/// without.
fn module(tree: &Tree, option: &str, modules: &str) -> String {
    let unset = format!("# {option} is not set");
    let config = facts::kernel_config(tree)
        .map(|(text, _)| text)
        .unwrap_or_default();
    if config.lines().any(|line| line == unset) {
        format!(
            "this kernel was built without {option}: install a distribution's kernel that has it, then modprobe -a {modules}"
        )
    } else {
        format!("modprobe -a {modules} (for good: a line for each in /etc/modules-load.d/busway.conf)")
    }
}

fn rdma_kernel(tree: &Tree) -> Finding {
    let subject = subject(
        "rdma-kernel",
        "/sys/class/infiniband_verbs, /sys/class/misc/rdma_cm",
    );
    let parts = [
        ("ib_uverbs", tree.has("sys/class/infiniband_verbs")),
        ("rdma_ucm", tree.has("sys/class/misc/rdma_cm")),
    ];
    let absent: Vec<&str> = parts
        .iter()
        .filter(|(_, there)| !there)
        .map(|(name, _)| *name)
        .collect();
    if absent.is_empty() {
        return subject.good("ib_uverbs and rdma_ucm (with rdma_cm) are loaded");
    }
    subject.missing(
        format!("not loaded: {}", absent.join(", ")),
        "no bus over RDMA",
        module(tree, "CONFIG_INFINIBAND", "ib_uverbs rdma_ucm"),
    )
}

fn rdma_libraries(tree: &Tree) -> Finding {
    let names = ["libibverbs", "librdmacm"];
    let subject = subject("rdma-libraries", "/usr/lib and the like");
    let absent: Vec<&str> = names
        .into_iter()
        .filter(|name| facts::library(tree, name).is_empty())
        .collect();
    if absent.is_empty() {
        return subject.good(names.join(", "));
    }
    subject.missing(
        format!("not installed: {}", absent.join(", ")),
        "no bus over RDMA",
        "apt install libibverbs1 librdmacm1 ibverbs-providers (Fedora: dnf install libibverbs librdmacm)",
    )
}

fn rdma_devices(tree: &Tree) -> Finding {
    const DEVICES: &str = "sys/class/infiniband";
    let subject = subject("rdma-devices", format!("/{DEVICES}"));
    let devices = tree.names(DEVICES);
    if devices.is_empty() {
        return subject.missing(
            "none",
            "no bus over RDMA",
            "put in a card that can (RoCE, iWARP, InfiniBand), or, to try it without one: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0",
        );
    }
    subject.good(devices.join(", "))
}

fn tipc(tree: &Tree, probes: &Probes) -> Finding {
    let subject = subject("tipc", "socket(AF_TIPC), /proc/net/protocols");
    let listed = tree
        .read("proc/net/protocols")
        .is_some_and(|text| text.lines().any(|line| line.starts_with("TIPC ")));
    let refusal = match &probes.tipc {
        Some(Ok(())) => None,
        Some(Err(error)) => Some(error.clone()),
        None if listed => None,
        None => Some("not among the kernel's protocols".to_owned()),
    };
    match refusal {
        None => subject.good("the kernel speaks it"),
        Some(error) => subject.missing(
            format!("the kernel does not speak it ({error})"),
            "no bus over TIPC",
            format!(
                "{}; then tipc bearer enable media eth device eth0 (package iproute2)",
                module(tree, "CONFIG_TIPC", "tipc")
            ),
        ),
    }
}

fn isolated_hosts(tree: &Tree) -> Finding {
    let subject = subject("isolated-hosts", "/proc/self/status, CapEff; ip");
    let has_ip = ["usr/sbin/ip", "sbin/ip", "usr/bin/ip", "bin/ip"]
        .iter()
        .any(|path| tree.has(path));
    let mut needs = Vec::new();
    if !may(tree, Capability::SysAdmin) {
        needs.push("the right to make namespaces (CAP_SYS_ADMIN)");
    }
    if !has_ip {
        needs.push("`ip`");
    }
    if needs.is_empty() {
        return subject.good("hosts on this machine can have networks of their own");
    }
    subject.missing(
        format!("without {}", needs.join(" and ")),
        "busway bench and busway demo run both hosts in one network: over the loopback interface, which is faster than any real one",
        "run as root; apt install iproute2",
    )
}

fn iceoryx(tree: &Tree) -> Finding {
    const BINDING: &str = "libiceoryx_binding_c";
    let subject = subject("iceoryx-2", format!("{BINDING} in /usr/lib and the like"));
    match facts::library_version(tree, BINDING) {
        Some(version) => subject.good(format!("version {version}")),
        None => subject.missing(
            "not installed",
            "busway bench leaves iceoryx 2 (the C++ one, which iceperf measures) out",
            "apt install libiceoryx-binding-c2 iceoryx (Debian 12 and later)",
        ),
    }
}
