//! A network of a test's own, in which nobody else sends: what was sent over its loopback interface
//! can be counted.
#![allow(unsafe_code)] // a namespace for a thread

use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::skip::skipped;

/// Runs a test in a network namespace whose loopback interface is up; the programs that it starts
/// are in there, too. Needs root.
pub fn in_own_network(test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        return skipped("root, for a network namespace");
    }
    let thread = std::thread::Builder::new().name(std::thread::current().name().unwrap_or("").into());
    let run = move || {
        // SAFETY: only the network namespace is left, no descriptor table.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may");
        ip("link set lo up");
        test();
    };
    let ended = thread.spawn(run).expect("a thread").join();
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Runs iproute2's `ip` in this thread's namespace.
pub fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.expect("`ip` of iproute2").success(), "ip {arguments}");
}

/// Bytes and packets that left over all interfaces of this thread's namespace; a batch that the
/// kernel does not take apart is one packet.
pub fn sent() -> (u64, u64) {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").expect("Linux");
    let interfaces = table.lines().filter_map(|line| Some(line.split_once(':')?.1));
    interfaces.fold((0, 0), |(bytes, packets), numbers| {
        let mut numbers = numbers.split_whitespace().skip(8).map(|word| word.parse::<u64>());
        let mut next = || numbers.next().expect("16 numbers").expect("a number");
        (bytes + next(), packets + next())
    })
}
