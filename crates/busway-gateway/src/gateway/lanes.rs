//! The lanes of this gateway: those of the system file, and one for each flow whose publisher may
//! wait.
//!
//! A publisher that waits for a slow local reader blocks its lane, so it has a lane of its own and
//! delays no other flow. Called by [`super`] and [`super::services`].

use busway_system::Lane as LaneSettings;

use crate::lane::{Lane, ReportSender};

/// See the module.
pub struct Lanes {
    shared: Vec<Lane>,
    settings: Vec<LaneSettings>,
    /// Lanes of single flows that were asked to end, with their numbers.
    ending: Vec<(Lane, u32)>,
    free_numbers: Vec<u32>,
    next_number: u32,
    reports: ReportSender,
}

/// Which lane a flow's inbound half is in.
pub enum InLane {
    /// One of the configured lanes.
    Shared(usize),
    /// One of its own; with its number.
    Own(Lane, u32),
}

impl InLane {
    /// The lane.
    pub fn lane<'a>(&'a self, lanes: &'a Lanes) -> &'a Lane {
        match self {
            InLane::Shared(index) => lanes.shared(*index),
            InLane::Own(lane, _) => lane,
        }
    }

    /// Its number, by which buses distinguish lanes.
    pub fn number(&self) -> u32 {
        match self {
            InLane::Shared(index) => *index as u32,
            InLane::Own(_, number) => *number,
        }
    }
}

impl Lanes {
    /// Starts the configured lanes.
    ///
    /// # Errors
    /// No thread or descriptor left.
    pub fn start(settings: &[LaneSettings], reports: ReportSender) -> std::io::Result<Lanes> {
        let start = |lane: &LaneSettings| Lane::start(lane.clone(), reports.clone());
        let shared = settings.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        Ok(Lanes {
            next_number: shared.len() as u32,
            shared,
            settings: settings.to_vec(),
            ending: Vec::new(),
            free_numbers: Vec::new(),
            reports,
        })
    }

    /// A configured lane.
    pub fn shared(&self, index: usize) -> &Lane {
        &self.shared[index]
    }

    /// All configured lanes.
    pub fn all(&self) -> &[Lane] {
        &self.shared
    }

    /// The configured lane of this number, if it is one's.
    pub fn shared_by_number(&self, number: u32) -> Option<&Lane> {
        self.shared.get(number as usize)
    }

    /// Starts a lane for one flow, with the settings of a configured one.
    ///
    /// # Errors
    /// No thread or descriptor left.
    pub fn start_own(&mut self, name: &str, like: usize) -> std::io::Result<InLane> {
        let number = self.free_numbers.pop().unwrap_or_else(|| {
            self.next_number += 1;
            self.next_number - 1
        });
        let settings = LaneSettings {
            name: name.to_string(),
            ..self.settings[like].clone()
        };
        let lane = Lane::start(settings, self.reports.clone())?;
        Ok(InLane::Own(lane, number))
    }

    /// Ends the lane of one flow; its number is free once its thread has ended.
    pub fn end_own(&mut self, lane: Lane, number: u32) {
        lane.stop();
        self.ending.push((lane, number));
    }

    /// Whether lanes of single flows are still ending.
    pub fn are_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Takes back the numbers of lanes whose threads have ended.
    pub fn collect_ended(&mut self) {
        let free = &mut self.free_numbers;
        self.ending.retain(|(lane, number)| {
            if lane.is_finished() {
                free.push(*number);
            }
            !lane.is_finished()
        });
    }

    /// Ends all and waits for their threads.
    pub fn join(self) {
        for lane in self.shared {
            lane.join();
        }
        for (lane, _) in self.ending {
            lane.join();
        }
    }
}
