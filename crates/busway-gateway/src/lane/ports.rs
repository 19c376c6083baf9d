//! This host's ends of channels of ARINC 653 ports, as far as one lane serves them.
//!
//! Called by the lane; never blocks.

use busway_transport::WaitFor;

use super::port_fan::PortFan;
use super::port_in::PortIn;
use super::port_out::PortOut;
use super::{FlowId, PortEnd, Report, ReportKind};

/// See the module.
#[derive(Default)]
pub struct Ports {
    fans: Vec<PortFan>,
    inputs: Vec<(FlowId, Box<PortIn>)>,
}

impl Ports {
    /// Adds the end of a channel.
    pub fn add(&mut self, flow: FlowId, end: PortEnd) {
        match end {
            PortEnd::Out(out) => self.add_out(flow, out),
            PortEnd::In(input) => self.inputs.push((flow, input)),
        }
    }

    fn add_out(&mut self, flow: FlowId, out: Box<PortOut>) {
        let out = match self.fans.iter_mut().find(|fan| fan.suits(&out)) {
            Some(fan) => match fan.add(flow, out) {
                Ok(()) => return,
                Err(out) => out,
            },
            None => out,
        };
        let mut fan = PortFan::default();
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

    /// Gives every channel its turn; one that has failed is given up. `is_unrung`: the lane awoke although nobody rang. `eager` reads descriptors even
    /// though epoll has said nothing. Returns the number of messages moved.
    pub fn turn(&mut self, is_unrung: bool, eager: bool, reports: &mut Vec<Report>) -> usize {
        let mut moved = 0;
        self.fans.retain_mut(|fan| {
            moved += fan.pump(is_unrung, reports);
            !fan.is_empty()
        });
        self.inputs.retain_mut(|(flow, input)| {
            let awaits_ring = is_unrung && input.awaits_room();
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

    /// From now on whoever has work for an end rings; the lane looks once more before it sleeps.
    pub fn arm(&mut self) {
        self.outs().for_each(PortOut::arm);
        self.inputs.iter_mut().for_each(|(_, input)| input.arm());
    }

    /// The lane is awake.
    pub fn disarm(&self) {
        let outs = self.outs().filter_map(PortOut::bell);
        let inputs = self.inputs.iter().filter_map(|(_, input)| input.bell());
        outs.chain(inputs).for_each(|bell| bell.disarm());
    }

    /// epoll has said that there is something for the channel of a flow.
    pub fn set_ready(&mut self, flow: FlowId) {
        if let Some(out) = self.fans.iter().find_map(|fan| fan.out_of(flow)) {
            out.set_ready();
        }
        for (_, input) in self.inputs.iter_mut().filter(|(id, _)| *id == flow) {
            input.set_ready();
        }
    }

    /// How to learn that channels can go on that wait for the other host, or for the bus.
    pub fn blocked(&self) -> impl Iterator<Item = WaitFor> + '_ {
        let waiting = self.outs().filter(|out| out.awaits_credit());
        waiting.map(PortOut::wait_for)
    }

    /// How to learn that messages come.
    pub fn arrivals(&self) -> impl Iterator<Item = WaitFor> + '_ {
        self.inputs.iter().map(|(_, input)| input.wait_for())
    }

    /// Whether some channel must be looked at although nothing wakes the lane.
    pub fn is_polled(&self) -> bool {
        self.outs().any(PortOut::is_polled) || self.inputs.iter().any(|(_, input)| input.is_polled())
    }

    fn outs(&self) -> impl Iterator<Item = &PortOut> {
        self.fans.iter().flat_map(PortFan::outs)
    }
}

fn ended(flow: FlowId, input: &PortIn, reason: Option<String>) -> Report {
    Report {
        flow,
        key: input.key(),
        kind: ReportKind::ReceiverEnded,
        reason,
    }
}
