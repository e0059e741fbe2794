//! YAML of bodies, answers and kubeconfigs.

use serde::Serialize;
use serde_json::Value;

use crate::http::body::LARGEST_REQUEST;

/// Reads the first document that is not null. Of a key that is given twice, the last value counts, as on a real server. The error is one
/// line.
pub(crate) fn read(mut text: &[u8]) -> Result<Value, String> {
    documents(&mut text).next().unwrap_or(Ok(Value::Null))
}

/// Reads all documents that are not null, as [`read`] reads the first.
pub(crate) fn read_all(mut text: &[u8]) -> Result<Vec<Value>, String> {
    documents(&mut text).collect()
}

fn documents<'a>(text: &'a mut &[u8]) -> impl Iterator<Item = Result<Value, String>> + 'a {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        emit_comments: false,
        // The size of a body is bounded already.
        budget: serde_saphyr::budget! {
            max_nodes: LARGEST_REQUEST,
            max_events: 2 * LARGEST_REQUEST,
            max_depth: 128,
            enforce_alias_anchor_ratio: false,
        },
    };
    serde_saphyr::read_with_options(text, options)
        .map(|document| document.map_err(|error| error.without_snippet().to_string()))
}

/// Writes one line for each text.
pub(crate) fn write(value: &impl Serialize) -> String {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(value, options).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_comments_large_maps_and_many_aliases_are_read() {
        let comments = format!("data:\n{}  k: v\n", "  # text\n".repeat(100));
        assert_eq!(read(comments.as_bytes()).unwrap()["data"]["k"], "v");
        let map: String = (0..200_000).map(|n| format!("k{n}: v\n")).collect();
        assert_eq!(read(map.as_bytes()).unwrap()["k199999"], "v");
        let aliases = format!("a: &a x\nb: [{}]\n", "*a, ".repeat(500));
        assert_eq!(read(aliases.as_bytes()).unwrap()["b"][499], "x");
        let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
        assert!(read(deep.as_bytes()).is_err());
    }

    #[test]
    fn all_documents_of_a_stream_are_read() {
        let stream = "# nothing\n---\na: 1\n---\n---\nb: 2\n";
        let documents = read_all(stream.as_bytes()).unwrap();
        assert_eq!(
            documents,
            [serde_json::json!({"a": 1}), serde_json::json!({"b": 2})]
        );
        assert!(read_all(b"a: 1\n---\n[").is_err());
    }

    #[test]
    fn texts_that_yaml_reads_as_something_else_are_quoted() {
        let value = serde_json::json!({"on": "y", "1": "017", "a": "true"});
        assert_eq!(read(write(&value).as_bytes()), Ok(value));
    }
}
