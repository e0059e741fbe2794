//! The key `trigger`: a YAML list of HTTP servers for alerts.

use super::{Errors, keys};
use crate::trigger::{DefinitionError, RawTrigger};

/// Reads the list in `text`. With `dropped`, the entries that the original skips are left out and added there: those whose
/// name is not a type.
pub(super) fn read(
    text: Option<&str>,
    dropped: Option<&mut Errors>,
    errors: &mut Errors,
) -> Vec<RawTrigger> {
    let Some(text) = text else {
        return Vec::new();
    };
    let yaml = serde_saphyr::options! { emit_comments: false };
    let mut list: Vec<RawTrigger> = match serde_saphyr::from_str_with_options(text, yaml) {
        Ok(list) => list,
        Err(error) => {
            let line = error.location();
            let line = line.and_then(|at| usize::try_from(at.line()).ok());
            let error = error.without_snippet();
            let message = format!("a YAML list of triggers is expected: {error}");
            errors.add(keys::TRIGGER, line, message);
            return Vec::new();
        }
    };
    if let Some(dropped) = dropped {
        list.retain(|trigger| match trigger.payload() {
            Err(unknown @ DefinitionError::Kind { .. }) if trigger.kind.is_none() => {
                dropped.add(keys::TRIGGER, None, unknown);
                false
            }
            _ => true,
        });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_takeover_leaves_out_names_that_are_no_type_and_keeps_what_the_original_does_not_have() {
        let text = "[{name: grafana, addr: ':1', path: /a}, {name: falco, addr: ':1', path: /b}, {name: x, type: falco, addr: ':1', path: /c}]";
        let (mut dropped, mut errors) = (Errors::default(), Errors::default());
        let names = |list: Vec<RawTrigger>| list.into_iter().map(|it| it.name).collect::<Vec<_>>();
        let all = read(Some(text), None, &mut errors);
        assert_eq!(names(all), ["grafana", "falco", "x"]);
        let kept = read(Some(text), Some(&mut dropped), &mut errors);
        assert_eq!(names(kept), ["grafana", "x"]);
        assert!(dropped.to_string().contains("trigger falco: unknown type"));
        assert!(errors.0.is_empty(), "{errors}");
    }
}
