//! `slbctl`: the admin port from a shell, as texts. The requests are in the program.

use std::fmt::Write as _;
use std::str::FromStr;

use serde_json::Value;

use crate::server::{Fault, Rule};

/// The text of a fault is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a fault; write for example SetLoadBalancerName=500x3, CreateLoadBalancer=lose-answer or *=delay:200"
)]
pub struct NotAFault(String);

/// A fault, as `ACTION=WHAT`, and `xTIMES` after it for so many calls. `ACTION` is `*` for all; `WHAT` is a status from 400 to 599, `delay:MILLIS`, or
/// the name of a fault without settings, such as `throttle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shorthand(pub Rule);

// === impl Shorthand ===

impl FromStr for Shorthand {
    type Err = NotAFault;

    fn from_str(text: &str) -> Result<Self, NotAFault> {
        parse(text)
            .map(Self)
            .ok_or_else(|| NotAFault(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Rule> {
    let (action, what) = text.split_once('=')?;
    let action = Some(action).filter(|action| !action.is_empty())?;
    let (what, times) = match what.rsplit_once('x') {
        Some((what, times)) => (what, Some(times.parse().ok().filter(|times| *times > 0)?)),
        None => (what, None),
    };
    let fault = match what {
        "lose-request" => Fault::LoseRequest,
        "lose-answer" => Fault::LoseAnswer,
        "hold-request" => Fault::HoldRequest,
        "hold-answer" => Fault::HoldAnswer,
        "throttle" => Fault::Throttle,
        "partial" => Fault::Partial,
        what => match what.strip_prefix("delay:") {
            Some(millis) => Fault::Delay {
                millis: millis.parse().ok()?,
            },
            None => error(what.parse().ok()?)?,
        },
    };
    Some(Rule {
        action: (action != "*").then(|| action.to_owned()),
        skip: 0,
        times,
        fault,
    })
}

fn error(status: u16) -> Option<Fault> {
    let code = match status {
        400..=499 => "InvalidParameter",
        500..=599 => "ServiceUnavailable",
        _ => return None,
    };
    Some(Fault::Error {
        status,
        code: code.to_owned(),
    })
}

/// A line for each load balancer of an answer of `GET /state`; nothing without any.
#[must_use]
pub fn balancers(state: &Value) -> String {
    let mut text = String::new();
    let all = state["loadBalancers"].as_object();
    for (id, one) in all.into_iter().flatten() {
        if text.is_empty() {
            text.push_str("ID NAME ADDRESS LISTENERS\n");
        }
        let listeners = one["listeners"].as_array();
        let ports = listeners.into_iter().flatten().map(|listener| {
            let protocol = listener["protocol"].as_str().unwrap_or_default();
            format!("{}/{protocol}", listener["port"])
        });
        let ports: Vec<String> = ports.collect();
        let ports = if ports.is_empty() {
            "-".to_owned()
        } else {
            ports.join(",")
        };
        let word = |name: &str| one[name].as_str().filter(|text| !text.is_empty());
        let (name, address) = (word("name").unwrap_or("-"), word("address").unwrap_or("-"));
        let _ = writeln!(text, "{id} {name} {address} {ports}");
    }
    columns(&text)
}

/// One load balancer of an answer of `GET /state`, with its server groups. `None` if there is none of this id.
#[must_use]
pub fn balancer(state: &Value, id: &str) -> Option<Value> {
    let mut one = state["loadBalancers"].get(id)?.clone();
    let groups = state["serverGroups"].as_object();
    let own = groups
        .into_iter()
        .flat_map(|groups| groups.values())
        .filter(|group| group["balancer"] == id);
    one["serverGroups"] = own.cloned().collect();
    Some(one)
}

/// A line for each call of an answer of `GET /calls` whose number is above `after`; with `changes` only those that are no reads.
#[must_use]
pub fn calls(calls: &Value, after: u64, changes: bool) -> String {
    let mut text = String::new();
    for call in calls.as_array().into_iter().flatten() {
        let action = call["action"].as_str().unwrap_or_default();
        let reads = action.starts_with("Describe") || action.starts_with("List");
        let number = call["number"].as_u64().unwrap_or_default();
        if number <= after || (changes && reads) {
            continue;
        }
        let outcome = match call["refused"].as_str() {
            Some(code) => code,
            None if call["applied"] == true => "ok",
            None => "lost",
        };
        let _ = writeln!(text, "{number} {action} {outcome}");
    }
    columns(&text)
}

/// The number of the last call of an answer of `GET /calls`; 0 without any.
#[must_use]
pub fn last(calls: &Value) -> u64 {
    let last = calls.as_array().and_then(|calls| calls.last());
    last.and_then(|call| call["number"].as_u64()).unwrap_or(0)
}

/// The words of each line, in columns.
fn columns(text: &str) -> String {
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|at| {
            let words = lines.iter().filter_map(|line| line.get(at));
            words.map(|word| word.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in lines {
        let padded = line
            .iter()
            .zip(&widths)
            .map(|(word, width)| format!("{word:width$}"));
        let padded: Vec<String> = padded.collect();
        let _ = writeln!(text, "{}", padded.join("   ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fault_is_an_action_with_a_status_or_a_name_and_a_count() {
        let rule = |text: &str| text.parse::<Shorthand>().map(|one| one.0);
        let error = |status, code: &str| Fault::Error {
            status,
            code: code.to_owned(),
        };
        for (text, action, times, fault) in [
            (
                "A=500x3",
                Some("A"),
                Some(3),
                error(500, "ServiceUnavailable"),
            ),
            ("A=404", Some("A"), None, error(404, "InvalidParameter")),
            ("A=lose-answerx1", Some("A"), Some(1), Fault::LoseAnswer),
            ("*=throttle", None, None, Fault::Throttle),
            ("*=delay:200x2", None, Some(2), Fault::Delay { millis: 200 }),
        ] {
            let expected = Rule {
                action: action.map(str::to_owned),
                skip: 0,
                times,
                fault,
            };
            assert_eq!(rule(text), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "A",
            "A=",
            "=500",
            "A=200",
            "A=600",
            "A=slow",
            "A=500x",
            "A=500x0",
            "A=delay:x1",
        ] {
            assert!(rule(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn load_balancers_are_lines_and_none_is_nothing() {
        assert_eq!(balancers(&json!({"loadBalancers": {}})), "");
        let state = json!({
            "loadBalancers": {"lb-1": {"name": "shop", "address": "127.66.0.1", "listeners": [
                {"port": 80, "protocol": "tcp"}, {"port": 53, "protocol": "udp"},
            ]}, "lb-20": {"name": "", "address": "127.66.0.2", "listeners": []}},
            "serverGroups": {"a": {"balancer": "lb-1"}, "b": {"balancer": "lb-20"}},
        });
        let expected = "ID      NAME   ADDRESS      LISTENERS\n\
                        lb-1    shop   127.66.0.1   80/tcp,53/udp\n\
                        lb-20   -      127.66.0.2   -\n";
        assert_eq!(balancers(&state), expected);
        assert_eq!(
            balancer(&state, "lb-1").unwrap()["serverGroups"],
            json!([{"balancer": "lb-1"}])
        );
        assert_eq!(balancer(&state, "lb-2"), None);
    }

    #[test]
    fn calls_are_those_after_a_number_with_their_outcome() {
        let call = |number: u64, action: &str, refused: Option<&str>, applied: bool| json!({"number": number, "action": action, "refused": refused, "applied": applied});
        let all = json!([
            call(1, "CreateLoadBalancer", None, true),
            call(2, "DescribeLoadBalancers", None, true),
            call(3, "SetLoadBalancerName", Some("ServiceUnavailable"), false),
            call(4, "DeleteLoadBalancer", None, false),
        ]);
        let expected =
            "3   SetLoadBalancerName   ServiceUnavailable\n4   DeleteLoadBalancer    lost\n";
        assert_eq!(calls(&all, 1, true), expected);
        assert_eq!(calls(&all, 0, false).lines().count(), 4);
        assert_eq!((last(&all), last(&json!([]))), (4, 0));
    }
}
