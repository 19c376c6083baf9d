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
