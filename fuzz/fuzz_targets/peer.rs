//! What peers say over any bus, apart from the control frames: no panic, no standstill, nothing
//! believed that lies outside.
#![no_main]

use busway_transport::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else {
        return;
    };
    match which % 6 {
        0 => fuzzing::opening(bytes),
        1 => fuzzing::window_place(bytes),
        2 => fuzzing::tipc_event(bytes),
        3 => fuzzing::rdma(bytes),
        4 => fuzzing::udp(bytes),
        _ => fuzzing::head(bytes),
    }
});
