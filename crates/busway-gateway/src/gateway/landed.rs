//! Sampling channels over a bus by which the sending host writes the register in the receiving
//! host's port store.
//!
//! Nobody moves messages at the receiving host: its end of such a channel lies here, on the control
//! thread, which only notices that it has ended. The sending end is in its lane as any other, or in
//! a process of the source's partition ([`super::own_writers`]).
//!
//! Both ends outlive the conversation: while a gateway is stopped, or a link is down that no other
//! replaces, what is written still arrives. Such an end is *detached*: the decision core knows
//! nothing of it. It is dropped before the next channel of its flow opens, so that the register
//! never has two writers, and when its queue pair ends. Called by [`super`] and [`super::ports`].

use std::collections::HashMap;

use busway_port::carry::PortReceiver;
use busway_transport::{ChannelError, Head, Landing, Receiver, Sink, Verdict};

use crate::lane::{ChannelKey, FlowId};

/// A receiving end.
struct LandedEnd {
    key: ChannelKey,
    /// `None` once it has ended.
    receiver: Option<Box<dyn Receiver>>,
    /// Knows how many messages were written.
    port: PortReceiver,
    is_detached: bool,
}

/// See the module.
#[derive(Default)]
pub struct Landed {
    ends: HashMap<FlowId, LandedEnd>,
    /// Detached sending ends, which lanes have.
    senders: HashMap<FlowId, ChannelKey>,
}

/// A receiving end that has ended by itself.
pub struct Ended {
    pub flow: FlowId,
    pub key: ChannelKey,
    pub failure: ChannelError,
}

impl Landed {
    /// Adds a receiving end. Whoever was there has been [removed](Self::remove).
    pub fn add(&mut self, flow: FlowId, key: ChannelKey, receiver: Box<dyn Receiver>, port: PortReceiver) {
        let end = LandedEnd {
            key,
            receiver: Some(receiver),
            port,
            is_detached: false,
        };
        self.ends.insert(flow, end);
    }

    /// Drops a receiving end: the other host can't write any more. Returns how many messages it
    /// wrote, if there was one.
    pub fn remove(&mut self, flow: FlowId) -> Option<u64> {
        let end = self.ends.remove(&flow)?;
        drop(end.receiver);
        Some(end.port.landed())
    }

    /// Whether there is a receiving end of this channel.
    pub fn has(&self, flow: FlowId, key: ChannelKey) -> bool {
        self.ends.get(&flow).is_some_and(|end| end.key == key)
    }

    /// The receiving end stays, though its conversation has ended.
    pub fn detach(&mut self, flow: FlowId) {
        if let Some(end) = self.ends.get_mut(&flow) {
            end.is_detached = true;
        }
    }

    /// The sending end stays in its lane, though its conversation has ended.
    pub fn detach_sender(&mut self, flow: FlowId, key: ChannelKey) {
        self.senders.insert(flow, key);
    }

    /// A lane has dropped a sending end.
    pub fn sender_ended(&mut self, flow: FlowId, key: ChannelKey) {
        if self.senders.get(&flow) == Some(&key) {
            self.senders.remove(&flow);
        }
    }

    /// Whether the lane had a detached sending end, which is to be ended now.
    pub fn take_sender(&mut self, flow: FlowId) -> bool {
        self.senders.remove(&flow).is_some()
    }

    /// Whether a detached end of this flow may still carry messages.
    pub fn is_detached(&self, flow: FlowId) -> bool {
        let receives = self.ends.get(&flow);
        receives.is_some_and(|end| end.is_detached) || self.senders.contains_key(&flow)
    }

    /// Messages that the other host has written since the channel was opened.
    pub fn written(&self, flow: FlowId) -> u64 {
        self.ends.get(&flow).map_or(0, |end| end.port.landed())
    }

    /// Whether there are receiving ends to look at now and then.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Looks for receiving ends whose queue pair has ended, and drops their memory's registration.
    /// Returns those that the decision core knows.
    pub fn look(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        for (&flow, end) in &mut self.ends {
            let polled = end
                .receiver
                .as_mut()
                .map(|receiver| receiver.poll(&mut Nothing, 1));
            let Some(Err(failure)) = polled else { continue };
            end.receiver = None;
            if !end.is_detached {
                let key = end.key;
                ended.push(Ended { flow, key, failure });
            }
        }
        self.ends
            .retain(|_, end| end.receiver.is_some() || !end.is_detached);
        ended
    }
}

/// The receiving ends deliver nothing.
struct Nothing;

impl Sink for Nothing {
    fn land(&mut self, _head: &Head) -> Verdict {
        Verdict::Discard
    }

    fn landing(&mut self) -> Landing<'_> {
        Landing {
            user_header: &mut [],
            payload: &mut [],
        }
    }

    fn deliver(&mut self, _head: &Head) {}

    fn abandon(&mut self) {}
}
