//! The control decoders on any bytes: no panic, no standstill; what decodes encodes to something
//! that decodes alike.
#![no_main]

use busway_core::control::{StreamDecoder, decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((body, len))) = decode(bytes) {
        assert!(len <= bytes.len());
        let mut again = vec![0; len + 64];
        let count = encode(&body, &mut again).expect("a decoded body encodes");
        assert_eq!(decode(&again[..count]), Ok(Some((body, count))));
    }
    let mut decoder = StreamDecoder::new([0; 64]);
    let mut rest = bytes;
    while !rest.is_empty() {
        let space = decoder.space();
        let count = space.len().min(rest.len());
        assert!(count > 0, "a decoder that waits has room");
        space[..count].copy_from_slice(&rest[..count]);
        decoder.filled(count);
        rest = &rest[count..];
        let mut frames = 0;
        while !matches!(decoder.next_frame(), Ok(None)) {
            frames += 1;
            assert!(frames <= 64, "every frame or error takes at least one byte");
        }
    }
});
