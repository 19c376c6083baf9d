//! Gives this host's ends of channels of ports their turns.
//!
//! Called by the lane; never blocks.

use busway_transport::WaitFor;

use super::fan_out::FanOut;
use super::inbound::InboundPort;
use super::outbound::OutboundPort;
use crate::lane::interface::{FlowId, Report};

#[derive(Default)]
pub struct PortChannels {
    fans: Vec<FanOut>,
    inputs: Vec<(FlowId, Box<InboundPort>)>,
}

impl PortChannels {
    /// Adds a receiving end.
    pub fn add_inbound(&mut self, flow: FlowId, port: Box<InboundPort>) {
        self.inputs.push((flow, port));
    }

    /// Adds a sending end: to a fan-out of its source that can share messages with it, or to a new
    /// one.
    pub fn add_outbound(&mut self, flow: FlowId, out: Box<OutboundPort>) {
        let out = match self.fans.iter_mut().find(|fan| fan.suits(&out)) {
            Some(fan) => match fan.add(flow, out) {
                Ok(()) => return,
                Err(out) => out,
            },
            None => out,
        };
        let mut fan = FanOut::default();
        // An empty one takes any.
        let _ = fan.add(flow, out);
        self.fans.push(fan);
    }

    /// Ends the channel of a flow.
    pub fn end(&mut self, flow: FlowId, reports: &mut Vec<Report>) {
        self.fans.retain_mut(|fan| {
            fan.end(flow, reports);
            !fan.is_empty()
        });
        self.inputs.retain(|(id, input)| {
            if *id == flow {
                reports.push(ended(flow, input, None));
            }
            *id != flow
        });
    }

    /// Gives every channel its turn; removes those that have failed. `is_unrung`: the lane woke up
    /// although no doorbell rang. `eager`: reads descriptors although epoll has reported none.
    /// Returns the number of messages moved.
    pub fn turn(&mut self, is_unrung: bool, eager: bool, reports: &mut Vec<Report>) -> usize {
        let mut moved = 0;
        self.fans.retain_mut(|fan| {
            moved += fan.pump(is_unrung, reports);
            !fan.is_empty()
        });
        self.inputs.retain_mut(|(flow, input)| {
            let awaits_ring = is_unrung && input.waits_for_room();
            match input.pump(eager) {
                Ok(messages) => {
                    if awaits_ring && messages > 0 {
                        input.note_unrung(messages);
                    }
                    moved += messages;
                    true
                }
                Err(error) => {
                    reports.push(ended(*flow, input, Some(error.to_string())));
                    false
                }
            }
        });
        moved
    }

    /// Asks for doorbells from now on; the lane must poll once more before it sleeps.
    pub fn arm(&mut self) {
        self.senders().for_each(OutboundPort::arm);
        self.inputs.iter_mut().for_each(|(_, input)| input.arm());
    }

    /// The lane is awake.
    pub fn disarm(&self) {
        let senders = self.senders().filter_map(OutboundPort::doorbell);
        let inputs = self.inputs.iter().filter_map(|(_, input)| input.doorbell());
        senders.chain(inputs).for_each(|doorbell| doorbell.disarm());
    }

    /// epoll reports a descriptor of this flow.
    pub fn set_ready(&mut self, flow: FlowId) {
        if let Some(out) = self.fans.iter().find_map(|fan| fan.port_of(flow)) {
            out.set_ready();
        }
        for (_, input) in self.inputs.iter_mut().filter(|(id, _)| *id == flow) {
            input.set_ready();
        }
    }

    /// How to wait for channels that wait for the other host or for the bus.
    pub fn blocked(&self) -> impl Iterator<Item = WaitFor> + '_ {
        let waiting = self.senders().filter(|out| out.awaits_credit());
        waiting.map(OutboundPort::wait_for)
    }

    /// How to wait for messages that arrive.
    pub fn arrivals(&self) -> impl Iterator<Item = WaitFor> + '_ {
        self.inputs.iter().map(|(_, input)| input.wait_for())
    }

    /// Whether some channel must be polled since nothing wakes the lane.
    pub fn is_polled(&self) -> bool {
        self.senders().any(OutboundPort::is_polled) || self.inputs.iter().any(|(_, input)| input.is_polled())
    }

    fn senders(&self) -> impl Iterator<Item = &OutboundPort> {
        self.fans.iter().flat_map(FanOut::ports)
    }
}

fn ended(flow: FlowId, input: &InboundPort, failure: Option<String>) -> Report {
    let key = input.key();
    Report::ReceiverEnded { flow, key, failure }
}
