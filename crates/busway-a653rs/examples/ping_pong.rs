//! Two partitions written with the macro of `a653rs`, as for any hypervisor: `ping` counts, over
//! sampling and over queuing ports, and `pong` sends each number back over a port of the same kind.
//!
//!   BUSWAY_SYSTEM=ping_pong.toml BUSWAY_PARTITION=ping ping_pong ping
//!   BUSWAY_SYSTEM=ping_pong.toml BUSWAY_PARTITION=pong ping_pong pong
//!
//! `ping` ends when all numbers have come back. The end-to-end tests run the same program, on two
//! hosts.
#![allow(unsafe_code, static_mut_refs, missing_docs)] // What the macro of a653rs makes has all three.

use std::sync::atomic::{AtomicU32, Ordering};

use a653rs::prelude::PartitionExt;

/// Numbers that go there and back over each kind of port.
const ROUNDS: u64 = 100;

/// Processes of `ping` that have got all their numbers back.
static DONE: AtomicU32 = AtomicU32::new(0);

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("ping") => ping::Partition.run(),
        Some("pong") => pong::Partition.run(),
        other => panic!("{other:?} is not `ping` or `pong`"),
    }
}

fn is_last(what: &str) -> bool {
    println!("{ROUNDS} numbers came back over {what} ports");
    DONE.fetch_add(1, Ordering::Relaxed) == 1
}

#[a653rs::partition(busway_a653rs::Busway)]
mod ping {
    use crate::{ROUNDS, is_last};

    #[sampling_out(name = "PING", msg_size = "8B")]
    struct Ping;

    #[sampling_in(name = "PONG", msg_size = "8B", refresh_period = "60s")]
    struct Pong;

    #[queuing_out(name = "ASK", msg_count = 4, msg_size = "8B", discipline = "FIFO")]
    struct Ask;

    #[queuing_in(name = "ANSWER", msg_count = 4, msg_size = "8B", discipline = "FIFO")]
    struct Answer;

    #[start(cold)]
    fn cold_start(mut ctx: start::Context) {
        ctx.create_ping().expect("create PING");
        ctx.create_pong().expect("create PONG");
        ctx.create_ask().expect("create ASK");
        ctx.create_answer().expect("create ANSWER");
        ctx.create_sample().expect("create").start().expect("start");
        ctx.create_queue().expect("create").start().expect("start");
    }

    #[start(warm)]
    fn warm_start(ctx: start::Context) {
        cold_start(ctx);
    }

    #[periodic(
        period = "1ms",
        time_capacity = "Infinite",
        stack_size = "32KB",
        base_priority = 1,
        deadline = "Soft"
    )]
    fn sample(ctx: sample::Context) {
        let (ping, pong) = (ctx.ping.expect("PING"), ctx.pong.expect("PONG"));
        let mut buffer = [0; 8];
        for number in 1..=ROUNDS {
            ping.send(&number.to_le_bytes()).expect("write");
            loop {
                ctx.periodic_wait().expect("a periodic process");
                // Before the first answer there is no message.
                let Ok((validity, message)) = pong.receive(&mut buffer) else {
                    continue;
                };
                assert_eq!(validity, Validity::Valid);
                if message == number.to_le_bytes() {
                    break;
                }
                assert_eq!(
                    message,
                    (number - 1).to_le_bytes(),
                    "neither this answer nor the last"
                );
            }
        }
        if is_last("sampling") {
            let _ = ctx.set_partition_mode(OperatingMode::Idle);
        }
    }

    #[aperiodic(
        time_capacity = "Infinite",
        stack_size = "32KB",
        base_priority = 1,
        deadline = "Soft"
    )]
    fn queue(ctx: queue::Context) {
        let (ask, answer) = (ctx.ask.expect("ASK"), ctx.answer.expect("ANSWER"));
        let mut buffer = [0; 8];
        for number in 1..=ROUNDS {
            ask.send(&number.to_le_bytes(), SystemTime::Infinite)
                .expect("send");
            let (message, overflowed) = answer
                .receive(&mut buffer, SystemTime::Infinite)
                .expect("receive");
            assert_eq!((message, overflowed), (&number.to_le_bytes()[..], false));
        }
        if is_last("queuing") {
            let _ = ctx.set_partition_mode(OperatingMode::Idle);
        }
    }
}

#[a653rs::partition(busway_a653rs::Busway)]
mod pong {
    #[sampling_in(name = "PING", msg_size = "8B", refresh_period = "60s")]
    struct Ping;

    #[sampling_out(name = "PONG", msg_size = "8B")]
    struct Pong;

    #[queuing_in(name = "ASK", msg_count = 4, msg_size = "8B", discipline = "FIFO")]
    struct Ask;

    #[queuing_out(name = "ANSWER", msg_count = 4, msg_size = "8B", discipline = "FIFO")]
    struct Answer;

    #[start(cold)]
    fn cold_start(mut ctx: start::Context) {
        ctx.create_ping().expect("create PING");
        ctx.create_pong().expect("create PONG");
        ctx.create_ask().expect("create ASK");
        ctx.create_answer().expect("create ANSWER");
        ctx.create_sample().expect("create").start().expect("start");
        ctx.create_queue().expect("create").start().expect("start");
    }

    #[start(warm)]
    fn warm_start(ctx: start::Context) {
        cold_start(ctx);
    }

    #[periodic(
        period = "1ms",
        time_capacity = "Infinite",
        stack_size = "32KB",
        base_priority = 1,
        deadline = "Soft"
    )]
    fn sample(ctx: sample::Context) {
        let (ping, pong) = (ctx.ping.expect("PING"), ctx.pong.expect("PONG"));
        let mut buffer = [0; 8];
        loop {
            if let Ok((_, message)) = ping.receive(&mut buffer) {
                pong.send(message).expect("write");
            }
            ctx.periodic_wait().expect("a periodic process");
        }
    }

    #[aperiodic(
        time_capacity = "Infinite",
        stack_size = "32KB",
        base_priority = 1,
        deadline = "Soft"
    )]
    fn queue(ctx: queue::Context) {
        let (ask, answer) = (ctx.ask.expect("ASK"), ctx.answer.expect("ANSWER"));
        let mut buffer = [0; 8];
        loop {
            let (message, _) = ask.receive(&mut buffer, SystemTime::Infinite).expect("receive");
            answer.send(message, SystemTime::Infinite).expect("send");
        }
    }
}
