//! Ports of one message type, beside programs that know the bytes only.
#![cfg(not(loom))]

mod support;

use busway_port::apex::{OperatingMode, Refusal, Validity, set_partition_mode};
use busway_port::{Discipline, Partition};
use support::{directory, store};
use tempfile::TempDir;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const HOUR_NS: i64 = 3_600_000_000_000;

/// As long as the shared module's usual port.
#[derive(Debug, Clone, Copy, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Attitude {
    angles_rad: [f64; 3],
    rates_rad_s: [f32; 6],
    number: u64,
    status: [u8; 8],
}

impl Attitude {
    fn number(number: u64) -> Self {
        Self {
            angles_rad: [0.5, -1.5, number as f64],
            rates_rad_s: [0.25; 6],
            number,
            status: *b"nominal.",
        }
    }
}

fn partitions() -> (TempDir, Partition, Partition) {
    let directory = directory();
    let store = store(&directory);
    let [sensors, navigation] = ["sensors", "navigation"].map(|name| store.join(name).expect("a place"));
    (directory, sensors, navigation)
}

#[test]
fn a_sampled_value_is_read_as_it_was_written() {
    let (_directory, sensors, navigation) = partitions();
    let out = sensors
        .typed_sampling_source::<Attitude>("ATTITUDE_OUT")
        .expect("its size");
    let port = navigation
        .typed_sampling_destination::<Attitude>("ATTITUDE", HOUR_NS)
        .expect("its size");
    assert_eq!(port.read(), Err(Refusal::NoAction));
    assert_eq!(port.read_updated(), Err(Refusal::NoAction));
    for number in 1..10 {
        let message = Attitude::number(number);
        out.write(&message).expect("a source");
        assert_eq!(port.read_updated(), Ok(message));
        assert_eq!(port.read_updated(), Err(Refusal::NoAction));
        let read = port.read().expect("the same again");
        assert_eq!((read.message, read.validity), (message, Validity::Valid));
    }
}

#[test]
fn a_sampled_value_goes_stale_as_bytes_do() {
    let (_directory, sensors, navigation) = partitions();
    let out = sensors
        .typed_sampling_source::<Attitude>("ATTITUDE_OUT")
        .expect("its size");
    let port = navigation
        .typed_sampling_destination::<Attitude>("ATTITUDE", 1)
        .expect("its size");
    out.write(&Attitude::number(1)).expect("a source");
    let read = port.read().expect("a message");
    assert_eq!((read.message.number, read.validity), (1, Validity::Invalid));
}

#[test]
fn queued_values_are_received_in_order() {
    let (_directory, sensors, navigation) = partitions();
    let out = navigation
        .typed_queuing_source::<Attitude>("COMMAND_OUT", Discipline::Fifo)
        .expect("its size");
    let port = sensors
        .typed_queuing_destination::<Attitude>("COMMAND", Discipline::Fifo)
        .expect("its size");
    for number in 1..=3 {
        out.send(&Attitude::number(number), 0).expect("room");
    }
    assert_eq!(out.send(&Attitude::number(4), 0), Err(Refusal::NotAvailable));
    for number in 1..=3 {
        let received = port.receive(0).expect("a message");
        assert_eq!(
            (received.message, received.overflowed),
            (Attitude::number(number), false)
        );
    }
    assert_eq!(port.receive(0), Err(Refusal::NotAvailable));
    out.send(&Attitude::number(5), 0).expect("room");
    port.clear().expect("a destination");
    assert_eq!(port.receive(0), Err(Refusal::NotAvailable));
}

#[test]
fn a_value_after_an_overflow_says_so() {
    let (_directory, sensors, navigation) = partitions();
    let out = sensors
        .typed_queuing_source::<Attitude>("ALARM_OUT", Discipline::Fifo)
        .expect("its size");
    let port = navigation
        .typed_queuing_destination::<Attitude>("ALARM", Discipline::Fifo)
        .expect("its size");
    for number in 1..=5 {
        out.send(&Attitude::number(number), 0).expect("it overflows");
    }
    let overflowed = [(); 3].map(|()| port.receive(0).expect("a message").overflowed);
    assert_eq!(overflowed, [true, false, false]);
}

#[test]
fn a_type_of_another_size_is_invalid_config_and_creates_nothing() {
    let (_directory, sensors, navigation) = partitions();
    let refused = Some(Refusal::InvalidConfig);
    let fifo = Discipline::Fifo;
    assert_eq!(
        sensors.typed_sampling_source::<[u8; 63]>("ATTITUDE_OUT").err(),
        refused
    );
    assert_eq!(
        sensors.typed_sampling_source::<[u8; 65]>("ATTITUDE_OUT").err(),
        refused
    );
    assert_eq!(sensors.typed_sampling_source::<()>("ATTITUDE_OUT").err(), refused);
    assert_eq!(
        navigation.typed_sampling_destination::<u64>("ATTITUDE", 1).err(),
        refused
    );
    assert_eq!(
        navigation.typed_queuing_source::<u64>("COMMAND_OUT", fifo).err(),
        refused
    );
    assert_eq!(
        sensors.typed_queuing_destination::<u64>("COMMAND", fifo).err(),
        refused
    );
    for (partition, port) in [(&sensors, "ATTITUDE_OUT"), (&navigation, "ATTITUDE")] {
        let id = busway_port::apex::get_sampling_port_id(partition, port);
        assert_eq!(id, Err(Refusal::InvalidConfig), "{port} was not created");
    }
}

#[test]
fn names_directions_and_modes_are_refused_as_for_bytes() {
    let (_directory, sensors, _navigation) = partitions();
    let refusal = |name| sensors.typed_sampling_source::<Attitude>(name).err();
    assert_eq!(refusal("NOWHERE"), Some(Refusal::InvalidConfig));
    assert_eq!(refusal("ATTITUDE_BACK"), Some(Refusal::InvalidConfig));
    assert_eq!(refusal("ALARM_OUT"), Some(Refusal::InvalidConfig));
    set_partition_mode(&sensors, OperatingMode::Normal).expect("it was starting");
    assert_eq!(refusal("ATTITUDE_OUT"), Some(Refusal::InvalidMode));
}

#[test]
fn a_port_that_is_created_is_found_as_a_typed_one() {
    let (_directory, sensors, _navigation) = partitions();
    let created = sensors.sampling_source("ATTITUDE_OUT").expect("configured");
    set_partition_mode(&sensors, OperatingMode::Normal).expect("it was starting");
    let found = sensors
        .typed_sampling_source::<Attitude>("ATTITUDE_OUT")
        .expect("its size");
    assert_eq!(found.bytes().id(), created.id());
}

#[test]
fn a_message_of_another_length_is_invalid_config_and_the_next_one_is_read() {
    let (_directory, sensors, navigation) = partitions();
    let attitude = sensors.sampling_source("ATTITUDE_OUT").expect("configured");
    let port = navigation
        .typed_sampling_destination::<Attitude>("ATTITUDE", HOUR_NS)
        .expect("its size");
    attitude.write(&[1; 63]).expect("a source");
    assert_eq!(port.read(), Err(Refusal::InvalidConfig));
    attitude.write(Attitude::number(2).as_bytes()).expect("a source");
    assert_eq!(port.read().map(|read| read.message), Ok(Attitude::number(2)));

    let command = navigation
        .queuing_source("COMMAND_OUT", Discipline::Fifo)
        .expect("configured");
    let queue = sensors
        .typed_queuing_destination::<Attitude>("COMMAND", Discipline::Fifo)
        .expect("its size");
    command.send(&[1; 8], 0).expect("room");
    command.send(Attitude::number(2).as_bytes(), 0).expect("room");
    assert_eq!(queue.receive(0), Err(Refusal::InvalidConfig));
    assert_eq!(
        queue.receive(0).map(|received| received.message),
        Ok(Attitude::number(2))
    );
}
