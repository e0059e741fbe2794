//! The kinds, and the forms in which each is sent.

use std::collections::BTreeMap;

use bytes::BytesMut;
use serde_json::Value;

use crate::protobuf;
use crate::template::{Object, Template};

/// The annotation of the bookmark that ends a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// A served kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    IpBlock,
    Pod,
}

/// The form in which an object is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Form {
    pub(crate) protobuf: bool,
    pub(crate) metadata: bool,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Added,
    Modified,
}

/// A kind in a form: the template, and the bytes around it.
#[derive(Debug)]
pub(crate) struct Format {
    protobuf: bool,
    api_version: String,
    kind: String,
    list_kind: String,
    list_api_version: String,
    /// The item of a list, with the bytes before it.
    item_head: Vec<u8>,
    item: Template,
    /// An event: `Added`, `Modified`.
    event_heads: [Vec<u8>; 2],
    event: Template,
    event_tail: &'static [u8],
}

/// All formats.
#[derive(Debug)]
pub(crate) struct Formats(BTreeMap<(Kind, Form), Format>);

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::ConfigMap, Self::IpBlock, Self::Pod];

    /// The name of the kind, as in a path.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::IpBlock => "ipblocks",
            Self::Pod => "pods",
        }
    }

    /// The path of all objects.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::ConfigMap => "/api/v1/configmaps",
            Self::IpBlock => "/apis/ops.example.io/v1/ipblocks",
            Self::Pod => "/api/v1/pods",
        }
    }

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("v1", "ConfigMap"),
            Self::IpBlock => ("ops.example.io/v1", "IPBlock"),
            Self::Pod => ("v1", "Pod"),
        }
    }

    /// The object in JSON, in protobuf if the kind has that, and its metadata in protobuf.
    fn files(self) -> (&'static [u8], Option<&'static [u8]>, &'static [u8]) {
        match self {
            Self::ConfigMap => (
                include_bytes!("../templates/configmap.json"),
                Some(include_bytes!("../templates/configmap.pb")),
                include_bytes!("../templates/configmap-metadata.pb"),
            ),
            Self::IpBlock => (
                include_bytes!("../templates/ipblock.json"),
                None,
                include_bytes!("../templates/ipblock-metadata.pb"),
            ),
            Self::Pod => (
                include_bytes!("../templates/pod.json"),
                Some(include_bytes!("../templates/pod.pb")),
                include_bytes!("../templates/pod-metadata.pb"),
            ),
        }
    }
}

// === impl Form ===

impl Form {
    /// The content type of a response.
    pub(crate) fn content_type(self, watch: bool) -> &'static str {
        match (self.protobuf, watch) {
            (false, _) => "application/json",
            (true, false) => "application/vnd.kubernetes.protobuf",
            (true, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }
}

// === impl Formats ===

impl Formats {
    pub(crate) fn new() -> Self {
        let mut formats = BTreeMap::new();
        for kind in Kind::ALL {
            let (json, protobuf, metadata) = kind.files();
            let (api_version, name) = kind.names();
            let partial = ("meta.k8s.io/v1", "PartialObjectMetadata");
            for (form, format) in [
                ((false, false), Some(Format::json(api_version, name, json))),
                (
                    (false, true),
                    Some(Format::json(partial.0, partial.1, &metadata_of(json))),
                ),
                (
                    (true, false),
                    protobuf.map(|bytes| Format::protobuf(api_version, name, bytes)),
                ),
                (
                    (true, true),
                    Some(Format::protobuf(partial.0, partial.1, metadata)),
                ),
            ] {
                let (protobuf, metadata) = form;
                if let Some(format) = format {
                    formats.insert((kind, Form { protobuf, metadata }), format);
                }
            }
        }
        Self(formats)
    }

    pub(crate) fn get(&self, kind: Kind, form: Form) -> Option<&Format> {
        self.0.get(&(kind, form))
    }
}

/// The JSON of an object with only its metadata.
fn metadata_of(json: &[u8]) -> Vec<u8> {
    let object: Value = serde_json::from_slice(json).expect("a template that is JSON");
    format!(r#"{{"metadata":{}}}"#, object["metadata"]).into_bytes()
}

/// Puts kind and version first.
fn with_type(api_version: &str, kind: &str, json: &[u8]) -> Vec<u8> {
    let head = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","#);
    [head.as_bytes(), &json[1..]].concat()
}

// === impl Format ===

impl Format {
    fn json(api_version: &str, kind: &str, json: &[u8]) -> Self {
        let typed = with_type(api_version, kind, json);
        // Lists of built-in kinds omit the type of their items.
        let item = if api_version == "v1" {
            json.to_vec()
        } else {
            typed.clone()
        };
        Self {
            protobuf: false,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            list_api_version: api_version.to_owned(),
            item_head: b",".to_vec(),
            item: Template::new(item),
            event_heads: [What::Added, What::Modified]
                .map(|what| format!(r#"{{"type":"{}","object":"#, what.name()).into_bytes()),
            event: Template::new(typed),
            event_tail: b"}\n",
        }
    }

    fn protobuf(api_version: &str, kind: &str, bytes: &[u8]) -> Self {
        let object = protobuf::object(api_version, kind, bytes.len());
        let length = object.len() + bytes.len();
        Self {
            protobuf: true,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            list_api_version: api_version.to_owned(),
            item_head: protobuf::open(2, bytes.len()),
            item: Template::new(bytes.to_vec()),
            event_heads: [What::Added, What::Modified]
                .map(|what| [protobuf::event(what.name(), length), object.clone()].concat()),
            event: Template::new(bytes.to_vec()),
            event_tail: b"",
        }
    }

    /// The size of an item of a list in bytes.
    pub(crate) fn item_len(&self) -> usize {
        self.item_head.len() + self.item.len()
    }

    /// The approximate size of an event in bytes.
    pub(crate) fn event_len(&self) -> usize {
        self.event_heads[0].len() + self.event.len() + self.event_tail.len()
    }

    /// The bytes before and after the items of a list of `count`. In JSON the first item has
    /// no comma before it: see [`Format::write_item`].
    pub(crate) fn list(
        &self,
        count: usize,
        version: u64,
        token: &str,
        remaining: usize,
    ) -> (Vec<u8>, Vec<u8>) {
        if self.protobuf {
            let meta = protobuf::field(1, &protobuf::list_meta(version, token, remaining));
            let length = meta.len() + count * self.item_len();
            let head = protobuf::object(&self.list_api_version, &self.list_kind, length);
            return ([head, meta].concat(), Vec::new());
        }
        let more = if token.is_empty() {
            String::new()
        } else {
            format!(r#","continue":"{token}","remainingItemCount":{remaining}"#)
        };
        let head = format!(
            r#"{{"kind":"{}","apiVersion":"{}","metadata":{{"resourceVersion":"{version}"{more}}},"items":["#,
            self.list_kind, self.list_api_version,
        );
        (head.into_bytes(), b"]}\n".to_vec())
    }

    /// The size of the items of a list of `count` in bytes.
    pub(crate) fn items_len(&self, count: usize) -> usize {
        let saved = if self.protobuf || count == 0 {
            0
        } else {
            self.item_head.len()
        };
        count * self.item_len() - saved
    }

    /// Appends an item of a list.
    pub(crate) fn write_item(&self, object: Object, first: bool, out: &mut BytesMut) {
        if self.protobuf || !first {
            out.extend_from_slice(&self.item_head);
        }
        self.item.write(object, out);
    }

    /// Appends a single object.
    pub(crate) fn write_object(&self, object: Object, out: &mut BytesMut) {
        self.event.write(object, out);
    }

    /// Appends an event.
    pub(crate) fn write_event(&self, what: What, object: Object, out: &mut BytesMut) {
        out.extend_from_slice(&self.event_heads[usize::from(what == What::Modified)]);
        self.event.write(object, out);
        out.extend_from_slice(self.event_tail);
    }

    /// Appends the bookmark that ends a streamed list.
    pub(crate) fn write_end(&self, version: u64, out: &mut BytesMut) {
        if self.protobuf {
            let bytes = protobuf::bookmark(version, INITIAL_EVENTS_END);
            let head = protobuf::object(&self.api_version, &self.kind, bytes.len());
            out.extend_from_slice(&protobuf::event("BOOKMARK", head.len() + bytes.len()));
            out.extend_from_slice(&head);
            out.extend_from_slice(&bytes);
        } else {
            let text = format!(
                r#"{{"type":"BOOKMARK","object":{{"kind":"{}","apiVersion":"{}","metadata":{{"resourceVersion":"{version}","creationTimestamp":null,"annotations":{{"{INITIAL_EVENTS_END}":"true"}}}}}}}}"#,
                self.kind, self.api_version,
            );
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\n");
        }
    }

    /// Appends the error event for a version that is too old.
    pub(crate) fn write_expired(&self, out: &mut BytesMut) {
        let (message, reason) = ("too old resource version", "Expired");
        if self.protobuf {
            let bytes = protobuf::status(message, reason, 410);
            let head = protobuf::object("v1", "Status", bytes.len());
            out.extend_from_slice(&protobuf::event("ERROR", head.len() + bytes.len()));
            out.extend_from_slice(&head);
            out.extend_from_slice(&bytes);
        } else {
            let text = format!(
                r#"{{"type":"ERROR","object":{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":410}}}}"#
            );
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\n");
        }
    }
}

// === impl What ===

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: Object = Object {
        number: 7,
        version: 1_000_000_008,
        stamp: 1_700_000_000_000_000,
    };

    fn json(kind: Kind, metadata: bool) -> Format {
        let mut formats = Formats::new();
        formats
            .0
            .remove(&(
                kind,
                Form {
                    protobuf: false,
                    metadata,
                },
            ))
            .unwrap()
    }

    #[test]
    fn objects_have_the_sizes_that_the_tables_name() {
        let size = |kind| json(kind, false).item.len();
        assert_eq!(
            (size(Kind::ConfigMap), size(Kind::IpBlock), size(Kind::Pod)),
            (363, 673, 4990)
        );
    }

    #[test]
    fn a_list_is_json_and_as_long_as_it_says() {
        for kind in Kind::ALL {
            for metadata in [false, true] {
                let format = json(kind, metadata);
                let (head, tail) = format.list(2, 5, "t", 3);
                let mut out = BytesMut::new();
                format.write_item(OBJECT, true, &mut out);
                format.write_item(OBJECT, false, &mut out);
                assert_eq!(out.len(), format.items_len(2));
                let whole = [&head, &out[..], &tail].concat();
                let list: Value = serde_json::from_slice(&whole).unwrap();
                assert_eq!(list["items"][1]["metadata"]["name"], "name-0000000007");
                assert_eq!(
                    list["items"][0]["metadata"]["resourceVersion"],
                    "1000000008"
                );
                assert_eq!(list["metadata"]["continue"], "t");
            }
        }
    }

    #[test]
    fn events_are_lines_of_json() {
        let format = json(Kind::Pod, false);
        let mut out = BytesMut::new();
        format.write_event(What::Modified, OBJECT, &mut out);
        format.write_end(9, &mut out);
        format.write_expired(&mut out);
        let lines: Vec<Value> = out[..]
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        assert_eq!(lines[0]["object"]["spec"]["hostname"], "1700000000000000");
        assert_eq!(lines[0]["object"]["kind"], "Pod");
        assert_eq!(
            lines[1]["object"]["metadata"]["annotations"][INITIAL_EVENTS_END],
            "true"
        );
        assert_eq!(lines[2]["object"]["code"], 410);
    }
}
