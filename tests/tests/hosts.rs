//! The hosts that the other tests run on are as far apart as they claim.

use std::path::Path;

use busway_bench::BenchError;
use busway_bench::hosts::{Host, Hosts};
use busway_tests::skip::skipped;

fn output(host: &Host, script: &str) -> String {
    let mut command = host.command(Path::new("/bin/sh")).expect("a shell");
    let output = command.args(["-c", script]).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn isolated_hosts_share_only_one_directory_and_a_cable() {
    let hosts = match Hosts::isolated(&["a", "b", "c"]) {
        Ok(hosts) => hosts,
        Err(BenchError::Needs(what)) => return skipped(&what),
        Err(error) => panic!("{error}"),
    };
    let [a, b, c] = &hosts.hosts[..] else {
        panic!("three hosts")
    };
    output(
        a,
        "echo 1 > /dev/shm/private; echo 2 > /tmp/private; echo 3 > ../window",
    );
    assert_eq!(
        output(b, "ls /dev/shm /tmp | grep -c private || true").trim(),
        "0"
    );
    assert_eq!(output(b, "cat ../window").trim(), "3");
    let addresses = output(c, "ip -4 -o addr show");
    assert!(
        addresses.contains(&hosts.address(2, 0).to_string()),
        "{addresses}"
    );
    assert!(
        addresses.contains(&hosts.address(2, 1).to_string()),
        "{addresses}"
    );
    assert_ne!(output(a, "ip -o link show"), output(b, "ip -o link show"));
    hosts.set_cable(0, 1, false).expect("a cable");
    assert!(output(b, "ip -o link show to-host-0").contains("NO-CARRIER"));
}
