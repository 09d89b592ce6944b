//! Service that each party got, so that nobody gains by asking more often.
//!
//! Start-time fair: a party that was away begins where the least served active one stands, so that it can neither save up
//! nor be made to wait for what it used while it was alone.

use std::collections::BTreeMap;

/// Parties remembered after they left.
const REMEMBERED_MAX: usize = 1024;

#[derive(Debug, Default)]
struct Party {
    /// Tokens computed for it.
    served: u64,
    /// Its requests that wait or run.
    active: u32,
}

/// All parties.
#[derive(Debug, Default)]
pub(crate) struct Parties(BTreeMap<u64, Party>);

impl Parties {
    /// A request of `party` arrived.
    pub(crate) fn enter(&mut self, party: u64) {
        let active = self.0.values().filter(|party| party.active > 0);
        let least = active.map(|party| party.served).min();
        let party = self.0.entry(party).or_default();
        if let (0, Some(least)) = (party.active, least) {
            party.served = party.served.max(least);
        }
        party.active += 1;
    }

    /// A request of `party` is gone.
    pub(crate) fn leave(&mut self, party: u64) {
        if let Some(party) = self.0.get_mut(&party) {
            party.active = party.active.saturating_sub(1);
        }
        if self.0.len() > REMEMBERED_MAX {
            let away = self.0.iter().filter(|(_, party)| party.active == 0);
            if let Some(least) = away.min_by_key(|(_, party)| party.served).map(|(id, _)| *id) {
                self.0.remove(&least);
            }
        }
    }

    /// Tokens were computed for `party`.
    pub(crate) fn charge(&mut self, party: u64, tokens: u32) {
        if let Some(party) = self.0.get_mut(&party) {
            party.served += u64::from(tokens);
        }
    }

    /// What it got so far.
    pub(crate) fn served(&self, party: u64) -> u64 {
        self.0.get(&party).map_or(0, |party| party.served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_away_starts_with_the_least_served() {
        let mut parties = Parties::default();
        parties.enter(1);
        parties.charge(1, 100);
        parties.enter(2);
        assert_eq!(parties.served(2), 100);
        parties.charge(2, 5);
        parties.leave(2);
        parties.charge(1, 50);
        parties.enter(2);
        assert_eq!(parties.served(2), 150);
        parties.charge(2, 500);
        parties.leave(2);
        parties.enter(2);
        assert_eq!(parties.served(2), 650, "what it got is not forgotten");
    }
}
