//! Reads one page of a list: [`ListPage`].

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::budget::Budget;
use super::error::DecodeError;
use super::identity::{Identity, identity};
use super::undecodable::Undecodable;
use crate::json::{self, attempt, read_alone, redacted};
use crate::object::{Decoding, Stored};

/// One page of a list.
#[derive(Debug)]
pub(crate) struct ListPage<S> {
    pub(crate) resource_version: String,
    /// The token of the next page, if there is one.
    pub(crate) continue_token: Option<String>,
    pub(crate) items: Vec<Arc<S>>,
    pub(crate) undecodable: Vec<Undecodable>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    resource_version: Option<String>,
    r#continue: Option<String>,
}

/// Returns the entry that the store holds of an object, if it has the same version.
pub(crate) type Held<'a, S> = dyn Fn(&Identity<'_>) -> Option<Arc<S>> + Send + Sync + 'a;

/// Reads a page: in one pass, or else item by item. If most of a page is `held` already, such items are read no further
/// than their version. Yields to other tasks by `budget`.
pub(crate) async fn read_list<S: Stored>(
    body: &[u8],
    decoding: &Decoding,
    held: Option<&Held<'_, S>>,
    budget: &mut Budget,
) -> Result<ListPage<S>, DecodeError> {
    // Go replaces invalid UTF-8 too: one wrong byte must not cost the whole list.
    let body = String::from_utf8_lossy(body);
    if held.is_none() {
        let mut items = Vec::new();
        let entry = || EntrySeed::<S>::new(decoding);
        if let Some(list) = steps(&body, budget, entry, |item| items.push(item)).await {
            return finish(list.kind, list.metadata, items, Vec::new());
        }
    }
    let mut read = Alone {
        decoding,
        held,
        items: Vec::new(),
        undecodable: Vec::new(),
    };
    let raw = steps(&body, budget, RawSeed::default, |item| read.take(item)).await;
    let Alone {
        items, undecodable, ..
    } = read;
    if let Some(list) = raw {
        return finish(list.kind, list.metadata, items, undecodable);
    }
    by_serde_json(&body, decoding, held, budget).await
}

/// [`read_list`] without held entries, and without yielding.
#[cfg(any(test, fuzzing))]
pub(crate) fn decode_list<S: Stored>(
    body: &[u8],
    decoding: &Decoding,
) -> Result<ListPage<S>, DecodeError> {
    use futures::FutureExt;
    read_list(body, decoding, None, &mut Budget::unlimited())
        .now_or_never()
        .expect("it waits for nothing else")
}

/// Reads a list item by item, each by a seed, and passes each to `take`. `None` if anything cannot be read.
async fn steps<'de, T: DeserializeSeed<'de>>(
    body: &'de str,
    budget: &mut Budget,
    seed: impl Fn() -> T,
    mut take: impl FnMut(T::Value),
) -> Option<RawList<()>> {
    let mut list = RawList {
        kind: None,
        metadata: ListMetadata::default(),
        items: Vec::new(),
    };
    let mut reader = json::Reader::new(body);
    reader.enter(b'{').ok()?;
    let mut fields = json::Fields::new(&mut reader);
    let mut had_items = false;
    while let Some(field) = fields.next_key::<Field>().ok()? {
        match field {
            Field::Kind => list.kind = fields.next_value().ok()?,
            Field::Metadata => {
                let metadata = fields.next_value::<Option<ListMetadata>>().ok()?;
                list.metadata = metadata.unwrap_or_default();
            }
            Field::Items => {
                // serde_json decides which of two counts.
                if std::mem::replace(&mut had_items, true) {
                    return None;
                }
                let reader = &mut *fields.reader;
                reader.expect(b':').ok()?;
                if reader.peek() == Some(b'n') {
                    <()>::deserialize(&mut *reader).ok()?;
                    continue;
                }
                reader.enter(b'[').ok()?;
                let mut elements = json::Elements::new(&mut *reader);
                loop {
                    let from = elements.at();
                    let Some(item) = attempt(|| elements.next_element_seed(seed()))? else {
                        break;
                    };
                    take(item);
                    budget.spend(elements.at() - from).await;
                }
                reader.leave(b']').ok()?;
            }
            Field::Other => {
                fields.next_value::<IgnoredAny>().ok()?;
            }
        }
    }
    reader.leave(b'}').ok()?;
    reader.end().ok()?;
    Some(list)
}

/// Reads each item by itself.
struct Alone<'a, S> {
    decoding: &'a Decoding,
    held: Option<&'a Held<'a, S>>,
    items: Vec<Arc<S>>,
    undecodable: Vec<Undecodable>,
}

// === impl Alone ===

impl<S: Stored> Alone<'_, S> {
    fn take(&mut self, raw: &RawValue) {
        match read_alone(|| self.read(raw.get())) {
            Ok(item) => self.items.push(item),
            Err(error) => self.undecodable.push(Undecodable::probe(raw.get(), error)),
        }
    }

    fn read(&self, item: &str) -> Result<Arc<S>, serde_json::Error> {
        let slowly = || S::decode(&mut json::by_serde_json(item), self.decoding);
        let Some(held) = self.held else {
            // The pass over the whole page has tried that before.
            return slowly().map(Arc::new);
        };
        if let Some(held) = identity(item).and_then(|identity| held(&identity)) {
            return Ok(held);
        }
        attempt(|| json::read(item, |document| S::decode(document, self.decoding)))
            .map_or_else(slowly, Ok)
            .map(Arc::new)
    }
}

/// Reads the structure of a list by serde_json, for its error.
async fn by_serde_json<S: Stored>(
    body: &str,
    decoding: &Decoding,
    held: Option<&Held<'_, S>>,
    budget: &mut Budget,
) -> Result<ListPage<S>, DecodeError> {
    let broken = |error: serde_json::Error| DecodeError {
        what: "the list",
        error: redacted(&error),
    };
    let mut document = json::by_serde_json(body);
    let list = ListSeed {
        item: RawSeed::default,
    }
    .deserialize(&mut document)
    .and_then(|list| document.end().map(|()| list))
    .map_err(broken)?;
    let mut read = Alone {
        decoding,
        held,
        items: Vec::with_capacity(list.items.len()),
        undecodable: Vec::new(),
    };
    for raw in list.items {
        read.take(raw);
        budget.spend(raw.get().len()).await;
    }
    finish(list.kind, list.metadata, read.items, read.undecodable)
}

fn finish<S: Stored>(
    kind: Option<String>,
    metadata: ListMetadata,
    mut items: Vec<Arc<S>>,
    mut undecodable: Vec<Undecodable>,
) -> Result<ListPage<S>, DecodeError> {
    // A Table has rows and no items; read as a list it would empty the store (kubernetes#132926).
    let refuse = |error: &str| {
        Err(DecodeError {
            what: "the list",
            error: error.to_owned(),
        })
    };
    if kind.as_deref() == Some("Table") {
        return refuse("the server answered with a Table, expected a list of objects");
    }
    let Some(resource_version) = metadata.resource_version else {
        return refuse("it has no metadata.resourceVersion");
    };
    items.retain(|item| {
        let named = !item.name().is_empty();
        if !named {
            undecodable.push(Undecodable::nameless(&**item));
        }
        named
    });
    Ok(ListPage {
        resource_version,
        continue_token: metadata.r#continue.filter(|token| !token.is_empty()),
        items,
        undecodable,
    })
}

/// The token of the next page, if it comes before the items, where servers write it: so the next page can be requested
/// before this one is read.
pub(crate) fn continue_token(body: &[u8]) -> Option<String> {
    let mut token = None;
    // Reading ends with an error where it stops early.
    let _ = TokenSeed(&mut token).deserialize(&mut serde_json::Deserializer::from_slice(body));
    token.filter(|token| !token.is_empty())
}

/// Reads a list up to its items.
struct TokenSeed<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for TokenSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<(), D::Error> {
        document.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for TokenSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key::<Field>()? {
            match field {
                Field::Metadata => {
                    let metadata = map.next_value::<Option<ListMetadata>>()?;
                    *self.0 = metadata.and_then(|metadata| metadata.r#continue);
                    break;
                }
                Field::Items => break,
                Field::Kind | Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct RawList<T> {
    kind: Option<String>,
    metadata: ListMetadata,
    items: Vec<T>,
}

/// Reads a list whose items are read by the seeds that `item` makes.
struct ListSeed<F> {
    item: F,
}

impl<'de, T: DeserializeSeed<'de>, F: Fn() -> T> DeserializeSeed<'de> for ListSeed<F> {
    type Value = RawList<T::Value>;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Self::Value, D::Error> {
        document.deserialize_map(self)
    }
}

impl<'de, T: DeserializeSeed<'de>, F: Fn() -> T> Visitor<'de> for ListSeed<F> {
    type Value = RawList<T::Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut list = RawList {
            kind: None,
            metadata: ListMetadata::default(),
            items: Vec::new(),
        };
        while let Some(field) = map.next_key::<Field>()? {
            match field {
                Field::Kind => list.kind = map.next_value()?,
                Field::Metadata => {
                    list.metadata = map
                        .next_value::<Option<ListMetadata>>()?
                        .unwrap_or_default();
                }
                Field::Items => list.items = map.next_value_seed(ItemsSeed(&self.item))?,
                Field::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(list)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Kind,
    Metadata,
    Items,
    #[serde(other)]
    Other,
}

/// Reads `items`: an array, or null for none.
struct ItemsSeed<'a, F>(&'a F);

impl<'de, T: DeserializeSeed<'de>, F: Fn() -> T> DeserializeSeed<'de> for ItemsSeed<'_, F> {
    type Value = Vec<T::Value>;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Self::Value, D::Error> {
        document.deserialize_any(self)
    }
}

impl<'de, T: DeserializeSeed<'de>, F: Fn() -> T> Visitor<'de> for ItemsSeed<'_, F> {
    type Value = Vec<T::Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of objects")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed((self.0)())? {
            items.push(item);
        }
        Ok(items)
    }
}

/// Reads one entry.
pub(super) struct EntrySeed<'a, S> {
    decoding: &'a Decoding,
    entry: std::marker::PhantomData<fn() -> S>,
}

impl<'a, S> EntrySeed<'a, S> {
    pub(super) fn new(decoding: &'a Decoding) -> Self {
        Self {
            decoding,
            entry: std::marker::PhantomData,
        }
    }
}

impl<'de, S: Stored> DeserializeSeed<'de> for EntrySeed<'_, S> {
    /// Reads the entry into its final place: it is half a kilobyte or more, too much to move.
    type Value = Arc<S>;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Arc<S>, D::Error> {
        S::decode(document, self.decoding).map(Arc::new)
    }
}

/// Takes the text of an item.
#[derive(Default)]
struct RawSeed;

impl<'de> DeserializeSeed<'de> for RawSeed {
    type Value = &'de RawValue;

    fn deserialize<D: Deserializer<'de>>(self, document: D) -> Result<Self::Value, D::Error> {
        <&RawValue>::deserialize(document)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use reeve_client::ObjectKey;

    fn read(body: &str) -> Result<ListPage<ConfigMap>, DecodeError> {
        decode_list(body.as_bytes(), &Decoding::default())
    }

    fn read_again(
        body: &str,
        held: &Held<'_, ConfigMap>,
    ) -> Result<ListPage<ConfigMap>, DecodeError> {
        let (decoding, mut budget) = (Decoding::default(), Budget::unlimited());
        let page = read_list(body.as_bytes(), &decoding, Some(held), &mut budget);
        page.now_or_never().expect("it waits for nothing else")
    }

    #[test]
    fn a_page_is_read_with_a_pause_every_128_kib() {
        let object = format!(
            r#"{{"metadata":{{"name":"a"}},"data":{{"k":"{}"}}}}"#,
            "v".repeat(1000)
        );
        let items = vec![object.as_str(); 1000].join(",");
        let nobody = |_: &Identity<'_>| None;
        // In one pass, item by item, again, and by serde_json.
        for (case, tail, held) in [
            ("at once", "", None),
            ("one is broken", ",7", None),
            ("again", "", Some(&nobody as &Held<'_, ConfigMap>)),
        ] {
            let body =
                format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{items}{tail}]}}"#);
            let (decoding, mut budget) = (Decoding::default(), Budget::new());
            let page = read_list(body.as_bytes(), &decoding, held, &mut budget);
            let mut page = std::pin::pin!(page);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let mut polls = 1;
            let page = loop {
                match page.as_mut().poll(&mut context) {
                    std::task::Poll::Ready(page) => break page.unwrap(),
                    std::task::Poll::Pending => polls += 1,
                }
            };
            assert_eq!(page.items.len(), 1000, "{case}");
            // A broken item is found at the end, and all are read again.
            let passes = if tail.is_empty() { 1 } else { 2 };
            let expected = 9 * passes..=12 * passes;
            assert!(expected.contains(&polls), "{case}: {polls} polls");
        }
    }

    #[test]
    fn of_a_page_read_again_only_what_changed_is_decoded() {
        let page =
            |items: &str| format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{items}]}}"#);
        let item = |name: &str, version: &str, data: &str| {
            format!(
                r#"{{"data":{data},"metadata":{{"resourceVersion":"{version}","name":"{name}","uid":"u","managedFields":[{{}}],"namespace":"n"}}}}"#
            )
        };
        let before = read(&page(&item("same", "1", r#"{"k":"v"}"#)))
            .unwrap()
            .items;
        let known = Arc::clone(&before[0]);
        let held = |identity: &Identity<'_>| {
            let key = identity.key()?;
            assert_eq!((key.namespace, identity.uid()), (Some("n"), "u"));
            (key.name == "same" && identity.resource_version() == "1").then(|| Arc::clone(&known))
        };
        // Held items are not read: here they could not be decoded.
        let items = [
            item("same", "1", "7"),
            item("same", "2", r#"{"k":"\u00e9"}"#),
            item("other", "1", "{}"),
            item("broken", "1", "7"),
        ];
        let body = page(&items.join(","));
        let again = read_again(&body, &held).unwrap();
        assert!(Arc::ptr_eq(&again.items[0], &known));
        let data = again.items[1].data.as_ref().unwrap();
        assert_eq!((data["k"].as_str(), again.items.len()), ("é", 3));
        assert_eq!(again.undecodable.len(), 1);
        assert_eq!(again.resource_version, "9");
        // Everything else is as in the first reading.
        let nobody = |_: &Identity<'_>| None;
        for body in [
            body.as_str(),
            "{}",
            "{\"items\":[",
            r#"{"kind":"Table","metadata":{"resourceVersion":"1"}}"#,
        ] {
            let first = decode_list::<ConfigMap>(body.as_bytes(), &Decoding::default());
            let again = read_again(body, &nobody);
            assert_eq!(format!("{first:?}"), format!("{again:?}"));
        }
    }

    #[test]
    fn a_page_gives_its_items_version_and_token() {
        let page = read(
            r#"{"kind":"ConfigMapList","metadata":{"resourceVersion":"12","continue":"abc","remainingItemCount":3},
                "items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"data":{"k":"v"}}]}"#,
        )
        .unwrap();
        assert_eq!(page.resource_version, "12");
        assert_eq!(page.continue_token.as_deref(), Some("abc"));
        assert_eq!(page.items.len(), 2);
        assert!(page.undecodable.is_empty());
    }

    #[test]
    fn the_token_is_known_before_the_items_are_read() {
        for (body, token) in [
            (
                r#"{"kind":"L","metadata":{"resourceVersion":"1","continue":"abc"},"items":[cut"#,
                Some("abc"),
            ),
            (r#"{"metadata":{"continue":""},"items":[]}"#, None),
            (r#"{"metadata":null,"items":[]}"#, None),
            (
                r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"continue":"not this"}}]}"#,
                None,
            ),
            // After the items, where no server writes it: then it is not known yet.
            (r#"{"items":[],"metadata":{"continue":"abc"}}"#, None),
            ("<html>", None),
        ] {
            assert_eq!(continue_token(body.as_bytes()).as_deref(), token, "{body}");
        }
    }

    #[test]
    fn null_items_and_an_empty_token_are_an_empty_last_page() {
        let page =
            read(r#"{"metadata":{"resourceVersion":"1","continue":""},"items":null}"#).unwrap();
        assert!(page.items.is_empty() && page.continue_token.is_none());
    }

    #[test]
    fn one_undecodable_item_costs_that_item_only() {
        let page = read(
            r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}},
                {"metadata":{"name":"bad","namespace":"n"},"data":[1]},{"metadata":{"name":"c"}}, 7]}"#,
        )
        .unwrap();
        let names: Vec<_> = page.items.iter().map(|item| item.name()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(
            page.undecodable[0].key,
            Some(ObjectKey::namespaced("n", "bad"))
        );
        assert_eq!(page.undecodable[1].key, None);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_cost_nothing_else() {
        let mut body = br#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}},
            {"metadata":{"name":"b"},"data":{"k":"?"}},{"metadata":{"name":"bad"},"data":7}]}"#
            .to_vec();
        let place = body.iter().position(|byte| *byte == b'?').unwrap();
        body[place] = 0xff;
        let page = decode_list::<ConfigMap>(&body, &Decoding::default()).unwrap();
        let data = page.items[1].data.as_ref().unwrap();
        assert_eq!(data["k"], "\u{fffd}");
        assert_eq!((page.items.len(), page.undecodable.len()), (2, 1));
    }

    #[test]
    fn an_item_without_a_name_is_no_object() {
        let page = read(
            r#"{"metadata":{"resourceVersion":"1"},"items":[{"kind":"ConfigMap"},{"metadata":{"name":"a"}}]}"#,
        )
        .unwrap();
        assert_eq!((page.items.len(), page.undecodable.len()), (1, 1));
        assert!(page.undecodable[0].error.contains("no metadata.name"));
    }

    #[test]
    fn a_truncated_page_a_table_and_a_list_without_version_are_refused() {
        for body in [
            r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}"#,
            r#"{"kind":"Table","metadata":{"resourceVersion":"1"},"rows":[]}"#,
            r#"{"metadata":{},"items":[]}"#,
            "<html>bad gateway</html>",
            r#"{"metadata":{"resourceVersion":"1"},"items":[]} trailing"#,
        ] {
            assert!(read(body).is_err(), "{body}");
        }
    }
}
