//! The page of the IPBlock operator with fixed blocks at a fixed time, and what its picture was made from.

use ipblock_operator::page::{self, State};
use ipblock_operator::why::Answer;

/// What the page shows.
const STATE: &str = include_str!("../fixed/blocks-state.json");
/// The answer about an address.
const ANSWER: &str = include_str!("../fixed/blocks-why.json");

/// The page, as the operator serves it.
pub(crate) fn page() -> String {
    page::page()
}

/// The page and its documents, in the form that this version gives them.
pub(crate) fn shown() -> Result<String, serde_json::Error> {
    let state: State = serde_json::from_str(STATE)?;
    let answer: Answer = serde_json::from_str(ANSWER)?;
    let documents = [
        serde_json::to_string(&state)?,
        serde_json::to_string(&answer)?,
    ];
    Ok(page() + &documents.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_documents_are_those_of_this_version() {
        let shown = shown().unwrap();
        assert!(shown.contains("192.0.2.7 is banned until"), "{shown}");
        for text in [STATE, ANSWER] {
            let names: serde_json::Value = serde_json::from_str(text).unwrap();
            for name in names.as_object().unwrap().keys() {
                assert!(shown.contains(&format!("\"{name}\":")), "{name}");
            }
        }
    }
}
