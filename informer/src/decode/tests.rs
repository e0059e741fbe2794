//! Reading damaged documents.

use k8s_openapi::api::core::v1::Secret;
use proptest::prelude::*;

use super::*;
use crate::object::Decoding;
use crate::sample::cases;
use reeve_client::ObjectKey;
use reeve_client::json::redacted;
use reeve_client::transport::Encoding;

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
        match decode_frame::<Secret>(Encoding::Json, &bytes, &decoding.clone().into()) {
            Ok(Frame::Undecodable { object, .. }) => errors.extend([object.error, object.outline]),
            Ok(_) => {}
            Err(error) => errors.push(error.to_string()),
        }
        match decode_list::<kube_core::DynamicObject>(Encoding::Json, &bytes, &decoding.into()) {
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
        let fast = decode_list::<Secret>(Encoding::Json, page(&items).as_bytes(), &Decoding::default().into()).unwrap();
        items.insert(broken.min(count), r#"{"metadata":{"name":"bad"},"data":7}"#.to_owned());
        let slow = decode_list::<Secret>(Encoding::Json, page(&items).as_bytes(), &Decoding::default().into()).unwrap();
        prop_assert_eq!(fast.items, slow.items);
        prop_assert_eq!(slow.undecodable.len(), 1);
    }
}

#[test]
fn a_broken_object_is_still_named() {
    let document = r#"{"metadata":{"name":"s","namespace":"n","resourceVersion":"7"},"data":1}"#;
    let error = serde_json::from_str::<Secret>(document).unwrap_err();
    let found = Undecodable::probe(document, redacted(&error));
    assert_eq!(found.key, Some(ObjectKey::namespaced("n", "s")));
    assert_eq!(found.resource_version.as_deref(), Some("7"));
}
