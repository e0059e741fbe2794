//! The key `sources`: a YAML list of lists that are pulled.

use super::{Errors, Options, keys};
use crate::pulled::{RawSource, Source};

/// The most sources.
const MOST: usize = 20;

/// Reads the list in `text`.
pub(super) fn read(text: Option<&str>, options: &Options, errors: &mut Errors) -> Vec<Source> {
    let Some(text) = text else {
        return Vec::new();
    };
    let yaml = serde_saphyr::options! { emit_comments: false };
    let list: Vec<RawSource> = match serde_saphyr::from_str_with_options(text, yaml) {
        Ok(list) => list,
        Err(error) => {
            let line = error.location();
            let line = line.and_then(|at| usize::try_from(at.line()).ok());
            let error = error.without_snippet();
            let message = format!("a YAML list of sources is expected: {error}");
            errors.add(keys::SOURCES, line, message);
            return Vec::new();
        }
    };
    if list.len() > MOST {
        errors.add(
            keys::SOURCES,
            None,
            format!("at most {MOST} sources are possible"),
        );
        return Vec::new();
    }
    RawSource::define_all(&list, options).unwrap_or_else(|error| {
        errors.add(keys::SOURCES, None, error);
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let mut errors = Errors::default();
        let sources = read(Some(text), &Options::default(), &mut errors);
        assert!(sources.is_empty());
        errors.to_string()
    }

    #[test]
    fn a_list_is_read_whole_or_refused_with_its_key() {
        let mut errors = Errors::default();
        assert!(read(None, &Options::default(), &mut errors).is_empty());
        let two = "- {name: a, type: feed, url: 'https://a.example'}\n- {name: b, type: feed, url: 'https://b.example'}\n";
        let sources = read(Some(two), &Options::default(), &mut errors);
        assert_eq!((sources.len(), errors.0.len()), (2, 0));
        let same = two.replace("name: b", "name: a");
        assert_eq!(error(&same), "sources: two sources have the name a");
        assert!(error("- {name: a\n").starts_with("sources"));
        assert!(error("- {name: a, type: feed, url: 'https://a', colour: red}").contains("colour"));
        assert!(
            error(&"- {name: a, type: feed, url: 'https://a'}\n".repeat(21)).contains("at most 20")
        );
    }
}
