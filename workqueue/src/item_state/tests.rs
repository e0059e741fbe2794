//! The documented table and the list of effects, against the code.

use tokio::time::Instant;

use super::samples::{event_name, events, name, states};
use super::*;
use crate::now::Now;

/// Each outcome of a pair once, in the order of the samples.
fn outcomes(
    is_state: impl Fn(ItemState) -> bool,
    event: &str,
    text: impl Fn(ItemState, Result<Option<Transition>, String>) -> String,
) -> Vec<String> {
    let now = Now::at(Instant::now(), 7);
    let mut outcomes: Vec<String> = Vec::new();
    for state in states().into_iter().filter(|&state| is_state(state)) {
        for sample in events().into_iter().filter(|&one| event_name(one) == event) {
            for failed in [false, true] {
                let facts = Facts {
                    now: &now,
                    stamped: true,
                    failed,
                };
                let result = transition(state, sample, facts);
                let outcome = text(state, result.map_err(|reason| format!("{reason:?}")));
                if !outcomes.contains(&outcome) {
                    outcomes.push(outcome);
                }
            }
        }
    }
    outcomes
}

fn names(all: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut names: Vec<&str> = all.collect();
    names.dedup();
    names
}

#[test]
fn the_documented_table_is_that_of_the_code() {
    let columns = names(events().into_iter().map(event_name));
    let mut table = format!("//! | | `{}` |\n", columns.join("` | `"));
    table += &format!("//! |{}\n", "---|".repeat(columns.len() + 1));
    for row in names(states().into_iter().map(name)) {
        table += &format!("//! | `{row}` |");
        for column in &columns {
            let cell = outcomes(
                |state| name(state) == row,
                column,
                |state, result| match result {
                    Err(_) => "–".to_owned(),
                    Ok(Some(transition)) if transition.to != state => name(transition.to).into(),
                    Ok(_) => "=".to_owned(),
                },
            );
            table += &format!(" {} |", cell.join(" or "));
        }
        table += "\n";
    }
    assert!(include_str!("mod.rs").contains(&table), "{table}");
}

/// The name of a state, and whether it is bounded.
fn full_name(state: ItemState) -> String {
    let bounded = if state.is_bounded() { ", bounded" } else { "" };
    format!("{}{bounded}", name(state))
}

#[test]
fn every_event_has_its_listed_effect_in_every_state() {
    let mut list = String::new();
    for state in states() {
        list += &format!("{}\n", full_name(state));
        for event in names(events().into_iter().map(event_name)) {
            let outcome = outcomes(
                |other| other == state,
                event,
                |_, result| match result {
                    Err(reason) => format!("impossible: {reason}"),
                    Ok(None) => "stays".to_owned(),
                    Ok(Some(transition)) => effects(&transition),
                },
            );
            list += &format!("    {event}: {}\n", outcome.join(" | "));
        }
    }
    assert!(include_str!("transitions.txt") == list, "{list}");
}

fn effects(transition: &Transition) -> String {
    let mut text = full_name(transition.to);
    if let Some((left, entered)) = transition.moves {
        text += &format!("; {left:?} -> {entered:?}");
    }
    if transition.stops_timer {
        text += "; stops its timer";
    }
    if transition.starts_timer.is_some() {
        text += "; starts a timer";
    }
    if transition.becomes_ready {
        text += "; counts as ready";
    }
    text
}
