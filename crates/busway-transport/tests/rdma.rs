//! What only buses over RDMA have: payload that crosses without a copy, peers that are killed. One
//! device, RoCE or iWARP, on `eth0`. Tests that need a fresh process are in `rdma_alone.rs`.

#[allow(unused_macros, unused_imports)] // The macro is for the contract suites.
mod contract;
mod rdma_place;
mod rdma_register;
mod rdma_ring;
mod rdma_samples;
mod rdma_store;

use std::time::{Duration, Instant};

use busway_transport::{ChannelEnd, ChannelError, ChannelId, Direction, LinkEvent, OpenError};
use contract::Side;
use contract::harness::{Buffer, LANE, Pair, identity, queue};
use contract::hostile::Anything;
use rdma_place::RdmaPlace;
use rdma_samples::{LONG, Other, RdmaSend, carry, place_of_parent, places, samples};

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn long_payload_crosses_from_sample_to_sample_without_a_copy() {
    let mut samples = samples();
    let mut sink = places(true);
    carry(&mut samples, &mut sink, &LONG);
    assert_eq!(
        (samples.sender.copied(), samples.receiver.copied()),
        (Some(0), Some(0))
    );
    carry(&mut samples, &mut sink, &[10, 70_000, 2000, 100_000, 0]);
    assert_eq!(
        (samples.sender.copied(), samples.receiver.copied()),
        (Some(2), Some(2)),
        "short payload, and only that, is copied"
    );
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn long_payload_for_a_landing_without_a_name_is_copied_and_counted() {
    let mut samples = samples();
    carry(&mut samples, &mut places(false), &LONG);
    let all = Some(LONG.len() as u64);
    assert_eq!((samples.sender.copied(), samples.receiver.copied()), (all, all));
}

/// On any host: with RDMA, without it, and without its libraries.
#[test]
fn a_link_whose_host_lacks_rdma_is_refused_with_one_line_that_names_the_mend() {
    // An address that no host has (RFC 5737).
    let place = RdmaPlace::at("rdma-send", "192.0.2.77:7400".parse().expect("an address"));
    let mut link = place.open(Side::Two, identity(Side::Two));
    let refused: Vec<String> = (0..200)
        .filter_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            match link.poll(Instant::now()) {
                Some(LinkEvent::Refused(why)) => Some(why),
                None => None,
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let [why] = &refused[..] else {
        panic!("it is said once: {refused:?}");
    };
    assert_eq!(why.lines().count(), 1, "{why}");
    let mends = ["apt install libibverbs1", "rdma link", "rdma_ucm"];
    assert!(mends.iter().any(|mend| why.contains(mend)), "{why}");
    assert!(matches!(link.send_control(b"hello"), Err(OpenError::Down)));
}

/// Receives for ever what the first host sends.
#[test]
#[ignore = "a role: a_killed_peer… starts it as a process of its own"]
fn role_of_a_receiver() {
    let Some(address) = place_of_parent() else { return };
    let mut link = RdmaPlace::at("rdma-send", address).open(Side::Two, identity(Side::Two));
    let mut receiver = None;
    loop {
        match link.poll(Instant::now()) {
            Some(LinkEvent::Up(_)) => {
                let landing = link
                    .open_receiver(ChannelId(1), &queue(8, 4096), LANE)
                    .expect("it opens");
                link.send_control(&landing).expect("the link is up");
            }
            Some(LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end)))) => receiver = Some(end),
            _ => {}
        }
        if let Some(end) = &mut receiver {
            end.poll(&mut Anything::default(), 100)
                .expect("the parent kills this process first");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
#[ignore = "needs RDMA in the kernel: cargo xtask lab runs it"]
fn a_killed_peer_fails_its_channels_with_a_reason_and_the_next_process_is_served() {
    let mut pair = Pair::<RdmaSend>::empty();
    pair.start(Side::One);
    for _ in 0..2 {
        let other = Other::start("role_of_a_receiver", pair.bus.0.address());
        let landing = pair.until("the other process receives", |pair| {
            pair.host(Side::One).take_control()
        });
        let link = &mut pair.host(Side::One).link;
        link.open_sender(ChannelId(1), &queue(8, 4096), &landing, LANE)
            .expect("it opens");
        let end = pair.until("the sender is open", |pair| {
            pair.host(Side::One).take_channel(Direction::Send, ChannelId(1))
        });
        let Ok(ChannelEnd::Sender(mut sender)) = end else {
            panic!("no sender: {end:?}");
        };
        for sequence in 1..=20 {
            pair.until("there is room", |_| {
                let sent = sender.send(Buffer::new(sequence, 0, 3000)).is_ok();
                sender.flush().expect("the sender is well");
                sent.then_some(())
            });
        }
        pair.until("everything is confirmed", |_| {
            sender.flush().expect("the sender is well");
            (sender.outstanding() == 0).then_some(())
        });
        other.kill();
        let error = pair.until("the sender fails", |_| {
            let _ = sender.send(Buffer::new(21, 0, 3000));
            sender.flush().err()
        });
        assert!(
            matches!(&error, ChannelError::Io(why) if !why.to_string().is_empty()),
            "{error:?}"
        );
        pair.until("the link is down", |pair| pair.host(Side::One).take_down());
    }
}
