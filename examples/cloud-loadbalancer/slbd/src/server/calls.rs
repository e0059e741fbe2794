//! The calls that are remembered, for tests and operators of the simulator.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::cloud::Refusal;
use crate::parameters::Parameters;

/// How many calls are remembered.
pub(super) const MOST_CALLS: usize = 10_000;
/// How many bytes the names and values of all remembered calls have.
const MOST_BYTES: usize = 16 << 20;
/// What is remembered of a parameter that is secret.
const SECRET: &str = "(secret)";

/// A call that was verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Counts calls, from 1.
    pub number: u64,
    /// The action.
    pub action: String,
    /// The parameters of the action. The value of `PrivateKey` is not kept.
    pub parameters: BTreeMap<String, String>,
    /// The id in the answer.
    pub request_id: String,
    /// The code of the refusal, if the call was refused.
    pub refused: Option<String>,
    /// Whether the call took effect, or was a read.
    pub applied: bool,
}

/// The newest calls, oldest first.
#[derive(Debug)]
pub(super) struct Calls {
    calls: VecDeque<Call>,
    bytes: usize,
    most_bytes: usize,
}

// === impl Call ===

impl Call {
    /// The call number `number`, which had this result; `None` if it did not take effect.
    pub(super) fn new<T>(
        number: u64,
        parameters: &Parameters,
        request_id: &str,
        result: Option<&Result<T, Refusal>>,
    ) -> Self {
        let own = parameters.own().filter(|(name, _)| *name != "Action");
        let kept = |(name, value): (&String, &String)| {
            let value = match name.as_str() {
                "PrivateKey" => SECRET,
                _ => value,
            };
            (name.clone(), value.to_owned())
        };
        let refusal = result.and_then(|result| result.as_ref().err());
        Self {
            number,
            action: parameters.text("Action").unwrap_or_default().to_owned(),
            parameters: own.map(kept).collect(),
            request_id: request_id.to_owned(),
            refused: refusal.map(|refusal| refusal.code.clone()),
            applied: matches!(result, Some(Ok(_))),
        }
    }

    fn bytes(&self) -> usize {
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(name, value)| name.len() + value.len());
        self.action.len() + parameters.sum::<usize>()
    }
}

// === impl Calls ===

impl Default for Calls {
    fn default() -> Self {
        Self {
            calls: VecDeque::new(),
            bytes: 0,
            most_bytes: MOST_BYTES,
        }
    }
}

impl Calls {
    /// The number of the next call.
    pub(super) fn next_number(&self) -> u64 {
        self.calls.back().map_or(0, |call| call.number) + 1
    }

    /// Remembers a call, and forgets the oldest ones that are too much. The newest call is always kept.
    pub(super) fn add(&mut self, call: Call) {
        self.bytes += call.bytes();
        self.calls.push_back(call);
        while self.calls.len() > MOST_CALLS
            || (self.bytes > self.most_bytes && self.calls.len() > 1)
        {
            let oldest = self.calls.pop_front();
            self.bytes -= oldest.map_or(0, |call| call.bytes());
        }
    }

    pub(super) fn all(&self) -> Vec<Call> {
        self.calls.iter().cloned().collect()
    }

    /// The newest `most` calls; or, with a number, the oldest `most` of those after it.
    pub(super) fn page(&self, after: Option<u64>, most: usize) -> Vec<Call> {
        let skipped = match after {
            Some(after) => self.calls.partition_point(|call| call.number <= after),
            None => self.calls.len().saturating_sub(most),
        };
        let page = self.calls.iter().skip(skipped).take(most);
        page.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(calls: &mut Calls, bytes: usize) {
        let parameters = Parameters::action("A").with("B", "x".repeat(bytes - 2));
        let result: Option<&Result<(), Refusal>> = Some(&Ok(()));
        let call = Call::new(calls.next_number(), &parameters, "r", result);
        assert_eq!(call.bytes(), bytes);
        calls.add(call);
    }

    fn numbers(calls: Vec<Call>) -> Vec<u64> {
        calls.into_iter().map(|call| call.number).collect()
    }

    #[test]
    fn calls_are_bounded_by_their_number_and_their_bytes() {
        let mut calls = Calls::default();
        for _ in 0..=MOST_CALLS {
            add(&mut calls, 3);
        }
        assert_eq!(calls.calls.len(), MOST_CALLS);
        assert_eq!(calls.calls[0].number, 2);
        let mut calls = Calls {
            most_bytes: 100,
            ..Calls::default()
        };
        for bytes in [40, 40, 30] {
            add(&mut calls, bytes);
        }
        assert_eq!(numbers(calls.all()), [2, 3]);
        assert_eq!(calls.bytes, 70);
        // The newest call is shown however long it is.
        add(&mut calls, 200);
        assert_eq!(numbers(calls.all()), [4]);
        add(&mut calls, 10);
        assert_eq!((numbers(calls.all()), calls.bytes), (vec![5], 10));
    }

    #[test]
    fn pages_end_with_the_newest_call_or_begin_after_a_number() {
        let mut calls = Calls::default();
        for _ in 0..5 {
            add(&mut calls, 3);
        }
        assert_eq!(numbers(calls.page(None, 2)), [4, 5]);
        assert_eq!(numbers(calls.page(None, 9)), [1, 2, 3, 4, 5]);
        assert_eq!(numbers(calls.page(Some(1), 2)), [2, 3]);
        assert_eq!(numbers(calls.page(Some(5), 2)), Vec::<u64>::new());
    }

    #[test]
    fn a_private_key_is_not_remembered() {
        let call = Parameters::action("UploadServerCertificate").with("PrivateKey", "hidden");
        let result: Option<&Result<(), Refusal>> = None;
        let call = Call::new(1, &call, "r", result);
        assert_eq!(call.parameters["PrivateKey"], SECRET);
        assert!(!call.applied && call.refused.is_none());
    }
}
