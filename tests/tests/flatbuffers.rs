//! Services whose messages are flatbuffers: the messages cross whole, of any length, and the schema
//! crosses with the service.
#![allow(unsafe_code)] // `Follow`, as `flatc` generates it for each table.

use busway_tests::rig::Rig;
use busway_tests::{
    Bus, arrives, eventually, on_each_bus, publisher, received, subscriber, subscribers_become,
};
use flatbuffers::{
    Follow, ForwardsUOffset, InvalidFlatbuffer, Table, VOffsetT, Vector, Verifiable, Verifier, WIPOffset,
};
use iceoryx2::prelude::*;
use iceoryx2::service::builder::publish_subscribe::Builder;
use iceoryx2::service::ipc::Service;

#[derive(Clone, Copy, Debug)]
struct Reading<'a> {
    table: Table<'a>,
}

const NUMBER: VOffsetT = 4;
const CONTENT: VOffsetT = 6;

impl<'a> Follow<'a> for Reading<'a> {
    type Inner = Reading<'a>;

    unsafe fn follow(buffer: &'a [u8], location: usize) -> Reading<'a> {
        // SAFETY: the caller promises that a table lies there.
        let table = unsafe { Table::new(buffer, location) };
        Reading { table }
    }
}

impl Verifiable for Reading<'_> {
    fn run_verifier(verifier: &mut Verifier, position: usize) -> Result<(), InvalidFlatbuffer> {
        verifier
            .visit_table(position)?
            .visit_field::<u64>("number", NUMBER, false)?
            .visit_field::<ForwardsUOffset<Vector<'_, u8>>>("content", CONTENT, true)?
            .finish();
        Ok(())
    }
}

impl<'a> Reading<'a> {
    fn number(&self) -> u64 {
        // SAFETY: the verifier has found nothing else in this field.
        unsafe { self.table.get::<u64>(NUMBER, Some(0)) }.unwrap_or_default()
    }

    fn content(&self) -> &'a [u8] {
        // SAFETY: as above.
        let content = unsafe { self.table.get::<ForwardsUOffset<Vector<'a, u8>>>(CONTENT, None) };
        content.map_or(&[], |content| content.bytes())
    }
}

type Readings = Builder<Flatbuffer<Reading<'static>>, (), Service>;

/// A service of readings whose schema is in the file `schema`. iceoryx2 compares schemas byte by
/// byte and reads nothing in them.
fn readings(rig: &Rig, node: &Node<Service>, service: &str, schema: &str) -> Readings {
    let path = rig.hosts.shared.join(format!("{schema}.bfbs"));
    std::fs::write(&path, schema.repeat(100)).expect("the directory is ours");
    let path = path.to_str().expect("a path of ours");
    node.service_builder(&service.try_into().expect("a service name"))
        .publish_subscribe::<Flatbuffer<Reading<'static>>>()
        .flatbuffer_schema_path(&FilePath::new(path.as_bytes()).expect("a path of ours"))
}

fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|i| (i ^ (i >> 8) ^ (i >> 16) ^ number) as u8)
        .collect()
}

fn flatbuffers_of_any_length_arrive_whole(bus: Bus) {
    const LENGTHS: [usize; 7] = [10, 0, 1_000, 100_000, 3, 3 << 20, 50];
    let rig = Rig::pair(bus);
    let nodes = [rig.node(0), rig.node(1)];
    for (from, to) in [(0, 1), (1, 0)] {
        let name = format!("readings/{from}");
        let home = readings(&rig, &nodes[from], &name, "schema")
            .create()
            .expect("new");
        let publisher = publisher!(home, allocation_strategy(AllocationStrategy::PowerOfTwo));
        let there = readings(&rig, &nodes[to], &name, "schema");
        let there = there.open_or_create().expect("the same service");
        let subscriber = subscriber!(there);
        subscribers_become!(home, 1);
        for (number, length) in (1..).zip(LENGTHS) {
            let content = content(number, length);
            let mut sample = publisher.loan_flatbuffer().expect("a loan");
            let builder = sample.flatbuffer_builder();
            let vector = builder.create_vector(&content);
            let table = builder.start_table();
            builder.push_slot::<u64>(NUMBER, number, 0);
            builder.push_slot_always(CONTENT, vector);
            let root = builder.end_table(table);
            sample
                .assume_init(WIPOffset::new(root.value()))
                .send()
                .expect("sent");
            let sample = arrives!(subscriber);
            let reading = flatbuffers::root::<Reading<'_>>(sample.payload_bytes()).expect("a reading");
            assert_eq!((reading.number(), reading.content().len()), (number, length));
            assert!(reading.content() == content, "{length} bytes arrived changed");
        }
        assert!(received!(subscriber).is_none());
    }
}

fn schema_crosses_with_its_service(bus: Bus) {
    let rig = Rig::pair(bus);
    let (a, b) = (rig.node(0), rig.node(1));
    let _home = readings(&rig, &a, "schooled", "schema").create().expect("new");
    eventually("a program with the same schema opens the mirror", || {
        readings(&rig, &b, "schooled", "schema").open().ok()
    });
    let other = readings(&rig, &b, "schooled", "another-schema").open();
    assert!(other.is_err(), "a program with another schema must not get in");
}

fn services_with_different_schemas_are_not_joined(bus: Bus) {
    let mut rig = Rig::stopped(&["a", "b"], &[(0, 1, bus)], "");
    let (a, b) = (rig.node(0), rig.node(1));
    let home = readings(&rig, &a, "differs", "schema").create().expect("new");
    let far = readings(&rig, &b, "differs", "another-schema")
        .create()
        .expect("new");
    let _ports = (publisher!(home), subscriber!(far));
    rig.start_gateways();
    let complaint = eventually("a gateway says so", || {
        [0, 1]
            .iter()
            .find_map(|host| rig.service(*host, "differs")?.complaint)
    });
    assert!(complaint.contains("flatbuffer schemas differ"), "{complaint}");
    assert_eq!(home.dynamic_config().number_of_subscribers(), 0);
}

on_each_bus!(
    flatbuffers_of_any_length_arrive_whole,
    schema_crosses_with_its_service,
    services_with_different_schemas_are_not_joined,
);
