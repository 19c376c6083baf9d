//! Pairs of UDP links in one process, and channels over them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use busway_buses::{Buses, link_settings, parse_host};
use busway_transport::{
    ChannelEnd, ChannelId, ChannelSpec, Link, LinkEvent, Message, Receiver, Sender, Sink,
};

use crate::contract::harness::{LANE, PATIENCE};

/// The links of the first and of the second host.
pub type Links<M> = [Box<dyn Link<M>>; 2];

/// Opens the links between two hosts and waits until they are up. The first host listens at
/// `address`; `settings` are added to both tables.
pub fn open_links<M: Message>(
    buses: [&Buses; 2],
    names: [&str; 2],
    address: SocketAddr,
    settings: &str,
) -> Links<M> {
    let own = [
        format!("listen = '{address}'"),
        format!("address = '{}'", address.ip()),
    ];
    let table = |at: usize| {
        let text = format!("heartbeat = '20ms'\n{}\n{settings}", own[at]);
        parse_host("udp", toml::from_str(&text).expect("TOML")).expect("a good table")
    };
    let mut links = [0, 1].map(|at| {
        let settings = link_settings("udp", table(at), table(1 - at), at == 0);
        settings.validate().expect("good settings");
        buses[at].open(&settings, names[1 - at]).expect("the link opens")
    });
    wait_up(&mut links);
    links
}

/// Polls both links until both are up.
pub fn wait_up<M: Message>(links: &mut Links<M>) {
    let mut up = [false; 2];
    poll_until(links, |at, event| {
        up[at] |= matches!(event, LinkEvent::Up(_));
        up == [true; 2]
    });
}

/// Polls both links until `done` returns true for an event.
pub fn poll_until<M: Message>(links: &mut Links<M>, mut done: impl FnMut(usize, LinkEvent<M>) -> bool) {
    let fails_at = Instant::now() + PATIENCE;
    loop {
        for (at, link) in links.iter_mut().enumerate() {
            while let Some(event) = link.poll(Instant::now()) {
                if done(at, event) {
                    return;
                }
            }
        }
        assert!(Instant::now() < fails_at, "no such event");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Opens a channel from the first host to the second. `reroute` may change the landing
/// description before the sender gets it.
pub fn open_channel<M: Message>(
    links: &mut Links<M>,
    id: ChannelId,
    spec: &ChannelSpec,
    sink: &mut dyn Sink,
    reroute: impl FnOnce(&mut Vec<u8>),
) -> (Box<dyn Sender<M>>, Box<dyn Receiver>) {
    let mut landing = links[1]
        .open_receiver(id, spec, LANE)
        .expect("the receiver opens");
    reroute(&mut landing);
    links[0]
        .open_sender(id, spec, &landing, LANE)
        .expect("the sender opens");
    let mut sender = None;
    let mut receiver: Option<Box<dyn Receiver>> = None;
    let fails_at = Instant::now() + PATIENCE;
    loop {
        for link in links.iter_mut() {
            match link.poll(Instant::now()) {
                Some(LinkEvent::Channel(_, _, Ok(ChannelEnd::Sender(end)))) => sender = Some(end),
                Some(LinkEvent::Channel(_, _, Ok(ChannelEnd::Receiver(end)))) => receiver = Some(end),
                Some(LinkEvent::Channel(direction, _, Err(why))) => panic!("{direction:?}: {why}"),
                None => {}
                Some(_) => panic!("the link ends or speaks before the channel is open"),
            }
        }
        // The receiver acknowledges a repeated opening if its first acknowledgement was lost.
        if let Some(receiver) = &mut receiver {
            receiver.poll(sink, usize::MAX).expect("the receiver is well");
        }
        match (sender, receiver) {
            (Some(sender), Some(receiver)) => return (sender, receiver),
            unfinished => (sender, receiver) = unfinished,
        }
        assert!(Instant::now() < fails_at, "the channel does not open");
        std::thread::sleep(Duration::from_micros(100));
    }
}
