//! Reads one event of a watch, a line of JSON or a frame of protobuf: [`Frame`].

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::Status;
use reeve_client::json::{self, Fields, Reader, attempt, read_alone, redacted};
use reeve_client::transport::Encoding;
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess};
use serde_json::value::RawValue;

use super::error::DecodeError;
use super::identity::{Identity, read_object};
use super::protobuf;
use super::undecodable::Undecodable;
use crate::object::{EntryReader, Stored};

/// The content of one event of a watch.
#[derive(Debug)]
pub(crate) enum Frame<S: ?Sized> {
    Added(Arc<S>),
    Modified(Arc<S>),
    Deleted(Arc<S>),
    Bookmark {
        resource_version: String,
        /// All objects of a streaming list were sent.
        initial_events_end: bool,
    },
    Error(Box<Status>),
    /// An object that cannot be read.
    Undecodable {
        object: Undecodable,
        deleted: bool,
    },
    /// A type of event that this version does not know.
    Unknown,
}

/// The annotation, with the value "true" exactly, on the bookmark that ends a streaming list.
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
enum Type {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct BookmarkObject {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

impl<S: ?Sized> From<BookmarkObject> for Frame<S> {
    fn from(object: BookmarkObject) -> Self {
        let annotations = object.metadata.annotations.unwrap_or_default();
        let end = annotations.get(INITIAL_EVENTS_END);
        Self::bookmark(
            object.metadata.resource_version.unwrap_or_default(),
            end.is_some_and(|value| value == "true"),
        )
    }
}

impl<S: ?Sized> Frame<S> {
    /// A bookmark. Without a version it marks nothing but the end of the initial events.
    pub(super) fn bookmark(resource_version: String, initial_events_end: bool) -> Self {
        if resource_version.is_empty() && !initial_events_end {
            return Self::Unknown;
        }
        Self::Bookmark {
            resource_version,
            initial_events_end,
        }
    }
}

/// Reads an event: a line of JSON, or a frame of protobuf.
pub(crate) fn decode_frame<S: Stored + ?Sized>(
    encoding: Encoding,
    event: &[u8],
    entries: &EntryReader<S>,
) -> Result<Frame<S>, DecodeError> {
    match encoding {
        Encoding::Json => decode_line(event, entries),
        Encoding::Protobuf => protobuf::decode_event(event, entries),
    }
}

/// Reads a line: in one pass, or else the object by itself.
fn decode_line<S: Stored + ?Sized>(
    line: &[u8],
    entries: &EntryReader<S>,
) -> Result<Frame<S>, DecodeError> {
    let Ok(line) = std::str::from_utf8(line) else {
        // Go replaces invalid UTF-8 too.
        return decode_line(String::from_utf8_lossy(line).as_bytes(), entries);
    };
    // Without `json::read`: its error would be made for nothing.
    let mut reader = Reader::new(line);
    let read = attempt(|| {
        let frame = whole(&mut reader, entries)?;
        reader.end().map(|()| frame)
    });
    match read.flatten() {
        Some(frame) => Ok(named(frame)),
        None => decode_parts(line, entries).map(named),
    }
}

/// Reads a line in one pass; `None` if the object comes before the type.
fn whole<'de, S: Stored + ?Sized>(
    reader: &mut Reader<'de>,
    entries: &'de EntryReader<S>,
) -> Result<Option<Frame<S>>, serde_json::Error> {
    reader.enter(b'{')?;
    let mut fields = Fields::new(reader);
    let mut r#type = None;
    let mut frame = None;
    while let Some(field) = fields.next_key::<Field>()? {
        match (field, r#type) {
            (Field::Type, _) => r#type = Some(fields.next_value::<Type>()?),
            (Field::Object, Some(known)) => {
                let wrap = match known {
                    Type::Added => Frame::Added,
                    Type::Modified => Frame::Modified,
                    Type::Deleted => Frame::Deleted,
                    Type::Bookmark => {
                        frame = Some(fields.next_value::<BookmarkObject>()?.into());
                        continue;
                    }
                    Type::Error => {
                        frame = Some(Frame::Error(fields.next_value()?));
                        continue;
                    }
                    Type::Unknown => {
                        fields.next_value::<IgnoredAny>()?;
                        frame = Some(Frame::Unknown);
                        continue;
                    }
                };
                frame = Some(wrap(fields.value_by(|reader| entries.read(reader))?));
            }
            (Field::Object | Field::Other, _) => {
                fields.next_value::<IgnoredAny>()?;
            }
        }
    }
    reader.leave(b'}')?;
    Ok(frame)
}

/// The identity of the object that an event adds or changes, read no further than needed; `None` if the event does
/// something else, or the `type` of a line does not come first.
pub(crate) fn changed(encoding: Encoding, event: &[u8]) -> Option<Identity<'_>> {
    match encoding {
        Encoding::Json => changed_in_line(event),
        Encoding::Protobuf => protobuf::changed(event),
    }
}

fn changed_in_line(line: &[u8]) -> Option<Identity<'_>> {
    let line = std::str::from_utf8(line).ok()?;
    let mut reader = Reader::new(line);
    reader.enter(b'{').ok()?;
    let mut fields = Fields::new(&mut reader);
    let mut changes = false;
    loop {
        match fields.next_key::<Field>().ok()?? {
            Field::Type => {
                let r#type = fields.next_value::<Type>().ok()?;
                changes = matches!(r#type, Type::Added | Type::Modified);
            }
            Field::Object if changes => {
                let mut identity = None;
                // An error ends the reading early, and what was read before counts.
                let _ = fields.value_by(|reader| read_object(reader, &mut identity));
                return identity;
            }
            Field::Object => return None,
            Field::Other => fields.value_by(Reader::skip).ok()?,
        }
    }
}

/// Turns an object without a name into an undecodable one: it is something else, such as a Table.
pub(super) fn named<S: Stored + ?Sized>(frame: Frame<S>) -> Frame<S> {
    match frame {
        Frame::Added(object) | Frame::Modified(object) | Frame::Deleted(object)
            if object.name().is_empty() =>
        {
            Frame::Undecodable {
                object: Undecodable::nameless(&*object),
                deleted: false,
            }
        }
        frame => frame,
    }
}

/// The slow way: for a frame whose object cannot be read, or whose `type` comes after its object.
fn decode_parts<S: Stored + ?Sized>(
    line: &str,
    entries: &EntryReader<S>,
) -> Result<Frame<S>, DecodeError> {
    #[derive(Deserialize)]
    struct Parts<'a> {
        r#type: Type,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let broken = |error: serde_json::Error| DecodeError {
        what: "the watch event",
        error: redacted(&error),
    };
    let Parts { r#type, object } = json::from_str(line).map_err(broken)?;
    let wrap: fn(Arc<S>) -> Frame<S> = match r#type {
        Type::Added => Frame::Added,
        Type::Modified => Frame::Modified,
        Type::Deleted => Frame::Deleted,
        Type::Bookmark => {
            return json::from_str::<BookmarkObject>(object.get())
                .map(Into::into)
                .map_err(broken);
        }
        Type::Error => {
            return json::from_str(object.get())
                .map(Frame::Error)
                .map_err(broken);
        }
        Type::Unknown => return Ok(Frame::Unknown),
    };
    match read_alone(|| json::read(object.get(), |reader| entries.read(reader))) {
        Ok(entry) => Ok(wrap(entry)),
        Err(error) => Ok(Frame::Undecodable {
            object: Undecodable::probe(object.get(), error),
            deleted: r#type == Type::Deleted,
        }),
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Type,
    Object,
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::object::Decoding;

    fn read(line: &str) -> Result<Frame<ConfigMap>, DecodeError> {
        decode_frame(Encoding::Json, line.as_bytes(), &Decoding::default().into())
    }

    #[test]
    fn the_object_that_a_line_changes_is_identified_without_reading_it_to_its_end() {
        let object = r#""object":{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",!!"#;
        for (start, changes) in [
            (r#"{"type":"ADDED","#, true),
            (r#"{"more":1,"type":"MODIFIED","#, true),
            (r#"{"type":"DELETED","#, false),
            (r#"{"type":"BOOKMARK","#, false),
            ("{", false),
        ] {
            let line = format!("{start}{object}");
            let identity = changed(Encoding::Json, line.as_bytes());
            let key = identity.map(|identity| identity.key().map(|key| key.to_string()));
            assert_eq!(key, changes.then(|| Some("n/a".to_owned())), "{line}");
        }
    }

    #[test]
    fn each_type_of_event_is_recognized_in_either_order_of_its_fields() {
        let object = r#""object":{"metadata":{"name":"a"}}"#;
        assert!(matches!(
            read(&format!(r#"{{"type":"ADDED",{object}}}"#)),
            Ok(Frame::Added(_))
        ));
        assert!(matches!(
            read(&format!(r#"{{{object},"type":"MODIFIED"}}"#)),
            Ok(Frame::Modified(_))
        ));
        assert!(matches!(
            read(&format!(r#"{{"type":"DELETED",{object}}}"#)),
            Ok(Frame::Deleted(_))
        ));
        assert!(matches!(
            read(&format!(r#"{{"type":"NEWLY",{object}}}"#)),
            Ok(Frame::Unknown)
        ));
        let error = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        assert!(matches!(read(error), Ok(Frame::Error(status)) if status.code == 410));
    }

    #[test]
    fn only_the_exact_annotation_ends_the_initial_events() {
        for (annotations, ends) in [
            (r#"{"k8s.io/initial-events-end":"true"}"#, true),
            (r#"{"k8s.io/initial-events-end":"false"}"#, false),
            ("null", false),
            ("{}", false),
        ] {
            let line = format!(
                r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1",
                "metadata":{{"resourceVersion":"9","creationTimestamp":null,"annotations":{annotations}}}}}}}"#
            );
            let Ok(Frame::Bookmark {
                resource_version,
                initial_events_end,
            }) = read(&line)
            else {
                panic!("no bookmark: {line}");
            };
            assert_eq!((resource_version.as_str(), initial_events_end), ("9", ends));
        }
    }

    #[test]
    fn an_object_without_a_name_cannot_be_read() {
        let line = r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"4"}}}"#;
        assert!(matches!(
            read(line),
            Ok(Frame::Undecodable { object, .. }) if object.key.is_none()
        ));
    }

    #[test]
    fn an_undecodable_object_is_named_and_a_broken_line_is_an_error() {
        let line = r#"{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"4"},"data":3}}"#;
        let Ok(Frame::Undecodable {
            object,
            deleted: true,
        }) = read(line)
        else {
            panic!("expected an undecodable deletion");
        };
        assert_eq!(object.resource_version.as_deref(), Some("4"));
        assert!(read(r#"{"type":"ADDED","object":{"metad"#).is_err());
        assert!(read(r#"{"type":"ADDED"}"#).is_err());
    }
}
