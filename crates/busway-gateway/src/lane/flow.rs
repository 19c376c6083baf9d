//! One service's data in one lane: the halves that send and receive, and their commands.
//!
//! Called by the lane's worker; never blocks, but where a publisher waits for local readers.

use std::time::Instant;

use super::command::{InboundCommand, OutboundCommand};
use super::inbound::Inbound;
use super::interface::{FlowId, Report};
use super::outbound::Outbound;

pub(super) struct Flow {
    pub(super) id: FlowId,
    pub(super) outbound: Option<Outbound>,
    pub(super) inbound: Option<Inbound>,
    /// When it last moved a message, or a descriptor of it became ready.
    pub(super) last_moved: Option<Instant>,
}

impl Flow {
    pub(super) fn new(id: FlowId) -> Flow {
        Flow {
            id,
            outbound: None,
            inbound: None,
            last_moved: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outbound.is_none() && self.inbound.is_none()
    }

    /// Moves what there is. Returns the number of messages.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        time_ns: u64,
        eager: bool,
        reports: &mut Vec<Report>,
    ) -> usize {
        let mut moved = 0;
        if let Some(inbound) = &mut self.inbound {
            moved += inbound.pump(now, eager, reports, self.id);
        }
        if let Some(outbound) = &mut self.outbound {
            moved += outbound.pump(now, time_ns, reports, self.id);
        }
        moved
    }

    /// A descriptor of the flow is ready.
    pub(super) fn set_ready(&mut self) {
        self.last_moved = Some(Instant::now());
        if let Some(inbound) = &mut self.inbound {
            inbound.set_ready();
        }
        if let Some(outbound) = &mut self.outbound {
            outbound.set_ready();
        }
    }

    pub(super) fn command_outbound(&mut self, command: OutboundCommand, reports: &mut Vec<Report>) {
        match (command, &mut self.outbound) {
            (OutboundCommand::Begin(setup), half) => *half = Some(Outbound::new(*setup)),
            (OutboundCommand::End, half) => *half = None,
            (_, None) => {}
            (
                OutboundCommand::AddSender {
                    key,
                    sender,
                    may_join,
                },
                Some(half),
            ) => {
                half.add(key, sender, may_join);
            }
            (OutboundCommand::AddLargeSender { main, large }, Some(half)) => {
                half.add_large(main, large, reports, self.id);
            }
            (OutboundCommand::EndSender { key, ending }, Some(half)) => half.end(key, ending, Instant::now()),
            (OutboundCommand::SetListener(listener), Some(half)) => half.set_listener(listener),
            (OutboundCommand::NoticePublishers, Some(half)) => half.notice_publishers(),
        }
    }

    pub(super) fn command_inbound(&mut self, command: InboundCommand, reports: &mut Vec<Report>) {
        let flow = self.id;
        if let InboundCommand::AddReceiver { key, .. } = command {
            // Also where the half has ended: the control thread then commands the channel's end.
            reports.push(Report::ReceiverAdded { flow, key });
        }
        match (command, &mut self.inbound) {
            (InboundCommand::Begin(setup), half) => *half = Some(Inbound::new(*setup)),
            (InboundCommand::End, half) => *half = None,
            (_, None) => {}
            (
                InboundCommand::AddReceiver {
                    key,
                    receiver,
                    continuity,
                    keeps_all,
                },
                Some(half),
            ) => half.add(key, receiver, continuity, keeps_all),
            (InboundCommand::AcknowledgeReceiver { key }, Some(half)) => half.acknowledge(key),
            (InboundCommand::EndReceiver { key }, Some(half)) => half.end(key, Instant::now()),
            (InboundCommand::ReplacePublisher(publisher), Some(half)) => half.replace_publisher(*publisher),
            (InboundCommand::SetNotifier(notifier), Some(half)) => half.set_notifier(notifier),
            (InboundCommand::NoticeSubscribers, Some(half)) => half.notice_subscribers(),
        }
    }
}
