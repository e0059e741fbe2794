//! The explorer, on reconcilers with the bugs that operators have, each in a wrong and a right form.

mod guards;
mod toggles;

use std::time::Duration;

use reeve_controller::testing::explore::{Explorer, Report, World};
use serde::Serialize;

/// What an exploration found, within a budget.
fn explored<S: Default + Serialize + Send + 'static>(
    explorer: Explorer<S>,
    scenario: impl AsyncFn(&World<S>),
) -> Report {
    explorer.budget(400, Duration::from_secs(60)).run(scenario)
}
