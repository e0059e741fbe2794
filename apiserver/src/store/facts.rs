//! What the store needs to know of an object, read once from its JSON.

use std::ops::Range;

use super::scan;

/// Facts of one object, and places in its JSON.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// `metadata.uid`.
    pub(super) uid: Option<Box<str>>,
    /// The uids of `metadata.ownerReferences`.
    pub(super) owners: Box<[Box<str>]>,
    /// `metadata.finalizers`.
    pub(super) finalizers: Box<[Box<str>]>,
    /// Whether it has a `metadata.deletionTimestamp`.
    pub(super) terminating: bool,
    metadata: Place,
    labels: Place,
    /// The text of `metadata.resourceVersion` without its quotes.
    version: Place,
    /// `metadata.managedFields` with its name and a comma.
    managers: Place,
}

/// A place in JSON; empty for a value that is absent.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    start: u32,
    end: u32,
}

// === impl Place ===

impl Place {
    fn new(place: &Range<usize>) -> Self {
        match (u32::try_from(place.start), u32::try_from(place.end)) {
            (Ok(start), Ok(end)) => Self { start, end },
            _ => Self::default(),
        }
    }

    fn get(self) -> Option<Range<usize>> {
        (self.start < self.end).then_some(self.start as usize..self.end as usize)
    }
}

// === impl Facts ===

impl Facts {
    /// The facts of an object that this server encoded.
    pub(super) fn of(json: &[u8]) -> Self {
        let mut facts = Self::default();
        let Some(metadata) = scan::field(json, 0..json.len(), "metadata") else {
            return facts;
        };
        facts.metadata = Place::new(&metadata);
        let text = |place: Range<usize>| Some(scan::text(json, place)?.into());
        for (name, place) in scan::fields(json, metadata) {
            match &json[name.clone()] {
                b"uid" => facts.uid = text(place),
                b"labels" => facts.labels = Place::new(&place),
                b"deletionTimestamp" => facts.terminating = text(place).is_some(),
                b"finalizers" => {
                    facts.finalizers = scan::items(json, place).filter_map(text).collect();
                }
                b"ownerReferences" => {
                    let uid = |place| scan::field(json, place, "uid").and_then(text);
                    facts.owners = scan::items(json, place).filter_map(uid).collect();
                }
                b"managedFields" => {
                    // With the comma before it, or else with the one behind it.
                    let (start, end) = (name.start - 1, place.end);
                    facts.managers = Place::new(&match (json.get(start - 1), json.get(end)) {
                        (Some(b','), _) => start - 1..end,
                        (_, Some(b',')) => start..end + 1,
                        _ => start..end,
                    });
                }
                b"resourceVersion" if json[place.start] == b'"' => {
                    facts.version = Place::new(&(place.start + 1..place.end - 1));
                }
                _ => {}
            }
        }
        facts
    }

    /// The version in the JSON; 0 if it has none.
    pub(super) fn version(&self, json: &[u8]) -> u64 {
        let text = self.version.get().and_then(|place| json.get(place));
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// The place of the digits of the version.
    pub(super) fn version_place(&self) -> Option<Range<usize>> {
        self.version.get()
    }

    /// The place of `metadata`.
    pub(super) fn metadata(&self) -> Option<Range<usize>> {
        self.metadata.get()
    }

    /// The place of `metadata.managedFields`; without it the JSON is valid, too.
    pub(super) fn managers(&self) -> Option<Range<usize>> {
        self.managers.get()
    }

    /// The place of `metadata.labels`.
    pub(super) fn labels(&self) -> Option<Range<usize>> {
        self.labels.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_are_those_of_the_metadata_of_the_object_alone() {
        let json = json!({
            "data": {"metadata": {"uid": "no"}, "uid": "no"},
            "metadata": {
                "annotations": {"uid": "no", "deletionTimestamp": "no"}, "finalizers": ["a/b", "say \"c\""],
                "labels": {"app": "x"}, "name": "n", "ownerReferences": [{"kind": "K", "uid": "1"}, {"uid": "2"}, {}],
                "resourceVersion": "1007", "uid": "u",
            },
            "spec": {"template": {"metadata": {"labels": {"app": "no"}}}},
        });
        let json = json.to_string();
        let facts = Facts::of(json.as_bytes());
        assert_eq!(facts.uid.as_deref(), Some("u"));
        assert_eq!(*facts.owners, ["1".into(), "2".into()]);
        assert_eq!(*facts.finalizers, ["a/b".into(), "say \"c\"".into()]);
        assert!(!facts.terminating);
        assert_eq!(facts.version(json.as_bytes()), 1007);
        assert_eq!(&json[facts.labels().unwrap()], r#"{"app":"x"}"#);
        assert_eq!(&json[facts.version_place().unwrap()], "1007");
        assert!(json[facts.metadata().unwrap()].ends_with(r#""uid":"u"}"#));
    }

    #[test]
    fn json_without_the_place_of_the_managers_is_that_of_the_object_without_them() {
        let managers = json!([{"manager": "a,]}", "fieldsV1": {"f:x": {}}}]);
        for metadata in [
            json!({"managedFields": managers}),
            json!({"managedFields": managers, "name": "x"}),
            json!({"labels": {"a": "b"}, "managedFields": managers}),
            json!({"labels": {"a": "b"}, "managedFields": managers, "name": "x"}),
        ] {
            let mut object = json!({"metadata": metadata, "spec": {"managedFields": 1}});
            let json = object.to_string();
            let place = Facts::of(json.as_bytes()).managers().unwrap();
            let left = [&json[..place.start], &json[place.end..]].concat();
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.remove("managedFields");
            assert_eq!(left, object.to_string());
        }
        assert_eq!(Facts::of(b"{\"metadata\":{}}").managers(), None);
    }

    #[test]
    fn content_of_any_form_has_facts() {
        for json in [
            json!(null),
            json!([]),
            json!({"metadata": 1}),
            json!({"metadata": {"uid": 1, "finalizers": {}, "ownerReferences": [1], "deletionTimestamp": null}}),
        ] {
            let json = json.to_string();
            let facts = Facts::of(json.as_bytes());
            assert!(
                facts.uid.is_none()
                    && facts.owners.is_empty()
                    && facts.finalizers.is_empty()
                    && !facts.terminating,
                "{json}"
            );
            assert_eq!(facts.version(json.as_bytes()), 0);
        }
    }
}
