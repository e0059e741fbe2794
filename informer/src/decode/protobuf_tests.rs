//! Reading events and lists of protobuf, damaged ones among them.

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use reeve_client::ObjectKey;
use reeve_client::transport::{Encoding, Endpoint};
use reeve_wire::{encode_list, envelope, to_vec, watch};
use serde_json::{Value, json};

use super::*;
use crate::decode::list::Held;
use crate::object::{Compact, Decoding, EntryReader, Form, Stored};

fn entries<S: Form>() -> EntryReader<S> {
    let entries: EntryReader<S> = Decoding::of("v1", "ConfigMap").guarded().into();
    assert!(entries.accepts_protobuf(&Endpoint::of::<ConfigMap>()));
    entries
}

fn map(name: &str, version: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
        "name": name, "namespace": "n", "uid": format!("u-{name}"), "resourceVersion": version,
        "managedFields": [{"manager": "m"}],
    }, "data": {"k": "hunter2"}})
}

/// The message of an object.
fn message(object: &Value) -> Vec<u8> {
    let body = to_vec(object).unwrap();
    reeve_wire::Envelope::parse(&body).unwrap().object.to_vec()
}

/// A message with metadata, and a field `data` that is a number.
fn broken(name: &str) -> Vec<u8> {
    let mut object = map(name, "6");
    object.as_object_mut().unwrap().remove("data");
    [message(&object), vec![2 << 3, 7]].concat()
}

/// An event, without its length.
fn event(kind: &str, message: &[u8]) -> Vec<u8> {
    watch::frame(kind, "v1", "ConfigMap", message)[4..].to_vec()
}

fn read(event: &[u8]) -> Result<Frame<ConfigMap>, super::error::DecodeError> {
    decode_frame(Encoding::Protobuf, event, &entries())
}

#[test]
fn each_type_of_event_is_recognized() {
    let object = message(&map("a", "5"));
    let Ok(Frame::Added(added)) = read(&event("ADDED", &object)) else {
        panic!("not added");
    };
    let text = map("a", "5").to_string();
    assert_eq!(
        *added,
        Decoding::default().read::<ConfigMap>(&text).unwrap()
    );
    assert!(added.metadata.managed_fields.is_none());
    assert!(matches!(
        read(&event("MODIFIED", &object)),
        Ok(Frame::Modified(_))
    ));
    assert!(matches!(
        read(&event("DELETED", &object)),
        Ok(Frame::Deleted(_))
    ));
    assert!(matches!(read(&event("NEWLY", &object)), Ok(Frame::Unknown)));
    let status = json!({"apiVersion": "v1", "kind": "Status", "code": 410, "reason": "Expired"});
    let error = watch::frame("ERROR", "v1", "Status", &message(&status));
    assert!(matches!(read(&error[4..]), Ok(Frame::Error(status)) if status.code == 410));
}

#[test]
fn only_the_exact_annotation_ends_the_initial_events() {
    for (annotations, ends) in [
        (
            json!({"k8s.io/initial-events-end": "true", "other": "true"}),
            true,
        ),
        (json!({"k8s.io/initial-events-end": "false"}), false),
        (json!({"other": "true"}), false),
        (json!({}), false),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"resourceVersion": "9", "annotations": annotations}});
        let Ok(Frame::Bookmark {
            resource_version,
            initial_events_end,
        }) = read(&event("BOOKMARK", &message(&object)))
        else {
            panic!("no bookmark: {annotations}");
        };
        assert_eq!((resource_version.as_str(), initial_events_end), ("9", ends));
    }
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let versionless = event("BOOKMARK", &message(&nothing));
    assert!(matches!(read(&versionless), Ok(Frame::Unknown)));
}

#[test]
fn an_object_that_cannot_be_read_costs_that_object_only_and_is_identified() {
    let Ok(Frame::Undecodable {
        object,
        deleted: true,
    }) = read(&event("DELETED", &broken("bad")))
    else {
        panic!("expected an undecodable deletion");
    };
    assert_eq!(object.key, Some(ObjectKey::namespaced("n", "bad")));
    assert_eq!(object.uid.as_deref(), Some("u-bad"));
    assert_eq!(object.resource_version.as_deref(), Some("6"));
    let nameless = event(
        "ADDED",
        &message(&json!({"apiVersion": "v1", "kind": "ConfigMap"})),
    );
    assert!(
        matches!(read(&nameless), Ok(Frame::Undecodable { object, .. }) if object.key.is_none())
    );
}

#[test]
fn another_type_of_object_is_refused_as_from_json() {
    let mut secret = map("s", "5");
    secret["kind"] = "Secret".into();
    secret["data"]["k"] = "aHVudGVyMg==".into();
    let body = watch::frame("ADDED", "v1", "Secret", &message(&secret));
    let Ok(Frame::Undecodable { object, .. }) = read(&body[4..]) else {
        panic!("expected an undecodable object");
    };
    let line = format!(r#"{{"type":"ADDED","object":{secret}}}"#);
    let read = decode_frame::<ConfigMap>(Encoding::Json, line.as_bytes(), &entries());
    let Ok(Frame::Undecodable {
        object: expected, ..
    }) = read
    else {
        panic!("expected an undecodable object");
    };
    assert_eq!(object.key, expected.key);
    assert!(object.error.contains("expected ConfigMap"), "{object:?}");
    let shown = format!("{object:?}");
    assert!(
        !shown.contains("hunter2") && !shown.contains("aHVudGVyMg"),
        "{shown}"
    );
}

#[test]
fn an_event_that_is_none_is_an_error_without_content() {
    let whole = event("ADDED", &message(&map("a", "5")));
    let mut refused = 0;
    for length in 0..whole.len() {
        if let Err(error) = read(&whole[..length]) {
            refused += 1;
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
    assert_eq!(refused, whole.len(), "an event is cut by none of them");
    for other in [&b"{\"type\":\"ADDED\"}"[..], b"<html>", b""] {
        assert!(read(other).is_err());
    }
}

fn list(kind: &str, items: &[Vec<u8>]) -> Vec<u8> {
    let metadata = json!({"resourceVersion": "12", "continue": "abc"});
    encode_list("v1", kind, &metadata, items).unwrap()
}

fn read_page<S: Form>(
    body: Vec<u8>,
    held: Option<&Held<'_, S>>,
) -> Result<ListPage<S>, super::error::DecodeError> {
    let body = reeve_client::transport::Encoded {
        encoding: Encoding::Protobuf,
        bytes: body.into(),
    };
    let (entries, mut budget) = (entries(), Budget::unlimited());
    let page = read_list(&body, &entries, held, &mut budget);
    page.now_or_never().expect("it waits for nothing else")
}

#[test]
fn one_undecodable_item_costs_that_item_only() {
    let items = [
        message(&map("a", "5")),
        broken("bad"),
        vec![0xff],
        message(&map("c", "7")),
    ];
    let page = read_page::<ConfigMap>(list("ConfigMapList", &items), None).unwrap();
    let names: Vec<_> = page.items.iter().map(|item| item.name()).collect();
    assert_eq!(names, ["a", "c"]);
    assert_eq!(
        (&*page.resource_version, page.continue_token.as_deref()),
        ("12", Some("abc"))
    );
    assert_eq!(
        page.undecodable[0].key,
        Some(ObjectKey::namespaced("n", "bad"))
    );
    assert_eq!(page.undecodable[1].key, None);
    // A compact entry decodes nothing on arrival, and fails for its reader.
    let page = read_page::<Compact<ConfigMap>>(list("ConfigMapList", &items[..2]), None).unwrap();
    assert!(page.items[0].typed().is_ok() && page.items[1].typed().is_err());
    assert_eq!(page.items[1].json(), "{}");
    assert!(page.items[1].metadata().is_ok());
}

#[test]
fn held_items_are_not_read_again() {
    let held = std::sync::Arc::new(ConfigMap::default());
    let find = |identity: &Identity<'_>| {
        let is = identity.key().is_some_and(|key| key.name == "bad");
        let is = is && identity.uid() == "u-bad" && identity.resource_version() == "6";
        is.then(|| std::sync::Arc::clone(&held))
    };
    // It cannot be read, which shows that it is not read. An empty name is refused after that.
    let page =
        read_page::<ConfigMap>(list("ConfigMapList", &[broken("bad")]), Some(&find)).unwrap();
    assert!(page.items.is_empty());
    assert_eq!(page.undecodable[0].error, "it has no metadata.name");
}

#[test]
fn the_token_is_known_before_the_items_are_read() {
    let body = |bytes: Vec<u8>| reeve_client::transport::Encoded {
        encoding: Encoding::Protobuf,
        bytes: bytes.into(),
    };
    let whole = list("ConfigMapList", &[message(&map("a", "5"))]);
    assert_eq!(continue_token(&body(whole.clone())).as_deref(), Some("abc"));
    assert_eq!(
        continue_token(&body(whole[..whole.len() - 9].to_vec())),
        None
    );
    let last = encode_list(
        "v1",
        "ConfigMapList",
        &json!({"resourceVersion": "1"}),
        &[b""],
    )
    .unwrap();
    assert_eq!(continue_token(&body(last)), None);
}

#[test]
fn a_truncated_page_another_kind_and_a_list_without_version_are_refused() {
    let whole = list("ConfigMapList", &[message(&map("a", "5"))]);
    for length in 0..whole.len() - 4 {
        assert!(
            read_page::<ConfigMap>(whole[..length].to_vec(), None).is_err(),
            "{length}"
        );
    }
    let versionless = encode_list::<Vec<u8>>("v1", "ConfigMapList", &json!({}), &[]).unwrap();
    for body in [
        list("SecretList", &[]),
        versionless,
        envelope("v1", "Status", b""),
        envelope("v1", "ConfigMap", b""),
        b"{\"kind\":\"ConfigMapList\",\"items\":[]}".to_vec(),
        b"<html>bad gateway</html>".to_vec(),
    ] {
        assert!(read_page::<ConfigMap>(body, None).is_err());
    }
}

#[test]
fn the_object_that_an_event_changes_is_identified() {
    for (kind, changes) in [
        ("ADDED", true),
        ("MODIFIED", true),
        ("DELETED", false),
        ("BOOKMARK", false),
    ] {
        let event = event(kind, &broken("bad"));
        let identity = changed(Encoding::Protobuf, &event);
        let key = identity.and_then(|identity| identity.key().map(|key| key.to_string()));
        assert_eq!(key, changes.then(|| "n/bad".to_owned()), "{kind}");
    }
}
