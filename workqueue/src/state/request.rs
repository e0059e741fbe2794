//! The request of an add.

use std::time::Duration;

use crate::item_state::Wait;
use crate::limiter::Delay;
use crate::now::{NEVER, Now, nanoseconds};
use crate::reason::ReasonBits;

/// The request of an add.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AddRequest {
    pub(crate) after: Option<Duration>,
    pub(crate) rate_limited: bool,
    pub(crate) priority: i32,
    pub(crate) reasons: ReasonBits,
}

// === impl AddRequest ===

impl AddRequest {
    /// Whether it has a delay.
    pub(super) fn is_delayed(&self) -> bool {
        self.rate_limited || self.after.is_some_and(|after| !after.is_zero())
    }

    /// What the item waits for; `None`: ready now.
    pub(super) fn wait(&self, delay: Option<Delay>, now: &Now) -> Option<Wait> {
        if self.after.is_none() && delay.is_none() {
            return None;
        }
        let now = now.read();
        let later = |delay: Duration| now.saturating_add(nanoseconds(delay)).min(NEVER - 1);
        let after = self.after.map_or(NEVER, later);
        let at_most = delay.and_then(|delay| delay.at_most).map_or(NEVER, later);
        let join_at = delay.map_or(NEVER, |delay| later(delay.back_off));
        let ready_at = after.min(at_most);
        (ready_at > now).then(|| Wait::new(ready_at, join_at))
    }
}
