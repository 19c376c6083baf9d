//! Between the ports of a partition and iceoryx2 services:
//! `core_bridge SYSTEM PARTITION OUT_PORT IN_SERVICE IN_PORT OUT_SERVICE`.
//!
//! What is published in IN_SERVICE is sent through the queuing source port OUT_PORT; what the
//! queuing destination port IN_PORT receives is published in OUT_SERVICE. Messages are bytes
//! (`[u8]`). With OUT_PORT's and IN_PORT's channels to a real-time core, iceoryx2 programs on every
//! host talk with that core: the gateways carry the services.
//!
//! This is a pattern to copy, not a part of the product: which port stands for which service, in
//! which type, and what shall happen when one side is slower than the other, is the application's
//! to say. Here what finds the port full waits in the subscriber's buffer, as far as that goes.

use std::path::Path;
use std::time::Duration;

use busway_port::apex::Refusal;
use busway_port::system::{module_of, root_of};
use busway_port::{Discipline, Store};
use busway_system::System;
use iceoryx2::config::Config;
use iceoryx2::prelude::*;

type AnyError = Box<dyn std::error::Error>;

/// Between two looks where nothing waits.
const PAUSE: Duration = Duration::from_micros(500);

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [system, partition, out_port, in_service, in_port, out_service] = &arguments[..] else {
        return Err("give SYSTEM PARTITION OUT_PORT IN_SERVICE IN_PORT OUT_SERVICE".into());
    };
    let system = System::load(Path::new(system))?;
    let host = &system.partition(partition).ok_or("no such partition")?.host;
    let store = Store::open(root_of(&system, host), module_of(&system, host))?;
    let joined = store.join(partition)?;
    let to_core = joined.queuing_source(out_port, Discipline::Fifo)?;
    let from_core = joined.queuing_destination(in_port, Discipline::Fifo)?;

    let node = NodeBuilder::new()
        .config(&domain_of(&system, host)?)
        .create::<ipc::Service>()?;
    let open = |name: &str| -> Result<_, AnyError> {
        Ok(node
            .service_builder(&name.try_into()?)
            .publish_subscribe::<[u8]>()
            .open_or_create()?)
    };
    let (questions, answers) = (open(in_service)?, open(out_service)?);
    let subscriber = questions.subscriber_builder().create()?;
    let publisher = answers
        .publisher_builder()
        .initial_max_slice_len(from_core.max_message_size_bytes())
        .create()?;

    let mut buffer = vec![0; from_core.max_message_size_bytes()];
    let mut waiting = None;
    while node.wait(PAUSE).is_ok() {
        loop {
            let next = match waiting.take() {
                None => subscriber.receive()?,
                waiting => waiting,
            };
            let Some(sample) = next else { break };
            match to_core.send(sample.payload(), 0) {
                Ok(()) => {}
                // Full: this one goes first when there is room.
                Err(Refusal::NotAvailable) => {
                    waiting = Some(sample);
                    break;
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
        while let Ok(received) = from_core.receive(&mut buffer, 0) {
            let sample = publisher.loan_slice_uninit(received.length)?;
            sample.write_from_slice(&buffer[..received.length]).send()?;
        }
    }
    Ok(())
}

/// The iceoryx2 domain that the system file gives the host.
fn domain_of(system: &System, host: &str) -> Result<Config, AnyError> {
    let domain = system.host(host).map(|host| &host.iceoryx2);
    match domain.and_then(|domain| domain.config.as_ref()) {
        Some(path) => {
            let path = path.to_str().ok_or("the configuration's path is no UTF-8")?;
            Ok(Config::from_file(&FilePath::new(path.as_bytes())?)?)
        }
        None => Ok(Config::global_config().clone()),
    }
}
