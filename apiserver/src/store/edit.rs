//! Changes of the metadata of an object in its JSON, without parsing it.

use std::sync::Arc;

use super::object::Object;
use super::scan;

// === impl Object ===

impl Object {
    /// The same with other fields in its `metadata`: names in their order, and values as JSON. It is not stored.
    pub(crate) fn with_metadata(self: &Arc<Self>, fields: &[(&str, String)]) -> Self {
        let json = edited(self.encoded(), fields);
        self.in_another_form(json.into())
    }
}

/// `json` with these fields in its `metadata`.
fn edited(json: &[u8], fields: &[(&str, String)]) -> Vec<u8> {
    let Some(metadata) = scan::field(json, 0..json.len(), "metadata") else {
        return json.to_vec();
    };
    let mut out = Vec::with_capacity(json.len() + 128);
    out.extend_from_slice(&json[..metadata.start]);
    out.push(b'{');
    let mut put = |name: &[u8], value: &[u8]| {
        let start: &[u8] = match out.last() {
            Some(b'{') => b"\"",
            _ => b",\"",
        };
        for part in [start, name, b"\":", value] {
            out.extend_from_slice(part);
        }
    };
    let mut left = fields.iter().peekable();
    for (name, value) in scan::fields(json, metadata.clone()) {
        let name = &json[name];
        while let Some((new, value)) = left.next_if(|(new, _)| new.as_bytes() < name) {
            put(new.as_bytes(), value.as_bytes());
        }
        match left.next_if(|(new, _)| new.as_bytes() == name) {
            Some((_, new)) => put(name, new.as_bytes()),
            None => put(name, &json[value]),
        }
    }
    for (new, value) in left {
        put(new.as_bytes(), value.as_bytes());
    }
    out.push(b'}');
    out.extend_from_slice(&json[metadata.end..]);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn fields_are_put_in_their_order_or_in_the_place_of_others() {
        let fields = [
            ("deletionTimestamp", "\"now\"".to_owned()),
            ("generation", "7".to_owned()),
        ];
        for (before, after) in [
            (
                json!({"data": {"generation": 1}, "metadata": {"creationTimestamp": "then", "generation": 6, "labels": {"a": "{}"}, "name": "x", "resourceVersion": "7"}, "spec": {}}),
                json!({"creationTimestamp": "then", "deletionTimestamp": "now", "generation": 7, "labels": {"a": "{}"}, "name": "x", "resourceVersion": "7"}),
            ),
            (
                json!({"metadata": {}}),
                json!({"deletionTimestamp": "now", "generation": 7}),
            ),
            (
                json!({"metadata": {"annotations": {}, "deletionTimestamp": "old"}}),
                json!({"annotations": {}, "deletionTimestamp": "now", "generation": 7}),
            ),
        ] {
            let mut wanted = before.clone();
            wanted["metadata"] = after;
            let json = edited(before.to_string().as_bytes(), &fields);
            // Its fields are sorted, too.
            assert_eq!(String::from_utf8(json).unwrap(), wanted.to_string());
        }
        assert_eq!(edited(b"{}", &fields), b"{}");
    }

    #[test]
    fn the_version_of_an_edited_object_is_that_of_its_last_write() {
        let object = Arc::new(Object::new(json!({"metadata": {"name": "x"}}), 999));
        let removed = Arc::new(Object::at_version(&object, 1000));
        let edited = removed.with_metadata(&[("deletionTimestamp", "\"now\"".to_owned())]);
        let metadata: Value = edited.value()["metadata"].clone();
        let wanted = json!({"name": "x", "deletionTimestamp": "now", "resourceVersion": "1000"});
        assert_eq!((edited.version(), metadata), (1000, wanted));
    }
}
