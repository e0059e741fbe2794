//! The key `engines`: what follows the whole set of bans.

use std::collections::BTreeMap;

use super::{Errors, Options, keys};
use crate::sets::{Definition, RawEngine};
use crate::trigger;

/// Reads the list; empty without the key.
pub(super) fn read(
    data: &BTreeMap<String, String>,
    triggers: &[trigger::Definition],
    options: &Options,
    errors: &mut Errors,
) -> Vec<Definition> {
    let text = data.get(keys::ENGINES).map(|text| text.trim());
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Vec::new();
    };
    let list: Result<Vec<RawEngine>, _> =
        serde_saphyr::from_str_with_options(text, serde_saphyr::options! { emit_comments: false });
    let list = match list {
        Ok(list) => list,
        Err(error) => {
            let line = error.location();
            let line = line.and_then(|at| usize::try_from(at.line()).ok());
            let message = format!(
                "a YAML list of engines is expected: {}",
                error.without_snippet()
            );
            errors.add(keys::ENGINES, line, message);
            return Vec::new();
        }
    };
    let ports: Vec<u16> = triggers.iter().map(|it| it.address.port()).collect();
    match RawEngine::define_all(&list, &ports, options) {
        Ok(definitions) => definitions,
        Err(error) => {
            errors.add(keys::ENGINES, None, error);
            Vec::new()
        }
    }
}
