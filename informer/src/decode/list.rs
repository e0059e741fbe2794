//! Reads one page of a list: [`ListPage`].

use std::borrow::Cow;
use std::sync::Arc;

use reeve_client::json::{self, Elements, Fields, Reader, attempt, read_alone, redacted};
use reeve_client::transport::{Encoded, Encoding};
use serde::Deserialize;
use serde::de::{Error as _, IgnoredAny, MapAccess};
use serde_json::Error;
use serde_json::value::RawValue;

use super::budget::Budget;
use super::error::DecodeError;
use super::identity::{Identity, identity};
use super::protobuf;
use super::undecodable::Undecodable;
use crate::object::{EntryReader, Stored};

/// One page of a list.
#[derive(Debug)]
pub(crate) struct ListPage<S: ?Sized> {
    pub(crate) resource_version: String,
    /// The token of the next page, if there is one.
    pub(crate) continue_token: Option<String>,
    pub(crate) items: Vec<Arc<S>>,
    pub(crate) undecodable: Vec<Undecodable>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMetadata {
    pub(super) resource_version: Option<String>,
    pub(super) r#continue: Option<String>,
}

/// Returns the entry that the store holds of an object, if it has the same version.
pub(crate) type Held<'a, S> = dyn Fn(&Identity<'_>) -> Option<Arc<S>> + Send + Sync + 'a;

/// Reads a page: in one pass, or else item by item. If most of a page is `held` already, such items are read no further
/// than their version. Yields to other tasks by `budget`.
pub(crate) async fn read_list<S: Stored + ?Sized>(
    body: &Encoded,
    entries: &EntryReader<S>,
    held: Option<&Held<'_, S>>,
    budget: &mut Budget,
) -> Result<ListPage<S>, DecodeError> {
    match body.encoding {
        Encoding::Json => read_json(&body.bytes, entries, held, budget).await,
        Encoding::Protobuf => protobuf::read_list(&body.bytes, entries, held, budget).await,
    }
}

async fn read_json<S: Stored + ?Sized>(
    body: &[u8],
    entries: &EntryReader<S>,
    held: Option<&Held<'_, S>>,
    budget: &mut Budget,
) -> Result<ListPage<S>, DecodeError> {
    let body = text(body);
    if held.is_none() {
        let mut items = Vec::new();
        let mut reader = Reader::new(&body);
        let list = steps(
            &mut reader,
            budget,
            |reader| entries.read(reader),
            |item| items.push(item),
        );
        let list = list.await;
        if let Ok(list) = list {
            return finish(list, items, Vec::new());
        }
    }
    let mut read = Alone {
        entries,
        held,
        items: Vec::new(),
        undecodable: Vec::new(),
    };
    let mut reader = Reader::new(&body);
    let raw = steps(&mut reader, budget, raw, |item| read.take(item)).await;
    let Alone {
        items, undecodable, ..
    } = read;
    match raw {
        Ok(list) => finish(list, items, undecodable),
        Err(error) => Err(DecodeError {
            what: "the list",
            error: redacted(&reader.explain(&error)),
        }),
    }
}

/// The body as text. Go replaces invalid UTF-8 too: one wrong byte must not cost the whole list. `from_utf8_lossy` alone
/// reads a valid body byte by byte, which took a tenth of the instructions of a list; `from_utf8` reads ASCII by the word.
fn text(body: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(body) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(body),
    }
}

/// [`read_list`] without held entries, and without yielding.
#[cfg(any(test, fuzzing))]
pub(crate) fn decode_list<S: Stored + ?Sized>(
    encoding: Encoding,
    body: &[u8],
    entries: &EntryReader<S>,
) -> Result<ListPage<S>, DecodeError> {
    use futures::FutureExt;
    let bytes = bytes::Bytes::copy_from_slice(body);
    let body = Encoded { encoding, bytes };
    read_list(&body, entries, None, &mut Budget::unlimited())
        .now_or_never()
        .expect("it waits for nothing else")
}

/// Reads a list item by item, each by `read`, and passes each to `take`.
async fn steps<'de, T>(
    reader: &mut Reader<'de>,
    budget: &mut Budget,
    read: impl Fn(&mut Reader<'de>) -> Result<T, Error>,
    mut take: impl FnMut(T),
) -> Result<ListHead, Error> {
    let mut list = ListHead::default();
    reader.enter(b'{')?;
    let mut fields = Fields::new(reader);
    while let Some(field) = fields.next_key::<Field>()? {
        match field {
            Field::Kind => list.kind = fields.next_value()?,
            Field::Metadata => {
                let metadata = fields.next_value::<Option<ListMetadata>>()?;
                list.metadata = metadata.unwrap_or_default();
            }
            Field::Items => {
                if std::mem::replace(&mut list.has_items, true) {
                    return Err(Error::duplicate_field("items"));
                }
                let reader = fields.reader();
                reader.expect(b':')?;
                if reader.peek() == Some(b'n') {
                    <()>::deserialize(&mut *reader)?;
                    continue;
                }
                reader.enter(b'[')?;
                let mut elements = Elements::new(reader);
                loop {
                    let from = elements.at();
                    let item = attempt(|| elements.next_by(&read));
                    let Some(item) = item.ok_or_else(|| Error::custom("an item cannot be read"))?
                    else {
                        break;
                    };
                    take(item);
                    budget.spend(elements.at() - from).await;
                }
                fields.reader().leave(b']')?;
            }
            Field::Other => {
                fields.next_value::<IgnoredAny>()?;
            }
        }
    }
    reader.leave(b'}')?;
    reader.end()?;
    Ok(list)
}

/// Reads each item by itself.
struct Alone<'a, S: ?Sized> {
    entries: &'a EntryReader<S>,
    held: Option<&'a Held<'a, S>>,
    items: Vec<Arc<S>>,
    undecodable: Vec<Undecodable>,
}

// === impl Alone ===

impl<S: Stored + ?Sized> Alone<'_, S> {
    fn take(&mut self, raw: &RawValue) {
        match read_alone(|| self.read(raw.get())) {
            Ok(item) => self.items.push(item),
            Err(error) => self.undecodable.push(Undecodable::probe(raw.get(), error)),
        }
    }

    fn read(&self, item: &str) -> Result<Arc<S>, Error> {
        if let Some(held) = self.held
            && let Some(held) = identity(item).and_then(|identity| held(&identity))
        {
            return Ok(held);
        }
        json::read(item, |document| self.entries.read(document))
    }
}

pub(super) fn finish<S: Stored + ?Sized>(
    ListHead {
        kind,
        metadata,
        has_items,
    }: ListHead,
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
    // Go leaves an empty version out, and never the items.
    let is_list = has_items && kind.as_deref().is_some_and(|kind| kind.ends_with("List"));
    let unversioned = is_list.then(String::new);
    let Some(resource_version) = metadata.resource_version.or(unversioned) else {
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

/// How many bytes are searched for the token of the next page.
pub(super) const HEAD: usize = 64 * 1024;

/// The token of the next page, if it comes before the items, where servers write it: so the next page can be requested
/// before this one is read.
pub(crate) fn continue_token(body: &Encoded) -> Option<String> {
    let token = match body.encoding {
        Encoding::Json => token_of_json(&body.bytes),
        Encoding::Protobuf => protobuf::continue_token(&body.bytes),
    };
    token.filter(|token| !token.is_empty())
}

fn token_of_json(body: &[u8]) -> Option<String> {
    // Before the items: this is read while the page waits to be decoded, so it must not cost the length of the page.
    let head = &body[..body.len().min(HEAD)];
    let head = match std::str::from_utf8(head) {
        Ok(head) => head,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
    };
    let mut reader = Reader::new(head);
    reader.enter(b'{').ok()?;
    let mut fields = Fields::new(&mut reader);
    loop {
        match fields.next_key::<Field>().ok()?? {
            Field::Metadata => {
                let metadata = fields.next_value::<Option<ListMetadata>>().ok()??;
                return metadata.r#continue;
            }
            Field::Items => return None,
            Field::Kind | Field::Other => {
                fields.next_value::<IgnoredAny>().ok()?;
            }
        }
    }
}

/// The fields of a list besides its items.
#[derive(Default)]
pub(super) struct ListHead {
    pub(super) kind: Option<String>,
    pub(super) metadata: ListMetadata,
    /// JSON only: it has the field `items`.
    pub(super) has_items: bool,
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

/// The text of an item.
fn raw<'de>(document: &mut Reader<'de>) -> Result<&'de RawValue, Error> {
    <&RawValue>::deserialize(document)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::object::Decoding;
    use reeve_client::ObjectKey;

    fn read(body: &str) -> Result<ListPage<ConfigMap>, DecodeError> {
        decode_list(Encoding::Json, body.as_bytes(), &Decoding::default().into())
    }

    fn read_again(
        body: &str,
        held: &Held<'_, ConfigMap>,
    ) -> Result<ListPage<ConfigMap>, DecodeError> {
        let (entries, mut budget) = (Decoding::default().into(), Budget::unlimited());
        let page = read_json(body.as_bytes(), &entries, Some(held), &mut budget);
        page.now_or_never().expect("it waits for nothing else")
    }

    #[test]
    fn a_page_is_read_with_a_pause_every_64_kib() {
        let object = format!(
            r#"{{"metadata":{{"name":"a"}},"data":{{"k":"{}"}}}}"#,
            "v".repeat(1000)
        );
        let items = vec![object.as_str(); 1000].join(",");
        let nothing = |_: &Identity<'_>| None;
        // In one pass, item by item, and again.
        for (case, tail, held) in [
            ("at once", "", None),
            ("one is broken", ",7", None),
            ("again", "", Some(&nothing as &Held<'_, ConfigMap>)),
        ] {
            let body =
                format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{items}{tail}]}}"#);
            let (entries, mut budget) = (Decoding::default().into(), Budget::new());
            let page = read_json(body.as_bytes(), &entries, held, &mut budget);
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
            let expected = 19 * passes..=23 * passes;
            assert!(expected.contains(&polls), "{case}: {polls} polls");
        }
    }

    #[test]
    fn of_a_page_that_is_read_again_only_changed_items_are_decoded() {
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
        let nothing = |_: &Identity<'_>| None;
        for body in [
            body.as_str(),
            "{}",
            "{\"items\":[",
            r#"{"kind":"Table","metadata":{"resourceVersion":"1"}}"#,
        ] {
            let first = decode_list::<ConfigMap>(
                Encoding::Json,
                body.as_bytes(),
                &Decoding::default().into(),
            );
            let again = read_again(body, &nothing);
            assert_eq!(format!("{first:?}"), format!("{again:?}"));
        }
    }

    #[test]
    fn a_page_has_its_items_version_and_token() {
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
            // After the items, where no server writes it: then it is not found yet.
            (r#"{"items":[],"metadata":{"continue":"abc"}}"#, None),
            ("<html>", None),
        ] {
            let body = Encoded {
                encoding: Encoding::Json,
                bytes: body.into(),
            };
            assert_eq!(continue_token(&body).as_deref(), token, "{body:?}");
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
    fn bytes_that_are_not_text_are_replaced_and_cost_nothing_else() {
        let mut body = br#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}},
            {"metadata":{"name":"b"},"data":{"k":"?"}},{"metadata":{"name":"bad"},"data":7}]}"#
            .to_vec();
        let place = body.iter().position(|byte| *byte == b'?').unwrap();
        body[place] = 0xff;
        let entries = Decoding::default().into();
        let page = decode_list::<ConfigMap>(Encoding::Json, &body, &entries).unwrap();
        let data = page.items[1].data.as_ref().unwrap();
        assert_eq!(data["k"], "\u{fffd}");
        assert_eq!((page.items.len(), page.undecodable.len()), (2, 1));
    }

    #[test]
    fn an_item_without_a_name_cannot_be_read() {
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
