//! From bytes to entries, in one pass, without what nobody reads.
//!
//! A body is never logged, and no error quotes it: serde's messages name the wrong value, which may be a
//! secret, so [`redacted`] keeps only what was expected and where.
//!
//! An object that cannot be read costs that object only. A list or a frame is read in one pass; only when
//! that fails is it split into objects, each is tried alone, and those that fail become [`Undecodable`]. So it is with a
//! type that panics at an object, where panics unwind.

mod budget;
mod frame;
mod identity;
pub(crate) mod json;
mod list;
mod outline;
mod skip;
mod trim;

pub(crate) use budget::Budget;
pub(crate) use frame::{Frame, changed, decode_frame};
pub(crate) use identity::Identity;
#[cfg(any(test, fuzzing))]
pub(crate) use list::decode_list;
pub(crate) use list::{ListPage, continue_token, read_list};
pub(crate) use skip::Skip;
#[cfg(test)]
pub(crate) use skip::tests as skip_tests;
pub use skip::{SkipPath, SkipPathError};
pub use trim::{Decoding, Trimmed};
pub(crate) use trim::{Key, another};

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::entry::Stored;
use crate::key::{KeyRef, ObjectKey};

/// An object that was sent and could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undecodable {
    /// Which object, if that much could be read.
    pub key: Option<ObjectKey>,
    /// Its uid, if that much could be read.
    pub uid: Option<Box<str>>,
    /// Its version, if that much could be read.
    pub resource_version: Option<String>,
    /// What was wrong, without any of the object's content.
    pub error: String,
    /// What it looks like, without any of its content.
    pub outline: String,
}

/// A document that could not be read at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be read: {error}")]
#[non_exhaustive]
pub struct DecodeError {
    /// Which document.
    pub what: &'static str,
    /// What was wrong, without any of its content.
    pub error: String,
}

impl Undecodable {
    /// Describes an object that could be read and has no name: it is something else (a Table, a Status).
    fn nameless<S: Stored>(object: &S) -> Self {
        Self {
            key: None,
            uid: None,
            resource_version: Some(object.resource_version().to_owned()),
            error: "it has no metadata.name".to_owned(),
            outline: String::new(),
        }
    }

    /// Describes an object that cannot be read because of `error`, as far as `document` tells.
    fn probe(document: &str, error: String) -> Self {
        let identity = identity::identity(document).unwrap_or_default();
        let (uid, version) = (identity.uid(), identity.resource_version());
        Self {
            key: identity.key().map(KeyRef::to_key),
            uid: (!uid.is_empty()).then(|| uid.into()),
            resource_version: (!version.is_empty()).then(|| version.to_owned()),
            error,
            outline: outline::outline(document),
        }
    }
}

/// What is said of a type that panics at an object. The text of the panic may hold values of the object.
const PANICKED: &str = "its type panicked as it was read";

/// What `read` gives; `None` if it fails or panics.
fn attempt<T, E>(read: impl FnOnce() -> Result<T, E>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()?.ok()
}

/// Reads one object by itself.
///
/// # Errors
/// What is wrong, without any of its content; also if its type panics.
pub(crate) fn read_alone<T>(
    read: impl FnOnce() -> Result<T, serde_json::Error>,
) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|error| redacted(&error)),
        Err(_) => Err(PANICKED.to_owned()),
    }
}

/// What serde complained about, without the values it quotes.
pub(crate) fn redacted(error: &serde_json::Error) -> String {
    let text = error.to_string();
    // "missing field `x`" names a field of the type, not of the document; everything else may quote data.
    if text.starts_with("missing field") {
        return text;
    }
    let place = format!("line {} column {}", error.line(), error.column());
    let problem = match error.classify() {
        serde_json::error::Category::Data => text
            .split([':', '`', '"'])
            .next()
            .unwrap_or_default()
            .trim(),
        serde_json::error::Category::Eof => "the document ends too early",
        serde_json::error::Category::Syntax => "not valid JSON",
        serde_json::error::Category::Io => "reading failed",
    };
    // The last ", expected " is serde's own: what follows it comes from the type.
    let expected = text.rfind(", expected ").map_or("", |at| &text[at..]);
    let expected = expected.split(" at line ").next().unwrap_or_default();
    format!("{problem}{expected} at {place}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use proptest::prelude::*;

    use super::*;
    use crate::sample::cases;

    #[test]
    fn an_error_says_what_was_expected_and_never_what_was_there() {
        let document = r#"{"metadata":{"name":"s"},"data":"hunter2, expected nothing"}"#;
        let error = serde_json::from_str::<Secret>(document).unwrap_err();
        assert!(
            error.to_string().contains("hunter2"),
            "else the test proves nothing"
        );
        let text = redacted(&error);
        assert!(!text.contains("hunter2"), "{text}");
        assert!(
            text.contains("invalid type, expected a map at line 1"),
            "{text}"
        );
    }

    const LINES: [&str; 4] = [
        r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"n","uid":"u","resourceVersion":"5","managedFields":[{"manager":"m","fieldsV1":{"f:a":{}}}]},"data":{"k":"dg=="},"type":"Opaque"}}"#,
        r#"{"type":"BOOKMARK","object":{"kind":"Secret","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old","details":{"causes":[{"reason":"x"}],"retryAfterSeconds":3}}}"#,
        r#"{"kind":"SecretList","metadata":{"resourceVersion":"12","continue":"abc"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"data":{"k":"dg=="}}]}"#,
    ];

    proptest! {
        #![proptest_config(cases(3000))]

        /// Whatever a broken server or proxy makes of the bytes, reading them ends in a value or an error.
        #[test]
        fn damaged_documents_never_panic_and_errors_never_quote_them(
            line in 0..LINES.len(),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..5),
        ) {
            let mut bytes = LINES[line].as_bytes().to_vec();
            for (place, byte, how) in damage {
                let place = place.index(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
                match how {
                    0 => bytes[place] = byte,
                    1 => bytes.insert(place, byte),
                    _ => bytes.truncate(place + 1),
                }
            }
            let decoding = Decoding::of("v1", "Secret");
            let mut errors = Vec::new();
            match decode_frame::<Secret>(&bytes, &decoding) {
                Ok(Frame::Undecodable { object, .. }) => errors.extend([object.error, object.outline]),
                Ok(_) => {}
                Err(error) => errors.push(error.to_string()),
            }
            match decode_list::<kube_core::DynamicObject>(&bytes, &decoding) {
                Ok(page) => errors.extend(page.undecodable.into_iter().flat_map(|object| [object.error, object.outline])),
                Err(error) => errors.push(error.to_string()),
            }
            for error in errors {
                prop_assert!(!error.contains("dg=="), "{}", error);
            }
        }

        /// The slow way reads what the fast way reads.
        #[test]
        fn one_broken_item_changes_nothing_about_the_others(count in 0..6_usize, broken in 0..6_usize) {
            let item = |number: usize| format!(r#"{{"metadata":{{"name":"o{number}"}},"data":{{"k":"dg=="}}}}"#);
            let mut items: Vec<_> = (0..count).map(item).collect();
            let page = |items: &[String]| format!(
                r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#,
                items.join(",")
            );
            let fast = decode_list::<Secret>(page(&items).as_bytes(), &Decoding::default()).unwrap();
            items.insert(broken.min(count), r#"{"metadata":{"name":"bad"},"data":7}"#.to_owned());
            let slow = decode_list::<Secret>(page(&items).as_bytes(), &Decoding::default()).unwrap();
            prop_assert_eq!(fast.items, slow.items);
            prop_assert_eq!(slow.undecodable.len(), 1);
        }
    }

    #[test]
    fn a_broken_object_is_still_named() {
        let document =
            r#"{"metadata":{"name":"s","namespace":"n","resourceVersion":"7"},"data":1}"#;
        let error = serde_json::from_str::<Secret>(document).unwrap_err();
        let found = Undecodable::probe(document, redacted(&error));
        assert_eq!(found.key, Some(ObjectKey::namespaced("n", "s")));
        assert_eq!(found.resource_version.as_deref(), Some("7"));
    }
}
