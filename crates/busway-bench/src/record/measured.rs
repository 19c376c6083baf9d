//! What one program of an experiment counted: reported by the program, merged into rows by the
//! experiment.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub corrupt: u64,
    /// Those of `corrupt` that were whole, but came late or twice.
    #[serde(default)]
    pub out_of_order: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub times: Option<String>,
    pub usage: Used,
    #[serde(default)]
    pub maxima: Vec<Maximum>,
    #[serde(default)]
    pub interruptions: Vec<Interruption>,
}

/// Sums from the beginning to the end of counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    pub span_s: f64,
    pub user_s: f64,
    pub system_s: f64,
    pub host_user_s: f64,
    pub host_system_s: f64,
    pub host_interrupt_s: f64,
    pub packets_sent: Option<u64>,
    pub packets_received: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Maximum {
    pub at_s: f64,
    pub rtt_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interruption {
    pub at_s: f64,
    pub lasted_s: f64,
    pub reason: String,
}
