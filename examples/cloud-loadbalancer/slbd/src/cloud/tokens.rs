//! Client tokens: a call that is sent again does not happen again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Answered, Context, Refusal, State};
use crate::parameters::Parameters;
use crate::signature::sha256_hex;

/// The longest token.
const LONGEST: usize = 64;

/// The answer to a call with a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// The hash of action and parameters.
    fingerprint: String,
    answer: Map<String, Value>,
    at: Timestamp,
}

/// Carries out `write`, unless the token of the call was seen before: then its answer is repeated.
///
/// A refused call is not remembered: the same token may try again, with other parameters too.
pub(super) fn once(
    state: &mut State,
    context: Context<'_>,
    parameters: &Parameters,
    write: fn(&mut State, Context<'_>, &Parameters) -> Answered,
) -> Answered {
    let Some(token) = parameters.text("ClientToken") else {
        return write(state, context, parameters);
    };
    if token.len() > LONGEST || !token.is_ascii() {
        return Err(Refusal::invalid("ClientToken"));
    }
    let remembered_for = context.rules.tokens_for;
    state
        .tokens
        .retain(|_, one| context.now.duration_since(one.at) < remembered_for);
    let fingerprint = fingerprint(parameters);
    if let Some(remembered) = state.tokens.get(token) {
        if remembered.fingerprint != fingerprint {
            return Err(Refusal::new(
                400,
                "IdempotentParameterMismatch",
                "The client token was used for a call with other parameters.",
            ));
        }
        return Ok(remembered.answer.clone());
    }
    if state.tokens.len() >= context.rules.tokens {
        return Err(Refusal::throttled());
    }
    let answer = write(state, context, parameters)?;
    let remembered = Remembered {
        fingerprint,
        answer: answer.clone(),
        at: context.now,
    };
    state.tokens.insert(token.to_owned(), remembered);
    Ok(answer)
}

fn fingerprint(parameters: &Parameters) -> String {
    // The lengths mark where a name or a value ends.
    let mut text = String::new();
    for (name, value) in parameters.own() {
        text.push_str(&format!("{}:{name}{}:{value}", name.len(), value.len()));
    }
    sha256_hex(text.as_bytes())
}
