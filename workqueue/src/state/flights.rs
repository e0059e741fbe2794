//! Items in flight.

use crate::slab::NONE;

/// Items in flight. There are few, so metrics can visit all.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    flights: Vec<Flight>,
    vacant: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    /// [`NONE`]: vacant.
    pub(crate) slot: u32,
    pub(crate) started: u64,
}

// === impl Flights ===

impl Flights {
    pub(super) fn start(&mut self, flight: Flight) -> u32 {
        if let Some(index) = self.vacant.pop() {
            self.flights[index as usize] = flight;
            return index;
        }
        self.flights.push(flight);
        u32::try_from(self.flights.len() - 1).expect("fewer than 2^32 workers")
    }

    pub(super) fn end(&mut self, index: u32) {
        self.vacant.push(index);
        self.flights[index as usize].slot = NONE;
    }

    pub(crate) fn len(&self) -> usize {
        self.flights.len() - self.vacant.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter().filter(|flight| flight.slot != NONE)
    }
}
