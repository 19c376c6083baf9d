//! What counting cost: CPU time of the program and of its host, and packets on the network
//! interface.
#![allow(unsafe_code)] // getrusage(2), which no safe library at hand offers.

use std::fs;
use std::net::{IpAddr, UdpSocket};

use busway_doctor::facts;
use busway_doctor::tree::Tree;

use crate::clock::now_ns;
use crate::record::Used;

pub(super) struct Usage {
    begun_ns: u64,
    begun: Used,
    interface: Option<String>,
}

impl Usage {
    /// Begins. `peer` is the address of the other program, or this one's own if it listens.
    pub(super) fn begin(peer: IpAddr) -> Self {
        let interface = interface_towards(peer);
        Self {
            begun: sums(interface.as_deref()),
            begun_ns: now_ns(),
            interface,
        }
    }

    pub(super) fn end(self) -> Used {
        let span_s = (now_ns() - self.begun_ns) as f64 / 1e9;
        let (then, now) = (self.begun, sums(self.interface.as_deref()));
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.wrapping_sub(then?));
        Used {
            span_s,
            user_s: now.user_s - then.user_s,
            system_s: now.system_s - then.system_s,
            host_user_s: now.host_user_s - then.host_user_s,
            host_system_s: now.host_system_s - then.host_system_s,
            host_interrupt_s: now.host_interrupt_s - then.host_interrupt_s,
            packets_sent: since(now.packets_sent, then.packets_sent),
            packets_received: since(now.packets_received, then.packets_received),
        }
    }
}

fn sums(interface: Option<&str>) -> Used {
    let (user_s, system_s) = process_times_s();
    let [host_user_s, host_system_s, host_interrupt_s] =
        facts::cpu_ticks(&Tree::here()).map_or([0.0; 3], host_times_s);
    let packets = interface.and_then(|name| {
        let text = fs::read_to_string("/proc/self/net/dev").ok()?;
        packets_of(&text, name)
    });
    Used {
        user_s,
        system_s,
        host_user_s,
        host_system_s,
        host_interrupt_s,
        packets_received: packets.map(|[received, _]| received),
        packets_sent: packets.map(|[_, sent]| sent),
        span_s: 0.0,
    }
}

fn process_times_s() -> (f64, f64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a `rusage` of our own, which the call fills; all zero is a valid
    // one should it fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

fn host_times_s([user, nice, system, _, _, irq, softirq, _]: [u64; 8]) -> [f64; 3] {
    let hz = rustix::param::clock_ticks_per_second() as f64;
    [user + nice, system, irq + softirq].map(|ticks| ticks as f64 / hz)
}

fn packets_of(dev: &str, interface: &str) -> Option<[u64; 2]> {
    let line = dev
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == interface)?;
    let mut numbers = line.1.split_ascii_whitespace().map(|word| word.parse::<u64>());
    let received = numbers.nth(1)?.ok()?;
    let sent = numbers.nth(7)?.ok()?;
    Some([received, sent])
}

fn interface_towards(peer: IpAddr) -> Option<String> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((peer, 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    let interfaces = if_addrs::get_if_addrs().ok()?;
    interfaces
        .into_iter()
        .find(|interface| interface.ip() == own)
        .map(|interface| interface.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_apart_from_system_time() {
        let hz = rustix::param::clock_ticks_per_second() as f64;
        let times = host_times_s([10, 2, 30, 400, 5, 6, 7, 8]);
        assert_eq!(times, [12.0 / hz, 30.0 / hz, 13.0 / hz]);
    }

    #[test]
    fn packets_are_those_of_the_interface_asked_for() {
        let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n  eth0: 5 6 0 0 0 0 0 0 7 8 0 0 0 0 0 0\n";
        assert_eq!(packets_of(dev, "eth0"), Some([6, 8]));
        assert_eq!(packets_of(dev, "eth1"), None);
    }

    #[test]
    fn route_to_own_address_is_loopback() {
        let name = interface_towards(std::net::Ipv4Addr::LOCALHOST.into()).expect("every machine has one");
        let dev = fs::read_to_string("/proc/self/net/dev").unwrap();
        assert!(packets_of(&dev, &name).is_some(), "{name}");
    }

    #[test]
    fn time_that_is_spent_is_counted() {
        let usage = Usage::begin(std::net::Ipv4Addr::LOCALHOST.into());
        let mut sum = 0_u64;
        while usage.begun_ns + 20_000_000 > now_ns() {
            sum = std::hint::black_box(sum + 1);
        }
        let used = usage.end();
        assert!(used.user_s + used.system_s > 0.0, "{used:?}");
    }
}
