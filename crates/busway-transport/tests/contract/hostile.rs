//! Peers that break the rules.

use busway_transport::OpenError;

use super::harness::{Buffer, LANE, Pair, identity, queue};
use super::{BusUnderTest, Side};

pub fn link_survives_or_recovers_from_garbage<B: BusUnderTest>() {
    for victim in Side::BOTH {
        let mut pair = Pair::<B>::up();
        let mut channel = Some(pair.open(victim.other(), &queue(4, 4096)));
        for seed in 1..=20 {
            pair.bus.attack(victim, seed);
            for _ in 0..10 {
                pair.poll();
                if let Some(open) = &mut channel {
                    // It may fail, or deliver garbage where the window was hit; it must not panic.
                    let _ = open.sender.send(Buffer::new(1, 0, 100));
                    let failed = open.sender.flush().is_err()
                        || open.receiver.poll(&mut Anything::default(), 100).is_err();
                    if failed {
                        channel = None;
                    }
                }
            }
        }
        drop(channel);
        pair.bus.clean();
        pair.until("the link works again", |pair| {
            for side in Side::BOTH {
                if !pair.host(side).is_up {
                    return None;
                }
            }
            Some(())
        });
        pair.stop(Side::One);
        pair.start(Side::One);
        pair.until("the other one notices the restart", |pair| {
            pair.host(Side::Two).take_down()
        });
        pair.wait_up();
        let mut channel = pair.open(Side::One, &queue(4, 4096));
        channel.send(Buffer::new(1, 0, 1000));
        channel.until_delivered(1);
    }
}

pub fn impossible_landing_place_is_refused<B: BusUnderTest>() {
    let mut pair = Pair::<B>::up();
    for (at, landing) in [&b""[..], b"x", &[0xff; 7], &[0xff; 200], &[0; 10_000]]
        .into_iter()
        .enumerate()
    {
        let channel = busway_transport::ChannelId(1000 + at as u32);
        let result = pair
            .host(Side::One)
            .link
            .open_sender(channel, &queue(4, 4096), landing, LANE);
        assert!(
            matches!(result, Err(OpenError::BadLanding(_))),
            "{landing:?}: {result:?}"
        );
    }
    let mut channel = pair.open(Side::One, &queue(4, 4096));
    channel.send(Buffer::new(1, 0, 1000));
    channel.until_delivered(1);
}

pub fn a_peer_of_another_protocol_version_is_refused_with_one_line<B: BusUnderTest>() {
    for side in Side::BOTH {
        let mut pair = Pair::<B>::empty();
        let impostor = pair.bus.other_version(side);
        pair.start(side.other());
        let why = pair.until("the peer is refused", |pair| {
            pair.host(side.other()).take_refused()
        });
        assert!(why.contains("version"), "{why}");
        assert_eq!(why.lines().count(), 1, "{why}");
        for _ in 0..100 {
            pair.poll();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(pair.host(side.other()).take_refused(), None, "it is said once");
        drop(impostor);
        pair.bus.clean();
        pair.start(side);
        pair.wait_up();
    }
}

pub fn a_peer_of_another_name_is_refused_with_one_line<B: BusUnderTest>() {
    let mut pair = Pair::<B>::empty();
    pair.start(Side::Two);
    let mut stranger = identity(Side::One);
    stranger.host = "stranger".into();
    let mut link = pair.bus.open(Side::One, stranger);
    let why = pair.until("somebody refuses", |pair| {
        let of_stranger =
            std::iter::from_fn(|| link.poll(std::time::Instant::now())).find_map(|event| match event {
                busway_transport::LinkEvent::Refused(why) => Some(why),
                _ => None,
            });
        of_stranger.or_else(|| pair.host(Side::Two).take_refused())
    });
    assert!(why.contains("stranger") || why.contains("one"), "{why}");
    assert_eq!(why.lines().count(), 1, "{why}");
    drop(link);
    pair.start(Side::One);
    pair.wait_up();
}

/// A sink that takes whatever comes, up to 1 MiB.
#[derive(Default)]
pub struct Anything {
    user_header: Vec<u8>,
    payload: Vec<u8>,
    pub delivered: u64,
}

impl busway_transport::Sink for Anything {
    fn land(&mut self, head: &busway_transport::Head) -> busway_transport::Verdict {
        if head.payload_bytes > 1 << 20 || head.user_header_bytes > 1 << 20 {
            return busway_transport::Verdict::Discard;
        }
        self.user_header = vec![0; head.user_header_bytes as usize];
        self.payload = vec![0; head.payload_bytes as usize];
        busway_transport::Verdict::Land
    }
    fn landing(&mut self) -> busway_transport::Landing<'_> {
        busway_transport::Landing {
            user_header: &mut self.user_header,
            payload: &mut self.payload,
        }
    }
    fn deliver(&mut self, _: &busway_transport::Head) {
        self.delivered += 1;
    }
    fn abandon(&mut self) {}
}
