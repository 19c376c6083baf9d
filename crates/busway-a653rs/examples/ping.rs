//! A partition as it is written for any hypervisor of `a653rs`: counts, and waits for each number
//! to come back from `pong`.
//!
//!   BUSWAY_SYSTEM=ping_pong.toml BUSWAY_PARTITION=ping ping
#![allow(unsafe_code, static_mut_refs, missing_docs)] // What the macro of a653rs makes has all three.

use a653rs::prelude::PartitionExt;

fn main() {
    ping::Partition.run();
}

#[a653rs::partition(busway_a653rs::Busway)]
mod ping {
    #[sampling_out(name = "PING", msg_size = "8B")]
    struct Ping;

    #[queuing_in(name = "PONG", msg_count = 4, msg_size = "8B", discipline = "FIFO")]
    struct Pong;

    #[start(cold)]
    fn cold_start(mut ctx: start::Context) {
        ctx.create_ping().expect("create PING");
        ctx.create_pong().expect("create PONG");
        ctx.create_count()
            .expect("create the process")
            .start()
            .expect("start it");
    }

    #[start(warm)]
    fn warm_start(ctx: start::Context) {
        cold_start(ctx);
    }

    #[aperiodic(
        time_capacity = "Infinite",
        stack_size = "32KB",
        base_priority = 1,
        deadline = "Soft"
    )]
    fn count(ctx: count::Context) {
        let (ping, pong) = (ctx.ping.expect("PING"), ctx.pong.expect("PONG"));
        let mut buffer = [0; 8];
        for number in 0..100_u64 {
            ping.send(&number.to_le_bytes()).expect("send");
            let (message, overflowed) = pong
                .receive(
                    &mut buffer,
                    SystemTime::Normal(core::time::Duration::from_secs(60)),
                )
                .expect("receive");
            assert_eq!((message, overflowed), (&number.to_le_bytes()[..], false));
        }
        println!("100 numbers came back");
        let _ = ctx.set_partition_mode(OperatingMode::Idle);
    }
}
