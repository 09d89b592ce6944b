//! Which lanes are alive, how long each is, and which dense slot it has. The engine behind it never sees a wrong id.

use crate::fault::{Code, Fault, Scope};

/// A live lane of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane {
    id: u64,
    slot: u16,
}

impl Lane {
    /// Dense index below `Shape::lanes_max`; reused after the lane is freed. Made for arrays and sequence ids.
    pub fn slot(self) -> usize {
        usize::from(self.slot)
    }

    /// The id the host knows it by; never reused.
    pub fn id(self) -> u64 {
        self.id
    }
}

/// Most lanes of a model: a slot is the low 16 bits of an id.
pub(crate) const LANES_MAX: u32 = 1 << 16;

#[derive(Debug)]
struct Entry {
    lane: Lane,
    len: u32,
    /// The step that fed it last, to find a lane that stands twice in one plan.
    stamp: u64,
}

#[derive(Debug)]
pub(crate) struct Lanes {
    slots: Vec<Option<Entry>>,
    free: Vec<u16>,
    serial: u64,
    live: u32,
}

impl Lanes {
    pub(crate) fn new(lanes_max: u32) -> Lanes {
        let count = lanes_max.min(LANES_MAX);
        let last = count.saturating_sub(1) as u16;
        Lanes {
            slots: (0..count).map(|_| None).collect(),
            free: if count == 0 { Vec::new() } else { (0..=last).rev().collect() },
            serial: 0,
            live: 0,
        }
    }

    pub(crate) fn live(&self) -> u32 {
        self.live
    }

    /// Takes a slot. [`Lanes::give_back`] undoes it.
    pub(crate) fn take(&mut self, len: u32) -> Result<Lane, Fault> {
        let Some(slot) = self.free.pop() else {
            return Err(Fault::new(Code::Capacity, format!("all {} lanes are in use", self.slots.len()))
                .field("lanes.max"));
        };
        self.serial += 1;
        let lane = Lane { id: (self.serial << 16) | u64::from(slot), slot };
        self.slots[usize::from(slot)] = Some(Entry { lane, len, stamp: 0 });
        self.live += 1;
        Ok(lane)
    }

    pub(crate) fn give_back(&mut self, lane: Lane) {
        self.slots[lane.slot()] = None;
        self.free.push(lane.slot);
        self.live -= 1;
    }

    pub(crate) fn find(&self, id: u64) -> Result<(Lane, u32), Fault> {
        self.slots
            .get((id & 0xFFFF) as usize)
            .and_then(Option::as_ref)
            .filter(|entry| entry.lane.id == id)
            .map(|entry| (entry.lane, entry.len))
            .ok_or_else(|| {
                Fault::new(Code::NotFound, format!("there is no lane {id}")).field("lane").scope(Scope::Lane)
            })
    }

    pub(crate) fn set_len(&mut self, lane: Lane, len: u32) {
        if let Some(entry) = &mut self.slots[lane.slot()] {
            entry.len = len;
        }
    }

    /// Marks the lane as fed by step `stamp`; false when it already was.
    pub(crate) fn stamp(&mut self, lane: Lane, stamp: u64) -> bool {
        match &mut self.slots[lane.slot()] {
            Some(entry) if entry.stamp != stamp => {
                entry.stamp = stamp;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_never_reused_although_its_slot_is() {
        let mut lanes = Lanes::new(1);
        let first = lanes.take(0).unwrap();
        lanes.give_back(first);
        let second = lanes.take(0).unwrap();
        assert_eq!(first.slot(), second.slot());
        assert_ne!(first.id(), second.id());
        assert_eq!(lanes.find(first.id()).unwrap_err().code(), Code::NotFound);
        assert_eq!(lanes.take(0).unwrap_err().code(), Code::Capacity);
    }

    #[test]
    fn a_model_without_lanes_refuses_the_first_one() {
        assert_eq!(Lanes::new(0).take(0).unwrap_err().code(), Code::Capacity);
    }
}
