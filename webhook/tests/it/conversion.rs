//! Conversion reviews and round trips, with three versions of one kind.

use kube_core::{CustomResourceExt, ObjectMeta};
use kube_derive::CustomResource;
use reeve_webhook::Conversion;
use reeve_webhook::testing::RoundTrips;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

mod v1 {
    use super::*;

    /// A size in one text.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1",
        kind = "Website",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct WebsiteSpec {
        pub(crate) host: String,
        pub(crate) size: String,
    }
}

mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v2",
        kind = "Website",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct WebsiteSpec {
        pub(crate) host: String,
        pub(crate) replicas: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) color: Option<String>,
    }
}

/// Has what v2 has, in other places.
mod v1beta1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "example.com",
        version = "v1beta1",
        kind = "Website",
        namespaced,
        crates(kube_core = "::kube_core")
    )]
    pub(crate) struct WebsiteSpec {
        pub(crate) hosts: Vec<String>,
        pub(crate) replicas: i32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) color: Option<String>,
    }
}

impl TryFrom<v1::Website> for v2::Website {
    type Error = String;

    fn try_from(old: v1::Website) -> Result<Self, String> {
        let replicas = match old.spec.size.as_str() {
            "small" | "text" => 1,
            "large" => 3,
            other => return Err(format!("spec.size is {other:?}; it may be small or large")),
        };
        let spec = v2::WebsiteSpec {
            host: old.spec.host,
            replicas,
            color: None,
        };
        Ok(Self {
            metadata: old.metadata,
            spec,
        })
    }
}

impl From<v2::Website> for v1::Website {
    fn from(new: v2::Website) -> Self {
        let size = if new.spec.replicas == 1 {
            "small"
        } else {
            "large"
        };
        // Of the metadata a converter may forget what it wants: that of the object stays.
        let metadata = ObjectMeta {
            labels: new.metadata.labels,
            ..ObjectMeta::default()
        };
        Self {
            metadata,
            spec: v1::WebsiteSpec {
                host: new.spec.host,
                size: size.into(),
            },
        }
    }
}

impl TryFrom<v1beta1::Website> for v2::Website {
    type Error = &'static str;

    fn try_from(mut old: v1beta1::Website) -> Result<Self, Self::Error> {
        let host = old.spec.hosts.pop().ok_or("spec.hosts is empty")?;
        let spec = v2::WebsiteSpec {
            host,
            replicas: old.spec.replicas,
            color: old.spec.color,
        };
        Ok(Self {
            metadata: old.metadata,
            spec,
        })
    }
}

impl From<v2::Website> for v1beta1::Website {
    fn from(new: v2::Website) -> Self {
        let v2::WebsiteSpec {
            host,
            replicas,
            color,
        } = new.spec;
        let spec = v1beta1::WebsiteSpec {
            hosts: vec![host],
            replicas,
            color,
        };
        Self {
            metadata: new.metadata,
            spec,
        }
    }
}

pub(crate) fn websites() -> Conversion {
    Conversion::hub::<v2::Website>()
        .spoke::<v1::Website>()
        .spoke::<v1beta1::Website>()
        .erased()
}

pub(crate) fn website(version: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Website",
        "metadata": {"name": name, "namespace": "shop", "uid": "1", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": spec,
    })
}

pub(crate) fn review(desired: &str, objects: Vec<Value>) -> Vec<u8> {
    let request = json!({"uid": "u-1", "desiredAPIVersion": desired, "objects": objects});
    let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
    review.to_string().into_bytes()
}

async fn answered(desired: &str, objects: Vec<Value>) -> Value {
    let answer = websites().answer(&review(desired, objects)).await.unwrap();
    let mut answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(answer["kind"], "ConversionReview");
    assert_eq!(answer["response"]["uid"], "u-1");
    answer["response"].take()
}

#[tokio::test]
async fn objects_are_converted_in_their_order_through_the_hub() {
    let objects = vec![
        website("v1", "a", json!({"host": "a", "size": "large"})),
        website(
            "v1beta1",
            "b",
            json!({"hosts": ["b"], "replicas": 2, "color": "red"}),
        ),
        website(
            "v2",
            "c",
            json!({"host": "c", "replicas": 1, "unknown": true}),
        ),
    ];
    let response = answered("example.com/v1beta1", objects.clone()).await;
    assert_eq!(response["result"], json!({"status": "Success"}));
    let first = website("v1beta1", "a", json!({"hosts": ["a"], "replicas": 3}));
    // Annotations are those of the converted object.
    let third = website("v1beta1", "c", json!({"hosts": ["c"], "replicas": 1}));
    assert_eq!(
        response["convertedObjects"],
        json!([first, objects[1], third])
    );

    // v1's converter makes new metadata: that of the object stays, with its annotations.
    let first = website("v1", "b", json!({"host": "b", "size": "large"}));
    let third = website("v1", "c", json!({"host": "c", "size": "small"}));
    let response = answered("example.com/v1", objects.clone()).await;
    assert_eq!(
        response["convertedObjects"],
        json!([objects[0], first, third])
    );
}

#[tokio::test]
async fn one_object_that_cannot_be_converted_fails_the_review_and_is_named() {
    let good = website("v1", "a", json!({"host": "a", "size": "large"}));
    for (desired, object, message) in [
        (
            "example.com/v2",
            website("v1", "b", json!({"host": "b", "size": "huge"})),
            "Website shop/b, from v1 to v2: spec.size is \"huge\"; it may be small or large",
        ),
        (
            "example.com/v2",
            website("v1", "b", json!({"host": 1, "size": "large"})),
            "Website shop/b, from v1 to v2: the object cannot be read: invalid type",
        ),
        (
            "example.com/v2",
            website("v0", "b", json!({})),
            "version v0 is unknown; there are v1, v1beta1, v2",
        ),
        ("example.com/v9", good.clone(), "version v9 is unknown"),
        (
            "other.com/v1",
            good.clone(),
            "desiredAPIVersion is \"other.com/v1\", and Website is of group example.com",
        ),
        (
            "example.com/v2",
            json!({"apiVersion": "example.com/v1", "kind": "Gadget"}),
            "Gadget cannot be converted here, only Website",
        ),
    ] {
        let response = answered(desired, vec![good.clone(), object]).await;
        assert_eq!(response["result"]["status"], "Failure", "{message}");
        let text = response["result"]["message"].as_str().unwrap();
        assert!(text.contains(message), "{text}");
        assert_eq!(response["convertedObjects"], json!([]));
    }
    let failure = websites().answer(b"{}").await.unwrap_err();
    assert!(
        failure.to_string().contains("ConversionReview"),
        "{failure}"
    );
}

#[test]
fn round_trips_find_a_field_that_only_one_version_has_and_a_value_that_changes() {
    let conversion = websites();
    let trips = || {
        RoundTrips::of(&conversion)
            .definition(&v2::Website::crd())
            .definition(&v1beta1::Website::crd())
            .object(&website("v1", "a", json!({"host": "a", "size": "large"})))
    };
    let losses = trips().losses();
    let texts: Vec<String> = losses.iter().map(ToString::to_string).collect();
    // The filled objects have 7 replicas and a color. v1 keeps neither.
    for expected in [
        r#"v2 -> v1 -> v2: .spec.color was "text" and is missing"#,
        "v2 -> v1 -> v2: .spec.replicas was 7 and is 3",
        r#"v1beta1 -> v1 -> v1beta1: .spec.color was "text" and is missing"#,
    ] {
        assert!(
            texts.iter().any(|text| text == expected),
            "{expected} is not in {texts:#?}"
        );
    }
    assert!(losses.iter().all(|loss| loss.through == "v1"), "{texts:#?}");

    // A loss that is accepted, with its fields.
    trips().allow(".spec.color").allow(".spec.replicas").check();
}

#[test]
#[should_panic(expected = "no object of version v1: add one")]
fn a_version_without_an_object_is_not_taken_for_a_good_one() {
    let conversion = websites();
    let trips = RoundTrips::of(&conversion).definition(&v2::Website::crd());
    let _ = trips.definition(&v1beta1::Website::crd()).losses();
}

#[test]
#[should_panic(expected = "v1 -> v2 -> v1: Website shop/a, from v1 to v2: spec.size is \"huge\"")]
fn a_round_trip_that_fails_is_reported() {
    let size = website("v1", "a", json!({"host": "a", "size": "huge"}));
    RoundTrips::of(&websites())
        .object(&size)
        .definition(&v2::Website::crd())
        .definition(&v1beta1::Website::crd())
        .allow(".spec.color")
        .allow(".spec.replicas")
        .check();
}

#[test]
#[should_panic(expected = "version v1 of Website was added twice")]
fn a_version_is_added_once() {
    let _ = Conversion::hub::<v2::Website>()
        .spoke::<v1::Website>()
        .spoke::<v1::Website>();
}
