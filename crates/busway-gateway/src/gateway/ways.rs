//! By which links a service comes from another host: all of it by one, or what is large by another.
//!
//! Chosen by the receiving side, which opens channels, out of the links that are up. Called by `reconcile`.

use std::collections::HashMap;
use std::time::Instant;

use busway_system::{KeepRule, System};

use super::links::LinkState;
use super::rest::Rests;
use super::service::{InChannel, InPhase, InState, Plan};
use crate::lane::ChannelKey;

/// What a service takes from one host to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    /// Index of the link for everything, or for all that is not large.
    pub(super) main: usize,
    /// Another one for what is large.
    pub(super) large: Option<LargeWay>,
}

/// The link for what is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargeWay {
    /// Its index.
    pub(super) link: usize,
    /// Payload in bytes from which on a message takes it.
    pub(super) from_bytes: u64,
}

/// How a service may come.
pub(super) struct Choice<'a> {
    pub(super) system: &'a System,
    pub(super) links: &'a [LinkState],
    pub(super) plan: &'a Plan,
    /// Links that are taken only if there is no other.
    pub(super) rests: &'a Rests,
    /// Whether its messages may have any length: else all are as long as the longest.
    pub(super) is_any_length: bool,
    pub(super) now: Instant,
}

impl Choice<'_> {
    /// The best of the links to one host that are up: `candidates` are their indices, each with the length in bytes of the longest message that is
    /// offered over it.
    pub(super) fn ways(&self, candidates: &[(usize, u64)]) -> Option<Ways> {
        let whole = || self.best(candidates.iter().copied());
        if !self.is_any_length || !self.plan.buses.is_empty() {
            return Some(Ways {
                main: whole()?,
                large: None,
            });
        }
        let main = self.best(candidates.iter().map(|&(link, _)| (link, 0)))?;
        let large = self.large_beside(main, candidates);
        // What one of them loses, the other would wait for; what keeps the latest waits for nothing.
        let may_lose = |link: usize| self.links[link].link.may_lose();
        let keeps_latest = self.plan.keep == Some(KeepRule::Latest);
        if large.is_some_and(|large| !keeps_latest && (may_lose(main) || may_lose(large.link))) {
            return Some(Ways {
                main: whole()?,
                large: None,
            });
        }
        Some(Ways { main, large })
    }

    /// The link that what is large takes rather than `main`. While none of those for it is up, `main` takes it too.
    fn large_beside(&self, main: usize, candidates: &[(usize, u64)]) -> Option<LargeWay> {
        let number = self.links[main].number;
        let from_bytes = self.system.links[number].large.as_ref()?.from_bytes;
        let fits = |&&(link, longest_bytes): &&(usize, u64)| {
            self.links[link].number == number && longest_bytes >= from_bytes
        };
        let link = self.best(candidates.iter().filter(fits).copied())?;
        (link != main).then_some(LargeWay { link, from_bytes })
    }

    /// Of these links, the one that is best for messages of that length.
    fn best(&self, candidates: impl Iterator<Item = (usize, u64)>) -> Option<usize> {
        let ranked = candidates.filter_map(|(index, bytes)| {
            let link = &self.links[index];
            let of_system = (link.number, &self.system.links[link.number]);
            let rank = self.plan.rank_of(of_system, link.bus(), bytes)?;
            Some((self.rests.has(index, self.now), rank, index))
        });
        ranked.min().map(|(.., index)| index)
    }
}

/// The channel to open next from a host, if one is missing: its link, and from which length on messages take it if it is the one for what is large.
pub(super) fn missing(inbound: Option<&InState>, peer: &str, ways: Ways) -> Option<(usize, Option<u64>)> {
    // One that is still ending, over this link or another, delivers its last messages before the next one begins: that keeps the order, and
    // nothing comes twice.
    if inbound.is_none_or(|inbound| inbound.channels_from(peer).next().is_none()) {
        return Some((ways.main, None));
    }
    let LargeWay { link, from_bytes } = ways.large?;
    let is_alone = |(key, channel): (&ChannelKey, &InChannel)| {
        !channel.is_large && channel.phase == InPhase::Active && key.link == ways.main
    };
    inbound?
        .channels_from(peer)
        .all(is_alone)
        .then_some((link, Some(from_bytes)))
}

/// Whether a channel takes the link that it should. One for what is large is as good as the main one beside it.
pub(super) fn is_right(
    inbound: &InState,
    key: ChannelKey,
    channel: &InChannel,
    wanted: &HashMap<String, Ways>,
) -> bool {
    wanted.get(&channel.peer).is_some_and(|ways| {
        if channel.is_large {
            ways.large.is_some_and(|large| large.link == key.link)
                && inbound.has_main_over(&channel.peer, ways.main)
        } else {
            ways.main == key.link
        }
    })
}
