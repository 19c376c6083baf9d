use super::*;

const HELLO_BODY: Body<'static> = Body::Hello(Hello {
    protocol_version: PROTOCOL_VERSION,
    byte_order: ByteOrder::NATIVE,
    session: u64::MAX,
    host: "vision",
    iceoryx2_version: "0.10.0",
});

#[test]
fn every_body_decodes_to_itself() {
    let mut buffer = [0; 128];
    for body in [
        HELLO_BODY,
        Body::Heartbeat(Heartbeat {
            session: 1,
            count: 2,
            time_ns: 3,
        }),
        Body::Payload(b"opaque"),
    ] {
        let len = encode(&body, &mut buffer).unwrap();
        assert_eq!(decode(&buffer[..len]), Ok(Some((body, len))));
        for cut in 0..len {
            assert_eq!(decode(&buffer[..cut]), Ok(None));
        }
    }
}

#[test]
fn a_byte_stream_in_any_pieces_gives_the_same_frames() {
    let mut stream = [0; 300];
    let mut len = 0;
    let bodies = [
        HELLO_BODY,
        Body::Payload(&[]),
        Body::Payload(&[b'B'; 40]),
        HELLO_BODY,
    ];
    for body in &bodies {
        len += encode(body, &mut stream[len..]).unwrap();
    }
    for piece in (1..len).step_by(if cfg!(miri) { 29 } else { 1 }) {
        let mut decoder = StreamDecoder::new([0; 64]);
        let mut rest = &stream[..len];
        let mut found = 0;
        while !rest.is_empty() {
            let space = decoder.space();
            let count = space.len().min(piece).min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            decoder.filled(count);
            rest = &rest[count..];
            while let Some(body) = decoder.next_frame().unwrap() {
                assert_eq!(body, bodies[found]);
                found += 1;
            }
        }
        assert_eq!(found, bodies.len(), "pieces of {piece}");
    }
}

#[test]
fn garbage_before_a_frame_is_reported_and_the_frame_found() {
    let mut decoder = StreamDecoder::new([0; 256]);
    let garbage = b"GET / HTTP/1.1\r\nBUSBUSB";
    let space = decoder.space();
    space[..garbage.len()].copy_from_slice(garbage);
    let len = encode(&HELLO_BODY, &mut space[garbage.len()..]).unwrap();
    decoder.filled(garbage.len() + len);
    let mut skipped = 0;
    loop {
        match decoder.next_frame() {
            Err(DecodeError::Garbage { skipped_bytes }) => skipped += skipped_bytes,
            other => break assert_eq!(other, Ok(Some(HELLO_BODY))),
        }
    }
    assert_eq!(skipped, garbage.len());
}

#[test]
fn a_frame_of_another_kind_or_with_a_broken_body_is_skipped_whole() {
    let mut decoder = StreamDecoder::new([0; 256]);
    for (kind, error) in [
        (9, DecodeError::UnknownKind { kind: 9 }),
        (1, DecodeError::Body { kind: 1 }),
    ] {
        let space = decoder.space();
        let mut frame = payload_header(4).unwrap();
        frame[4] = kind;
        space[..12].copy_from_slice(&frame);
        space[12..16].copy_from_slice(&[0xFF; 4]);
        let len = 16 + encode(&Body::Payload(b"next"), &mut space[16..]).unwrap();
        decoder.filled(len);
        assert_eq!(decoder.next_frame(), Err(error));
        assert_eq!(decoder.next_frame(), Ok(Some(Body::Payload(b"next"))));
        assert_eq!(decoder.next_frame(), Ok(None));
    }
}

#[test]
fn a_length_beyond_the_buffer_or_the_limit_is_refused_at_once() {
    let mut header = payload_header(100).unwrap();
    let mut decoder = StreamDecoder::new([0; 64]);
    decoder.space()[..12].copy_from_slice(&header);
    decoder.filled(12);
    assert_eq!(
        decoder.next_frame(),
        Err(DecodeError::TooLong {
            len_bytes: 100,
            max_bytes: 52
        })
    );
    header[8..].copy_from_slice(&u32::MAX.to_le_bytes());
    let too_long = DecodeError::TooLong {
        len_bytes: u32::MAX as usize,
        max_bytes: MAX_BODY_BYTES,
    };
    assert_eq!(decode(&header), Err(too_long));
    assert!(payload_header(MAX_BODY_BYTES).is_ok());
    let len_bytes = MAX_BODY_BYTES + 1;
    assert_eq!(payload_header(len_bytes), Err(EncodeError::TooLong { len_bytes }));
}

#[test]
fn host_names_that_could_forge_log_lines_are_refused_on_both_sides() {
    let Body::Hello(good) = HELLO_BODY else {
        unreachable!()
    };
    let long = "x".repeat(256);
    for host in ["", "two\nlines", "\u{1b}[31m", &long] {
        let hello = Hello { host, ..good };
        assert_eq!(encode(&Body::Hello(hello), &mut [0; 400]), Err(EncodeError::Name));
        let mut frame = [0; 400];
        let len = postcard::to_slice(&hello, &mut frame[12..]).unwrap().len();
        frame[..12].copy_from_slice(&header(HELLO, len).unwrap());
        assert_eq!(decode(&frame[..12 + len]), Err(DecodeError::Body { kind: HELLO }));
    }
}

#[test]
fn a_hello_with_more_fields_than_we_know_still_tells_its_version() {
    let mut frame = [0; 100];
    let len = encode(&HELLO_BODY, &mut frame).unwrap();
    frame[8..12].copy_from_slice(&((len - 12 + 5) as u32).to_le_bytes());
    assert_eq!(decode(&frame[..len + 5]), Ok(Some((HELLO_BODY, len + 5))));
}

#[test]
fn a_buffer_too_small_for_a_frame_is_an_error_not_a_panic() {
    for len in 0..30 {
        let too_small = Err(EncodeError::BufferTooSmall { buffer_bytes: len });
        assert_eq!(encode(&HELLO_BODY, &mut vec![0; len]), too_small);
        let mut decoder = StreamDecoder::new(vec![b'B'; len]);
        decoder.filled(usize::MAX);
        while let Err(error) = decoder.next_frame() {
            assert!(!error.to_string().is_empty());
        }
    }
}
