//! The world outside of the cluster: what a controller calls beside the API server.

use std::sync::Arc;

use parking_lot::Mutex;

use super::core::{Core, Fate, Incarnation};

/// A world outside as one process reaches it. `S` is its state: a gateway, a cloud, a database.
///
/// Each call is an effect with its faults: the process is killed before or after it, the answer is lost, or it is refused.
pub struct Outside<S> {
    state: Arc<Mutex<S>>,
    core: Core,
    incarnation: Incarnation,
    check: Check<S>,
}

pub(super) type Check<S> = Arc<dyn Fn(&S, &Core) + Send + Sync>;

/// Why a call had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The call may have taken effect.
    #[error("the connection broke")]
    Lost,
    /// It has not.
    #[error("the service is unavailable")]
    Refused,
}

// === impl Outside ===

impl<S> Outside<S> {
    pub(super) fn new(
        state: Arc<Mutex<S>>,
        core: Core,
        incarnation: Incarnation,
        check: Check<S>,
    ) -> Self {
        Self {
            state,
            core,
            incarnation,
            check,
        }
    }

    /// Makes a call that changes the state. `name` says what it is, such as `ban 192.0.2.1`; equal calls have equal names.
    ///
    /// # Errors
    /// [`Failure`], by a fault of the plan.
    pub async fn call<T>(&self, name: &str, call: impl FnOnce(&mut S) -> T) -> Result<T, Failure> {
        self.core.alive(self.incarnation).await;
        let process = self.incarnation.process;
        let (point, fate) = self.core.effect(process, &format!("call {name}"));
        match fate {
            Fate::CrashBefore => {
                self.core.crash(process, None);
                return std::future::pending().await;
            }
            Fate::Refused => {
                self.core.done(point, "refused by the plan".to_owned());
                return Err(Failure::Refused);
            }
            Fate::Stuck => return std::future::pending().await,
            Fate::Late(rests) => self.core.stand_still(process, rests).await,
            Fate::Passes | Fate::CrashAfter | Fate::Lost | Fate::Stale(_) => {}
        }
        let answer = {
            let mut state = self.state.lock();
            let answer = call(&mut state);
            self.core.done(point, "done".to_owned());
            (self.check)(&state, &self.core);
            answer
        };
        let frozen = match fate {
            Fate::Lost => return Err(Failure::Lost),
            Fate::CrashAfter => None,
            Fate::Stale(version) => Some(version),
            _ => {
                self.core.alive(self.incarnation).await;
                return Ok(answer);
            }
        };
        self.core.crash(process, frozen);
        std::future::pending().await
    }

    /// Reads the state: no effect.
    pub async fn read<T>(&self, read: impl FnOnce(&S) -> T) -> T {
        self.core.alive(self.incarnation).await;
        read(&self.state.lock())
    }
}

impl<S> Clone for Outside<S> {
    fn clone(&self) -> Self {
        Self {
            state: Arc::clone(&self.state),
            core: self.core.clone(),
            incarnation: self.incarnation,
            check: Arc::clone(&self.check),
        }
    }
}

impl<S> std::fmt::Debug for Outside<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside")
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}
