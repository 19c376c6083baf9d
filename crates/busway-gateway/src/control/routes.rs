//! Which links a service takes from a host: one for all messages, or a second one for large
//! messages.
//!
//! The receiving side chooses, since it opens channels, among the links that are up. Called by
//! [`super::service_flow`].

use std::collections::BTreeMap;
use std::time::Instant;

use busway_system::{KeepRule, System};

use super::backoff::Backoff;
use super::link::Link;
use super::plan::Plan;

/// The links on which channels from one host shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routes {
    /// Index of the link for all messages, or for those that are not large.
    pub main: usize,
    /// Another one for large messages.
    pub large: Option<LargeRoute>,
}

/// The link for large messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeRoute {
    /// Its index.
    pub link: usize,
    /// Bytes of payload from which on a message takes it.
    pub from_bytes: u64,
}

/// The routes from each host whose messages are wanted.
pub type Wanted = BTreeMap<String, Routes>;

impl Routes {
    /// All messages over one link.
    pub fn whole(main: usize) -> Routes {
        Routes { main, large: None }
    }
}

/// What a choice depends on.
pub struct Choice<'a> {
    /// Orders of buses.
    pub system: &'a System,
    /// All links of this host.
    pub links: &'a [Link],
    /// The service's rule.
    pub plan: &'a Plan,
    /// Links that are taken only if there is no other.
    pub backoff: &'a Backoff,
    /// See [`super::plan::is_any_length`].
    pub is_any_length: bool,
    /// The time.
    pub now: Instant,
}

impl Choice<'_> {
    /// The best of the links to one host that are up. `candidates`: their indices, each with the
    /// length in bytes of the longest message that is offered over it.
    pub fn routes(&self, candidates: &[(usize, u64)]) -> Option<Routes> {
        let whole = || self.best(candidates.iter().copied()).map(Routes::whole);
        if !self.is_any_length || !self.plan.buses.is_empty() {
            return whole();
        }
        let main = self.best(candidates.iter().map(|&(link, _)| (link, 0)))?;
        let large = self.large_beside(main, candidates);
        // A queue over two links waits for what one of them loses. A channel that keeps the latest
        // waits for nothing.
        let may_lose = |link: usize| self.links[link].may_lose;
        let keeps_latest = self.plan.keep == Some(KeepRule::Latest);
        if large.is_some_and(|large| !keeps_latest && (may_lose(main) || may_lose(large.link))) {
            return whole();
        }
        Some(Routes { main, large })
    }

    /// The link for large messages where it is not `main`. While none of those for large messages
    /// is up, `main` takes them too.
    fn large_beside(&self, main: usize, candidates: &[(usize, u64)]) -> Option<LargeRoute> {
        let number = self.links[main].profile.number;
        let from_bytes = self.system.links[number].large.as_ref()?.from_bytes;
        let fits = |&&(link, longest_bytes): &&(usize, u64)| {
            self.links[link].profile.number == number && longest_bytes >= from_bytes
        };
        let link = self.best(candidates.iter().filter(fits).copied())?;
        (link != main).then_some(LargeRoute { link, from_bytes })
    }

    /// Of these links, the best one for messages of that length.
    fn best(&self, candidates: impl Iterator<Item = (usize, u64)>) -> Option<usize> {
        let ranked = candidates.filter_map(|(index, bytes)| {
            let profile = &self.links[index].profile;
            let of_system = (profile.number, &self.system.links[profile.number]);
            let rank = self.plan.rank_of(of_system, profile.bus, bytes)?;
            Some((self.backoff.has(index, self.now), rank, index))
        });
        ranked.min().map(|(.., index)| index)
    }
}
