//! Failures that once were found by runs of real gateways, step by step on two decision cores.
//!
//! [`Pair`] carries out actions at once and delivers control messages at once; bus ends and reports
//! of lanes come when a case says so.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use busway_system::System;
use busway_transport::Direction;

use super::world::description;
use crate::control::fact::LocalEvents;
use crate::control::flow::{InPhase, OutPhase};
use crate::control::link::LinkProfile;
use crate::control::{Action, Core, Fact, LocalService};
use crate::lane::{ChannelKey, Ending, FlowId, Report};
use crate::protocol::{self, CloseReason, ControlMessage};

const SENDER: usize = 0;
const RECEIVER: usize = 1;
const SYSTEM: &str = r#"
    [host.h0]
    [host.h1]
    [[link]]
    hosts = ["h0", "h1"]
    buses = ["tipc", "tcp"]
    tcp.h0 = { listen = "127.0.0.1:7400" }
"#;

struct Pair<'a> {
    cores: [Core<'a>; 2],
    now: Instant,
    /// What each core asked for, but for answers and messages.
    asked: [Vec<Action>; 2],
    messages: VecDeque<(usize, usize, ControlMessage)>,
}

impl<'a> Pair<'a> {
    fn new(system: &'a System) -> Pair<'a> {
        let now = Instant::now();
        let core = |host: usize| {
            let link = |bus| LinkProfile {
                number: 0,
                peer: format!("h{}", 1 - host),
                bus,
            };
            Core::new(system, &format!("h{host}"), vec![link("tipc"), link("tcp")], now)
        };
        Pair {
            cores: [core(0), core(1)],
            now,
            asked: [Vec::new(), Vec::new()],
            messages: VecDeque::new(),
        }
    }

    fn fact(&mut self, host: usize, fact: Fact) {
        self.cores[host].handle(fact, self.now);
        self.settle(host);
        self.deliver();
    }

    fn deliver(&mut self) {
        while let Some((to, link, message)) = self.messages.pop_front() {
            self.cores[to].handle(Fact::Control { link, message }, self.now);
            self.settle(to);
        }
    }

    fn settle(&mut self, host: usize) {
        loop {
            self.cores[host].decide(self.now);
            while let Some(action) = self.cores[host].next_action() {
                self.carry_out(host, action);
            }
            if !self.cores[host].is_dirty() {
                break;
            }
        }
    }

    fn carry_out(&mut self, host: usize, action: Action) {
        let result = Ok(());
        let answer = match &action {
            Action::Send { link, message } => {
                self.messages.push_back((1 - host, *link, message.clone()));
                None
            }
            Action::HoldService { flow, .. } => Some(Fact::ServiceHeld {
                flow: *flow,
                result: Ok(()),
            }),
            Action::MakePublisher { flow, .. } => Some(Fact::PublisherMade {
                flow: *flow,
                result,
                was_there: false,
            }),
            Action::MakeSubscriber { flow, .. } => Some(Fact::SubscriberMade { flow: *flow, result }),
            Action::OpenReceiver { key, .. } => Some(Fact::ReceiverOpened {
                key: *key,
                result: Ok(Vec::new()),
            }),
            Action::OpenSender { key, .. } => Some(Fact::SenderOpened { key: *key, result }),
            _ => None,
        };
        self.asked[host].push(action);
        if let Some(answer) = answer {
            self.cores[host].handle(answer, self.now);
        }
    }

    fn link_up(&mut self, link: usize) {
        for host in 0..2 {
            let fact = Fact::LinkUp {
                link,
                application: protocol::application(),
                may_lose: false,
                silence_timeout: Duration::from_secs(1),
            };
            // Nothing is delivered before both ends are up.
            self.cores[host].handle(fact, self.now);
            self.settle(host);
        }
        self.deliver();
    }

    fn link_down(&mut self, host: usize, link: usize) {
        let reason = "cut".to_string();
        self.fact(host, Fact::LinkDown { link, reason });
    }

    fn programs(&mut self, host: usize, publishers: usize, subscribers: usize) {
        let nodes = publishers + subscribers;
        let programs = (nodes > 0).then(|| LocalService {
            description: description(0),
            nodes,
            publishers,
            subscribers,
            longest_bytes: (publishers > 0).then_some(64),
        });
        let fact = Fact::Local {
            service: description(0).name,
            programs,
            events: LocalEvents::default(),
        };
        self.fact(host, fact);
    }

    fn end_ready(&mut self, host: usize, direction: Direction, key: ChannelKey, result: Result<(), String>) {
        let fact = Fact::EndReady {
            direction,
            key,
            result,
        };
        self.fact(host, fact);
    }

    /// The receiver's only channel, and where it stands.
    fn inbound(&self) -> (ChannelKey, InPhase) {
        let flow = self.cores[RECEIVER].flow(FLOW).expect("the service is known");
        assert_eq!(flow.inbound.len(), 1, "{:?}", flow.inbound);
        let (key, channel) = flow.inbound.first_key_value().expect("one");
        (*key, channel.phase)
    }

    /// The sender's channels, and where they stand.
    fn outbound(&self) -> Vec<(ChannelKey, OutPhase)> {
        let flow = self.cores[SENDER].flow(FLOW).expect("the service is known");
        let phases = flow
            .outbound
            .iter()
            .map(|(key, channel)| (*key, channel.phase.clone()));
        phases.collect()
    }

    /// Both ends are made, and the lanes have them.
    fn finish_opening(&mut self) -> ChannelKey {
        let (key, _) = self.inbound();
        self.end_ready(SENDER, Direction::Send, key, Ok(()));
        self.end_ready(RECEIVER, Direction::Receive, key, Ok(()));
        self.fact(RECEIVER, Fact::Lane(Report::ReceiverAdded { flow: FLOW, key }));
        assert_eq!(self.inbound(), (key, InPhase::Active));
        key
    }

    fn sender_ended(&mut self, key: ChannelKey) {
        self.sender_ended_with(key, None);
    }

    fn sender_ended_with(&mut self, key: ChannelKey, failure: Option<String>) {
        let report = Report::SenderEnded {
            flow: FLOW,
            key,
            unacknowledged: 0,
            failure,
        };
        self.fact(SENDER, Fact::Lane(report));
    }

    fn receiver_ended(&mut self, key: ChannelKey, failure: Option<String>) {
        let report = Report::ReceiverEnded {
            flow: FLOW,
            key,
            failure,
        };
        self.fact(RECEIVER, Fact::Lane(report));
    }

    fn has_asked(&self, host: usize, action: &Action) -> bool {
        self.asked[host].contains(action)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for host in 0..2 {
            self.cores[host].tick(self.now);
            self.settle(host);
        }
        self.deliver();
    }
}

const FLOW: FlowId = FlowId::Service(0);
const DROP_SUBSCRIBER: Action = Action::DropSubscriber { flow: FLOW };

fn system() -> System {
    System::parse(SYSTEM, Path::new("cases.toml")).expect("a system file of our own")
}

/// A program publishes on one host, one subscribes on the other, and this link is up.
fn wanted(system: &System, link: usize) -> Pair<'_> {
    let mut pair = Pair::new(system);
    pair.link_up(link);
    pair.programs(SENDER, 1, 0);
    pair.programs(RECEIVER, 0, 1);
    pair
}

#[test]
fn receiver_still_opening_when_a_better_link_returns_moves_without_a_loss() {
    let system = system();
    let mut pair = wanted(&system, 1);
    let (old, _) = pair.inbound();
    pair.end_ready(SENDER, Direction::Send, old, Ok(()));
    pair.link_up(0);
    assert_eq!(pair.inbound(), (old, InPhase::Abandoned));
    let ending = Action::EndSender {
        flow: FLOW,
        key: old,
        ending: Ending::Moved,
    };
    assert!(pair.has_asked(SENDER, &ending), "{:?}", pair.asked[SENDER]);
    // The bus makes the end after all: it acknowledges what arrives, for the sender waits for that.
    pair.end_ready(RECEIVER, Direction::Receive, old, Ok(()));
    let acknowledge = Action::AcknowledgeReceiver { flow: FLOW, key: old };
    assert!(pair.has_asked(RECEIVER, &acknowledge));
    pair.sender_ended(old);
    assert_eq!(pair.inbound(), (old, InPhase::Draining));
    pair.receiver_ended(old, None);
    let new = pair.finish_opening();
    assert_eq!((new.link, pair.outbound()), (0, vec![(new, OutPhase::Active)]));
    assert!(!pair.has_asked(SENDER, &DROP_SUBSCRIBER));
}

#[test]
fn flapping_link_is_not_taken_until_it_has_stood_for_a_second() {
    let system = system();
    let mut pair = wanted(&system, 1);
    let over_tcp = pair.finish_opening();
    for _ in 0..20 {
        pair.link_up(0);
        pair.pass(Duration::from_millis(20));
        for host in [SENDER, RECEIVER] {
            pair.link_down(host, 0);
        }
        pair.pass(Duration::from_millis(20));
    }
    // The first return is followed: nothing was known of the link then.
    let opened: Vec<_> = pair.asked[RECEIVER]
        .iter()
        .filter(|action| matches!(action, Action::OpenReceiver { key, .. } if key.link == 0))
        .collect();
    assert!(opened.len() <= 1, "{opened:?}");
    pair.link_up(0);
    pair.pass(Duration::from_millis(900));
    assert_eq!(pair.inbound().0, over_tcp);
    pair.pass(Duration::from_millis(200));
    assert!(matches!(pair.inbound().1, InPhase::Closing));
}

#[test]
fn program_gone_between_offer_and_open_is_refused_and_nothing_is_left() {
    let system = system();
    let mut pair = Pair::new(&system);
    pair.link_up(0);
    pair.programs(RECEIVER, 0, 1);
    let open = ControlMessage::Open {
        channel: 7,
        service: description(0).name,
        spec: protocol::Spec {
            depth: Some(8),
            message_bytes: 128,
        },
        landing: Vec::new(),
        large_from_bytes: None,
    };
    pair.fact(
        SENDER,
        Fact::Control {
            link: 0,
            message: open,
        },
    );
    let refusals = pair.asked[SENDER].iter().filter(|action| {
        matches!(action, Action::Send { message: ControlMessage::Closed { channel: 7, reason: Some(reason) }, .. }
            if reason == "no program here has it open")
    });
    assert_eq!(refusals.count(), 1);
    assert_eq!(pair.outbound(), []);
    assert_eq!(
        pair.cores[SENDER].flow_of(Direction::Send, pair.cores[SENDER].key(0, 7)),
        None
    );
}

#[test]
fn late_report_of_a_lost_channel_does_not_end_its_successor() {
    let system = system();
    let mut pair = wanted(&system, 0);
    let old = pair.finish_opening();
    pair.link_down(SENDER, 0);
    // The receiving gateway was killed: its successor begins to number channels anew.
    let fresh = Pair::new(&system).cores;
    let [_, receiver] = fresh;
    pair.cores[RECEIVER] = receiver;
    pair.link_up(0);
    pair.programs(RECEIVER, 0, 1);
    let (key, _) = pair.inbound();
    assert_eq!(key.channel, old.channel, "the case is about equal numbers");
    let new = pair.cores[SENDER].key(0, key.channel);
    pair.end_ready(SENDER, Direction::Send, new, Ok(()));
    pair.sender_ended(old);
    assert_eq!(pair.outbound(), [(new, OutPhase::Active)]);
}

#[test]
fn publisher_back_before_its_drained_channel_ended_keeps_the_subscriber() {
    let system = system();
    let mut pair = wanted(&system, 0);
    let key = pair.finish_opening();
    pair.programs(SENDER, 0, 1);
    let ending = Action::EndSender {
        flow: FLOW,
        key,
        ending: Ending::Drained,
    };
    assert!(pair.has_asked(SENDER, &ending));
    pair.programs(SENDER, 1, 1);
    pair.sender_ended(key);
    assert!(!pair.has_asked(SENDER, &DROP_SUBSCRIBER));
    pair.receiver_ended(key, None);
    pair.finish_opening();
    assert!(!pair.has_asked(SENDER, &DROP_SUBSCRIBER));
}

#[test]
fn failed_receiving_end_is_opened_anew_and_its_sender_keeps_the_subscriber() {
    let system = system();
    let mut pair = wanted(&system, 0);
    let key = pair.finish_opening();
    pair.receiver_ended(key, Some("overwritten".into()));
    let close = ControlMessage::Close {
        channel: key.channel,
        reason: CloseReason::Failed,
    };
    assert!(pair.has_asked(
        RECEIVER,
        &Action::Send {
            link: 0,
            message: close
        }
    ));
    assert_eq!(pair.outbound(), [(key, OutPhase::Failed)]);
    pair.sender_ended(key);
    let again = pair.finish_opening();
    assert_ne!(again, key);
    assert!(!pair.has_asked(SENDER, &DROP_SUBSCRIBER));
}

#[test]
fn receiving_end_refused_while_its_sender_opens_keeps_the_subscriber() {
    let system = system();
    let mut pair = wanted(&system, 0);
    let (key, _) = pair.inbound();
    pair.end_ready(RECEIVER, Direction::Receive, key, Err("no queue pair".into()));
    assert!(!pair.has_asked(SENDER, &DROP_SUBSCRIBER));
    assert_eq!(pair.inbound().1, InPhase::Opening);
}

#[test]
fn sender_logs_why_it_failed_also_where_receiver_noticed_first() {
    let failure = "work on the queue pair failed: remote invalid request error (9)";
    let warned = |pair: &Pair<'_>| {
        let asked = pair.asked[SENDER].iter();
        asked
            .filter(|it| matches!(it, Action::Warn(text) if text.contains(failure)))
            .count()
    };
    for receiver_notices_first in [false, true] {
        let system = system();
        let mut pair = wanted(&system, 1);
        let key = pair.finish_opening();
        if receiver_notices_first {
            pair.receiver_ended(key, Some("the queue pair broke".into()));
        }
        pair.sender_ended_with(key, Some(failure.into()));
        assert_eq!(warned(&pair), 1, "{receiver_notices_first}");
    }
}
