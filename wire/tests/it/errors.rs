//! Errors name the field and its place.

use reeve_wire::{Cause, Limits, encode, from_slice, to_vec};
use serde_json::{Value, json};

use crate::bytes::{body, decode, field, number};

#[test]
fn an_error_has_the_path_and_the_offset_of_the_field() {
    // metadata with a name; spec with two containers, the second one with a number for its name.
    let containers = [field(2, &field(1, b"a")), field(2, &number(1, 5))].concat();
    let object = [field(1, &field(1, b"n")), field(2, &containers)].concat();
    let error = decode(&body("v1", "Pod", &object)).unwrap_err();
    assert_eq!(error.path(), "spec.containers[1].name");
    assert_eq!(error.offset(), Some(14));
    assert_eq!(
        error.to_string(),
        "spec.containers[1].name: proto: wrong wireType = 0 for field Name (byte 14)"
    );
    let entry = [field(1, b"k"), number(2, 1)].concat();
    let error = decode(&body("v1", "ConfigMap", &field(2, &entry))).unwrap_err();
    assert_eq!(error.path(), "data[\"k\"]");
    let error = decode(&body("v1", "ConfigMap", &field(1, &[0x0a]))).unwrap_err();
    assert_eq!(
        (error.path(), error.offset()),
        ("metadata".to_owned(), Some(2))
    );
    assert_eq!(*error.cause(), Cause::End);
}

#[test]
fn a_type_that_does_not_accept_a_value_is_an_error_with_its_path() {
    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code, reason = "only the error is tested")]
    struct Typed {
        metadata: Named,
    }
    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code, reason = "only the error is tested")]
    struct Named {
        name: u32,
    }
    let body = body("v1", "ConfigMap", &field(1, &field(1, b"n")));
    let error = from_slice::<Typed>(&body).unwrap_err();
    assert_eq!(error.path(), "metadata.name");
    assert!(matches!(error.cause(), Cause::Custom(_)), "{error}");
}

#[test]
fn a_member_of_another_type_than_its_field_is_not_written() {
    let error = |object: Value| to_vec(&object).unwrap_err().to_string();
    let pod = |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": spec});
    assert_eq!(
        error(pod(json!({"containers": [{"name": 1}]}))),
        "spec.containers[0].name: a value of type number where text is expected"
    );
    assert_eq!(
        error(pod(json!({"containers": {}}))),
        "spec.containers: a value of type object where list is expected"
    );
    assert_eq!(
        error(pod(json!({"nodeSelector": {"a": true}}))),
        "spec.nodeSelector[\"a\"]: a value of type boolean where text is expected"
    );
    assert_eq!(
        error(pod(json!({"priority": 1u64 << 40}))),
        "spec.priority: the number 1099511627776 has more than 32 bits"
    );
    assert_eq!(
        error(json!({"apiVersion": "v1", "kind": "Odd"})),
        "no fields are known of kind \"Odd\" in version \"v1\""
    );
    let message = reeve_wire::Message::of("v1", "Pod").unwrap();
    assert!(encode(message, &json!("text")).is_err());
    assert!(
        encode(
            message,
            &json!({"metadata": {"creationTimestamp": "yesterday"}})
        )
        .is_err()
    );
    let items: [&[u8]; 0] = [];
    assert!(reeve_wire::encode_list("v1", "Pod", &json!({}), &items).is_err());
}

#[test]
fn limits_are_those_of_the_caller() {
    let security = field(14, &field(4, &[7, 8]));
    let body = body("v1", "Pod", &field(2, &security));
    let envelope = reeve_wire::Envelope::parse(&body).unwrap();
    let of = |limits: Limits| envelope.decode::<Value>(limits);
    assert!(of(Limits::default()).is_ok());
    // metadata, spec, its two lists and its context, the status, the groups and their list.
    let needed = (1..100).find(|values| of(Limits::default().values(*values)).is_ok());
    assert!(needed.is_some_and(|needed| needed > 5), "{needed:?}");
    let cause = of(Limits::default().values(3)).unwrap_err().cause().clone();
    assert_eq!(cause, Cause::TooMany(3));
    let cause = of(Limits::default().depth(2)).unwrap_err().cause().clone();
    assert_eq!(cause, Cause::Depth);
}
