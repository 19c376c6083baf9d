//! A partition as it is written for any hypervisor of `a653rs`: looks every millisecond for a
//! number of `ping`, and sends it back.
#![allow(unsafe_code, static_mut_refs, missing_docs)] // What the macro of a653rs makes has all three.

use a653rs::prelude::PartitionExt;

fn main() {
    pong::Partition.run();
}

#[a653rs::partition(busway_a653rs::Busway)]
mod pong {
    #[sampling_in(name = "PING", msg_size = "8B", refresh_period = "60s")]
    struct Ping;

    #[queuing_out(name = "PONG", msg_count = 4, msg_size = "8B", discipline = "FIFO")]
    struct Pong;

    #[start(cold)]
    fn cold_start(mut ctx: start::Context) {
        ctx.create_ping().expect("create PING");
        ctx.create_pong().expect("create PONG");
        ctx.create_answer()
            .expect("create the process")
            .start()
            .expect("start it");
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
    fn answer(ctx: answer::Context) {
        let (ping, pong) = (ctx.ping.expect("PING"), ctx.pong.expect("PONG"));
        let (mut buffer, mut next) = ([0; 8], 0_u64);
        loop {
            if let Ok((validity, message)) = ping.receive(&mut buffer) {
                assert_eq!(validity, Validity::Valid);
                if message == next.to_le_bytes() {
                    pong.send(message, SystemTime::Infinite).expect("send");
                    next += 1;
                }
            }
            ctx.periodic_wait().expect("a periodic process");
        }
    }
}
