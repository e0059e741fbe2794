//! Changes in the requested number and at the requested rate.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::format::Kind;
use crate::world::World;

/// The number of changes in one step when no rate is set.
const BATCH: usize = 1000;

/// The parameters of a burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    pub(crate) start: usize,
    /// Changes a second; 0: as fast as possible.
    pub(crate) rate: f64,
    /// Begins when this many watches exist.
    pub(crate) watches: usize,
}

// === impl Burst ===

impl Burst {
    /// Makes the changes on its own thread: the server's thread has other requests, and a runtime's
    /// timers are too coarse to space changes evenly.
    pub(crate) fn spawn(self, world: &Arc<World>) {
        let world = Arc::clone(world);
        thread::spawn(move || self.run(&world));
    }

    fn run(self, world: &World) {
        let stage = world.stage(self.kind);
        let epoch = stage.read(|state| state.epoch);
        while stage.watches() < self.watches {
            if stage.read(|state| state.epoch) != epoch {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let begun = Instant::now();
        let mut made = 0;
        while made < self.count {
            let batch = if self.rate > 0.0 {
                let due = Duration::from_secs_f64(made as f64 / self.rate);
                thread::sleep(due.saturating_sub(begun.elapsed()));
                1
            } else {
                BATCH.min(self.count - made)
            };
            let goes_on = stage.update(|state| {
                let goes_on = state.epoch == epoch;
                if goes_on {
                    state.change(self.start + made, batch);
                }
                goes_on
            });
            if !goes_on {
                return;
            }
            made += batch;
        }
    }
}
