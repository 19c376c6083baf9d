//! Everything that a program can publish arrives byte for byte on the other host, as the same type.

use busway_tests::{
    Bus, Rig, arrives, name, on_each_bus, publisher, received, service, subscriber, subscribers_become,
};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::prelude::*;
use iceoryx2::service::ipc::Service;

#[derive(Clone, Copy, Debug, PartialEq, ZeroCopySend)]
#[repr(C)]
struct Page {
    words: [u64; 512],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, ZeroCopySend)]
#[repr(C)]
struct Stamp {
    number: u64,
    colour: u8,
    weight: f32,
}

macro_rules! nothing_else {
    ($subscriber:expr) => {
        assert!(received!($subscriber).is_none(), "a message came twice")
    };
}

/// Both directions, since the two gateways are not alike: one listens, the other connects.
fn each_direction(bus: Bus, test: impl Fn(&Node<Service>, &Node<Service>, &str)) {
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    test(&a, &b, "a-to-b");
    test(&b, &a, "b-to-a");
}

fn primitive_types_arrive_unchanged(bus: Bus) {
    each_direction(bus, |from, to, way| {
        let service = service!(from, name(&format!("number/{way}")), u64);
        let publisher = publisher!(service);
        let there = service!(to, name(&format!("number/{way}")), u64);
        let subscriber = subscriber!(there);
        subscribers_become!(service, 1);
        for number in [0, 1, u64::MAX, 0x0102_0304_0506_0708] {
            publisher.send_copy(number).expect("sent");
            assert_eq!(*arrives!(subscriber), number);
        }
        nothing_else!(subscriber);
    });
}

fn struct_of_4_kib_arrives_unchanged(bus: Bus) {
    each_direction(bus, |from, to, way| {
        let service = service!(from, name(&format!("page/{way}")), Page);
        let publisher = publisher!(service);
        let there = service!(to, name(&format!("page/{way}")), Page);
        let subscriber = subscriber!(there);
        subscribers_become!(service, 1);
        for number in 0..20u64 {
            let page = Page {
                words: std::array::from_fn(|i| (i as u64).wrapping_mul(number ^ 0x9E37_79B9_7F4A_7C15)),
            };
            publisher.send_copy(page).expect("sent");
            assert_eq!(*arrives!(subscriber), page);
        }
    });
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16) ^ length) as u8)
        .collect()
}

fn send_slice(publisher: &Publisher<Service, [u8], ()>, content: &[u8]) {
    publisher
        .loan_slice_uninit(content.len())
        .expect("a loan")
        .write_from_slice(content)
        .send()
        .expect("sent");
}

fn slices_of_any_length_arrive(bus: Bus) {
    const LENGTHS: [usize; 12] = [
        1,
        0,
        3,
        4096,
        65_536,
        65_535,
        200_000,
        7,
        8 << 20,
        0,
        (4 << 20) + 1,
        100,
    ];
    each_direction(bus, |from, to, way| {
        let service = service!(from, name(&format!("slice/{way}")), [u8]);
        // The segment grows as longer messages come: ports must follow.
        let publisher = publisher!(
            service,
            initial_max_slice_len(16),
            allocation_strategy(AllocationStrategy::PowerOfTwo)
        );
        let there = service!(to, name(&format!("slice/{way}")), [u8]);
        let subscriber = subscriber!(there);
        subscribers_become!(service, 1);
        for length in LENGTHS {
            let content = bytes(length);
            send_slice(&publisher, &content);
            let sample = arrives!(subscriber);
            assert_eq!(sample.len(), length);
            assert!(*sample == *content, "{length} bytes arrived changed");
        }
        nothing_else!(subscriber);
    });
}

fn user_headers_arrive_with_their_messages(bus: Bus) {
    each_direction(bus, |from, to, way| {
        let service = from
            .service_builder(&name(&format!("stamped/{way}")))
            .publish_subscribe::<[u32]>()
            .user_header::<Stamp>()
            .create()
            .expect("new");
        let publisher = publisher!(service, initial_max_slice_len(64));
        let there = to
            .service_builder(&name(&format!("stamped/{way}")))
            .publish_subscribe::<[u32]>()
            .user_header::<Stamp>();
        let there = there.open_or_create().expect("same");
        let subscriber = subscriber!(there);
        subscribers_become!(service, 1);
        for number in 0..64 {
            let stamp = Stamp {
                number: number as u64 + 1,
                colour: number as u8,
                weight: number as f32 / 3.0,
            };
            let mut sample = publisher.loan_slice_uninit(number).expect("a loan");
            *sample.user_header_mut() = stamp;
            sample
                .write_from_fn(|i| (i * number) as u32)
                .send()
                .expect("sent");
            let sample = arrives!(subscriber);
            assert_eq!(*sample.user_header(), stamp);
            assert_eq!(
                *sample,
                (0..number).map(|i| (i * number) as u32).collect::<Vec<_>>()
            );
        }
    });
}

fn payload_alignment_is_kept(bus: Bus) {
    each_direction(bus, |from, to, way| {
        for alignment in [64usize, 4096] {
            let text = format!("aligned/{alignment}/{way}");
            let asked = Alignment::new(alignment).expect("a power of two");
            let builder = |node: &Node<Service>| {
                let builder = node.service_builder(&name(&text)).publish_subscribe::<[u8]>();
                builder.payload_alignment(asked).open_or_create().expect("same")
            };
            let service = builder(from);
            let publisher = publisher!(service, initial_max_slice_len(10_000));
            let there = builder(to);
            let subscriber = subscriber!(there);
            subscribers_become!(service, 1);
            for length in [1, 63, 64, 65, 4095, 4096, 4097, 10_000] {
                let content = bytes(length);
                send_slice(&publisher, &content);
                let sample = arrives!(subscriber);
                assert_eq!(sample.payload().as_ptr() as usize % alignment, 0);
                assert!(*sample == *content, "{length} bytes arrived changed");
            }
        }
    });
}

on_each_bus!(
    primitive_types_arrive_unchanged,
    struct_of_4_kib_arrives_unchanged,
    slices_of_any_length_arrive,
    user_headers_arrive_with_their_messages,
    payload_alignment_is_kept,
);
