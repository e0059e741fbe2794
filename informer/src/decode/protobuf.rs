//! Reads the events and lists of protobuf, with the guarantees of JSON.
//!
//! An object is found by its length, so one that cannot be read costs nothing but itself. It is then read once more as
//! JSON text, which any type can read, and which has the errors and the outline of an object that came as JSON.

use std::borrow::Cow;
use std::sync::Arc;

use reeve_client::json::{self, attempt, read_alone};
use reeve_wire::watch::Event;
use reeve_wire::{Cause, Deserializer, Envelope, Fields, Limits, Message, Wire};

use super::budget::Budget;
use super::error::DecodeError;
use super::frame::{Frame, INITIAL_EVENTS_END, named};
use super::identity::Identity;
use super::list::{Held, ListHead, ListMetadata, ListPage, finish};
use super::undecodable::Undecodable;
use crate::object::{EntryReader, Stored, text};

/// The number of `metadata` in every object and in every list, and that of the items of a list.
const METADATA: u32 = 1;
const ITEMS: u32 = 2;

/// Reads an event.
pub(super) fn decode_event<S: Stored + ?Sized>(
    event: &[u8],
    entries: &EntryReader<S>,
) -> Result<Frame<S>, DecodeError> {
    let broken = |cause: Cause| refused("the watch event", &cause);
    let event = Event::parse(event).map_err(broken)?;
    let wrap: fn(Arc<S>) -> Frame<S> = match &*event.kind {
        "ADDED" => Frame::Added,
        "MODIFIED" => Frame::Modified,
        "DELETED" => Frame::Deleted,
        "BOOKMARK" => {
            let object = Envelope::parse(event.object).map_err(broken)?;
            return bookmark(object.object);
        }
        "ERROR" => {
            let object = Envelope::parse(event.object).map_err(broken)?;
            let status = object.decode(Limits::default());
            let status = status.map_err(|error| refused("the watch event", error.cause()))?;
            return Ok(Frame::Error(status));
        }
        "" => {
            return Err(DecodeError {
                what: "the watch event",
                error: "it has no type".to_owned(),
            });
        }
        _ => return Ok(Frame::Unknown),
    };
    let object = Envelope::parse(event.object).map_err(broken)?;
    Ok(
        match read_object(&object, entries, event.kind != "ADDED")? {
            Ok(entry) => named(wrap(entry)),
            Err(object) => Frame::Undecodable {
                object,
                deleted: event.kind == "DELETED",
            },
        },
    )
}

/// Reads a bookmark.
fn bookmark<S: ?Sized>(object: &[u8]) -> Result<Frame<S>, DecodeError> {
    const ANNOTATIONS: u32 = 12;
    let mut resource_version = None;
    let mut initial_events_end = false;
    each_of_metadata(object, |number, bytes| {
        match number {
            RESOURCE_VERSION => resource_version = filled(bytes),
            ANNOTATIONS => {
                let (mut name, mut value): (&[u8], &[u8]) = (b"", b"");
                let mut fields = Fields::new(bytes, "Entry");
                while let Some((number, part)) = fields.next()? {
                    match (number, part) {
                        (1, Wire::Bytes(text)) => name = text,
                        (2, Wire::Bytes(text)) => value = text,
                        _ => {}
                    }
                }
                if name == INITIAL_EVENTS_END.as_bytes() {
                    initial_events_end = value == b"true";
                }
            }
            _ => {}
        }
        Ok(())
    })
    .map_err(|cause| refused("the watch event", &cause))?;
    Ok(Frame::bookmark(
        resource_version.unwrap_or_default(),
        initial_events_end,
    ))
}

/// The identity of the object that an event adds or changes.
pub(super) fn changed(event: &[u8]) -> Option<Identity<'_>> {
    let event = Event::parse(event).ok()?;
    if !matches!(&*event.kind, "ADDED" | "MODIFIED") {
        return None;
    }
    let object = Envelope::parse(event.object).ok()?;
    Some(identity(object.object))
}

const RESOURCE_VERSION: u32 = 6;

/// The identity of an object, or as much of it as can be read.
fn identity(object: &[u8]) -> Identity<'_> {
    let mut identity = Identity::default();
    // An error ends the reading early, and what was read before counts.
    let _ = each_of_metadata(object, |number, bytes| {
        let part = match number {
            1 => &mut identity.name,
            3 => &mut identity.namespace,
            5 => &mut identity.uid,
            RESOURCE_VERSION => &mut identity.resource_version,
            _ => return Ok(()),
        };
        *part = Some(String::from_utf8_lossy(bytes));
        Ok(())
    });
    identity
}

/// Passes the texts and messages of the metadata of an object to `visit`, with their numbers.
fn each_of_metadata<'a>(
    object: &'a [u8],
    mut visit: impl FnMut(u32, &'a [u8]) -> Result<(), Cause>,
) -> Result<(), Cause> {
    let mut fields = Fields::new(object, "Object");
    while let Some((number, value)) = fields.next()? {
        let (METADATA, Wire::Bytes(metadata)) = (number, value) else {
            continue;
        };
        let mut fields = Fields::new(metadata, "ObjectMeta");
        while let Some((number, value)) = fields.next()? {
            if let Wire::Bytes(bytes) = value {
                visit(number, bytes)?;
            }
        }
    }
    Ok(())
}

/// Reads an object in its envelope. An error of the envelope is one of the whole event. `replaces`: it takes the place of an
/// object of the store.
fn read_object<S: Stored + ?Sized>(
    object: &Envelope<'_>,
    entries: &EntryReader<S>,
    replaces: bool,
) -> Result<Result<Arc<S>, Undecodable>, DecodeError> {
    let (api_version, kind) = (&*object.api_version, &*object.kind);
    if let Some(origin) = entries.protobuf()
        && origin.is_of(api_version, kind)
        && let Some(entry) = attempt(|| entries.read_change(origin, object.object, replaces))
    {
        return Ok(Ok(entry));
    }
    let message = object.message();
    let message = message.map_err(|cause| refused("the watch event", &cause))?;
    Ok(read_as_text(message, object, entries))
}

/// Reads an object as JSON.
#[cold]
fn read_as_text<S: Stored + ?Sized>(
    message: &'static Message,
    object: &Envelope<'_>,
    entries: &EntryReader<S>,
) -> Result<Arc<S>, Undecodable> {
    // Parts of it may be left out while it is read; those of another type are left out of its text.
    let own = entries.protobuf();
    let own = own.filter(|origin| origin.is_of(&object.api_version, &object.kind));
    let text = match own {
        Some(origin) => origin.text(object.object),
        None => text(
            Deserializer::new(message, object.object)
                .with_type(&*object.api_version, &*object.kind),
        ),
    };
    let Some(text) = text else {
        let error = "its bytes are not a message of its kind".to_owned();
        let identity = identity(object.object);
        return Err(Undecodable::identified(&identity, error, String::new()));
    };
    let read = read_alone(|| json::read(&text, |reader| entries.read(reader)));
    read.map_err(|error| Undecodable::probe(&text, error))
}

/// Reads a page of a list. Yields to other tasks by `budget`.
pub(super) async fn read_list<S: Stored + ?Sized>(
    body: &[u8],
    entries: &EntryReader<S>,
    held: Option<&Held<'_, S>>,
    budget: &mut Budget,
) -> Result<ListPage<S>, DecodeError> {
    let broken = |cause: Cause| refused("the list", &cause);
    let list = Envelope::parse(body).map_err(broken)?;
    let mut item = item_of(&list, entries)?;
    let message = item.message().map_err(broken)?;
    let origin = entries.protobuf();
    let origin = origin.filter(|origin| origin.is_of(&item.api_version, &item.kind));
    let mut head = ListHead::default();
    let (mut items, mut undecodable) = (Vec::new(), Vec::new());
    let mut fields = Fields::new(list.object, "List");
    while let Some((number, value)) = fields.next().map_err(broken)? {
        let Wire::Bytes(bytes) = value else {
            continue;
        };
        match number {
            METADATA => head.metadata = metadata(bytes, head.metadata).map_err(broken)?,
            ITEMS => {
                if let Some(held) = held
                    && let Some(entry) = held(&identity(bytes))
                {
                    items.push(entry);
                } else if let Some(origin) = origin
                    && let Some(entry) = attempt(|| entries.read_protobuf(origin, bytes))
                {
                    items.push(entry);
                } else {
                    item.object = bytes;
                    match read_as_text(message, &item, entries) {
                        Ok(entry) => items.push(entry),
                        Err(object) => undecodable.push(object),
                    }
                }
                budget.spend(bytes.len()).await;
            }
            _ => {}
        }
    }
    finish(head, items, undecodable)
}

/// The envelope that an item of a list would have.
fn item_of<'a, S: ?Sized>(
    list: &'a Envelope<'a>,
    entries: &EntryReader<S>,
) -> Result<Envelope<'a>, DecodeError> {
    let refuse = |error: &str| {
        Err(DecodeError {
            what: "the list",
            error: error.to_owned(),
        })
    };
    let Some(kind) = list.kind.strip_suffix("List") else {
        return refuse("the server answered with another kind, expected a list of objects");
    };
    let is_other = |origin: &Arc<_>| {
        let origin: &crate::object::Origin = origin;
        origin.is_guarded() && !origin.is_of(&list.api_version, kind)
    };
    if entries.protobuf().is_some_and(is_other) {
        return refuse("the server answered with a list of objects of another type");
    }
    Ok(Envelope {
        api_version: Cow::Borrowed(&list.api_version),
        kind: Cow::Borrowed(kind),
        object: b"",
    })
}

/// The metadata of a list, whose fields may come in pieces.
fn metadata(bytes: &[u8], before: ListMetadata) -> Result<ListMetadata, Cause> {
    let mut metadata = before;
    let mut fields = Fields::new(bytes, "ListMeta");
    while let Some((number, value)) = fields.next()? {
        let (number @ (2 | 3), Wire::Bytes(text)) = (number, value) else {
            continue;
        };
        let text = filled(text);
        if number == 2 {
            metadata.resource_version = text;
        } else {
            metadata.r#continue = text;
        }
    }
    Ok(metadata)
}

/// A text; Go's JSON leaves an empty one out.
fn filled(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
}

/// The token of the next page, if it comes before the items.
pub(super) fn continue_token(body: &[u8]) -> Option<String> {
    let list = Envelope::parse(body).ok()?;
    let mut fields = Fields::new(list.object, "List");
    let (METADATA, Wire::Bytes(bytes)) = fields.next().ok()?? else {
        return None;
    };
    metadata(bytes, ListMetadata::default()).ok()?.r#continue
}

/// The error of a document, without any of its content.
fn refused(what: &'static str, cause: &Cause) -> DecodeError {
    let error = match cause {
        // Those may quote it.
        Cause::Custom(_) | Cause::Json(_) | Cause::UnknownKind { .. } => {
            "its content has an unexpected form".to_owned()
        }
        cause => cause.to_string(),
    };
    DecodeError { what, error }
}
