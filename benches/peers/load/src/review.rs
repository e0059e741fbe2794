//! The AdmissionReviews, and the answers that are right.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use peer_measure::{Flags, Stop};
use serde_json::{Value, json};

use crate::client::{Client, Sender};
use crate::wrong;

/// A Pod as a list of the canned server has it: 5 KB with its managed fields.
const POD: &str = include_str!("../../server/templates/pod.json");

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// One call of so many is denied by the validating handler.
const DENIED: usize = 10;

/// The reviews of a run.
pub(crate) struct Review {
    url: String,
    allowed: Bytes,
    /// The same object with the label that is denied.
    locked: Bytes,
    mutates: bool,
}

/// The answer to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Allowed,
    Denied,
    Patched,
}

// === impl Review ===

impl Review {
    pub(crate) fn of(flags: &Flags) -> Result<Self, Stop> {
        let mutates = match flags.text("handler", "validate").as_str() {
            "validate" => false,
            "mutate" => true,
            other => {
                return Err(Stop::wrong(format!("-handler={other}: validate or mutate")));
            }
        };
        let (object, end) = match flags.text("review", "pod").as_str() {
            "pod" => (pod(1), "-v1-pod"),
            "pod40" => (large_pod(40_000), "-v1-pod"),
            "deployment" => (deployment(), "apps-v1-deployment"),
            other => {
                return Err(Stop::wrong(format!(
                    "-review={other}: pod, pod40 or deployment"
                )));
            }
        };
        let mut locked = object.clone();
        locked["metadata"]["labels"]["locked"] = json!("true");
        let verb = if mutates { "mutate" } else { "validate" };
        Ok(Self {
            url: format!("https://localhost/{verb}-{end}?timeout=10s"),
            allowed: review(object),
            locked: review(locked),
            mutates,
        })
    }

    /// Checks one answer of each kind in detail.
    pub(crate) async fn check(&self, client: &Client) -> Result<(), Stop> {
        let connection = client.connect().await.map_err(wrong)?;
        for number in [0, 1] {
            let (body, expected) = self.call(number);
            let answer = connection.sender().post(&self.url, body).await;
            let answer = answer.map_err(wrong)?;
            if !expected.is_exactly(&answer) {
                let text = String::from_utf8_lossy(&answer);
                return Err(Stop::wrong(format!("{expected:?} was expected: {text}")));
            }
        }
        Ok(())
    }

    /// Makes call number `number`, and checks its answer.
    pub(crate) async fn post(&self, sender: &mut Sender, number: usize) -> Result<(), Stop> {
        let (body, expected) = self.call(number);
        let answer = sender.post(&self.url, body).await.map_err(wrong)?;
        if expected.is(&answer) {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&answer);
        Err(Stop::wrong(format!("{expected:?} was expected: {text}")))
    }

    fn call(&self, number: usize) -> (Bytes, Expected) {
        if self.mutates {
            (self.allowed.clone(), Expected::Patched)
        } else if number.is_multiple_of(DENIED) {
            (self.locked.clone(), Expected::Denied)
        } else {
            (self.allowed.clone(), Expected::Allowed)
        }
    }
}

// === impl Expected ===

impl Expected {
    /// Whether the answer is right, by its text: cheap enough for each call.
    fn is(self, answer: &[u8]) -> bool {
        let has = |text: &str| {
            let text = text.as_bytes();
            answer.windows(text.len()).any(|part| part == text)
        };
        match self {
            Self::Allowed => has("\"allowed\":true"),
            Self::Denied => has("\"allowed\":false"),
            Self::Patched => has("\"patch\":\""),
        }
    }

    /// Whether the answer is right in all parts.
    fn is_exactly(self, answer: &[u8]) -> bool {
        let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
        let response = &answer["response"];
        let patch = response["patch"].as_str().map(|text| {
            let decoded = STANDARD.decode(text).unwrap_or_default();
            serde_json::from_slice::<Value>(&decoded).unwrap_or_default()
        });
        let expected = json!([{"op": "add", "path": "/metadata/labels/team", "value": "a"}]);
        let right = match self {
            Self::Allowed => response["allowed"] == true && patch.is_none(),
            Self::Denied => {
                let message = response["status"]["message"].as_str().unwrap_or_default();
                response["allowed"] == false && message.contains("the object is locked")
            }
            Self::Patched => response["allowed"] == true && patch == Some(expected),
        };
        right && answer["kind"] == "AdmissionReview" && response["uid"] == UID
    }
}

/// A Pod with this many containers.
fn pod(containers: usize) -> Value {
    let mut pod: Value = serde_json::from_str(POD).expect("a template");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    let first = pod["spec"]["containers"][0].clone();
    let others = (1..containers).map(|number| {
        let mut container = first.clone();
        container["name"] = json!(format!("web-{number}"));
        container
    });
    if let Value::Array(list) = &mut pod["spec"]["containers"] {
        list.extend(others);
    }
    pod
}

/// A Pod of at least `bytes` bytes, with as many containers as that takes.
fn large_pod(bytes: usize) -> Value {
    let (one, two) = (pod(1).to_string().len(), pod(2).to_string().len());
    pod(1 + (bytes - one).div_ceil(two - one))
}

/// A Deployment of Pods like the small one.
fn deployment() -> Value {
    let mut pod = pod(1);
    let mut template = pod["metadata"].clone();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "managedFields",
    ] {
        template.as_object_mut().map(|object| object.remove(field));
    }
    let mut metadata = pod["metadata"].take();
    for field in ["generateName", "ownerReferences"] {
        metadata.as_object_mut().map(|object| object.remove(field));
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": 3, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": template, "spec": pod["spec"]},
        },
        "status": {"observedGeneration": 4, "replicas": 3, "readyReplicas": 3},
    })
}

/// The review of a creation of `object`.
fn review(object: Value) -> Bytes {
    let (version, kind) = (object["apiVersion"].clone(), object["kind"].clone());
    let version = version.as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = kind.as_str().unwrap_or_default();
    let resource = format!("{}s", kind.to_lowercase());
    let kind = json!({"group": group, "version": version, "kind": kind});
    let resource = json!({"group": group, "version": version, "resource": resource});
    let review = json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "3b1c1f0e-9a55-4d0c-8a3b-6f7f9a1f7c11",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
                "extra": {"authentication.kubernetes.io/credential-id": ["JTI=7ee52be0-9045-4653-aa5e-0da57b8dccdc"]},
            },
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    });
    Bytes::from(review.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_size_of_their_names() {
        let size = |object: Value| object.to_string().len();
        assert!((4_900..5_500).contains(&size(pod(1))));
        assert!((40_000..42_000).contains(&size(large_pod(40_000))));
        assert!((4_000..6_000).contains(&size(deployment())));
    }

    #[test]
    fn an_answer_is_right_in_all_parts() {
        let answer = |response: Value| {
            let answer = json!({"kind": "AdmissionReview", "response": response});
            answer.to_string().into_bytes()
        };
        let patch = |text: &str| STANDARD.encode(text);
        let right = patch(r#"[{"op":"add","path":"/metadata/labels/team","value":"a"}]"#);
        for (response, expected) in [
            (
                json!({"uid": UID, "allowed": true}),
                Some(Expected::Allowed),
            ),
            (json!({"uid": "", "allowed": true}), None),
            (
                json!({"uid": UID, "allowed": false, "status": {"message": "the object is locked"}}),
                Some(Expected::Denied),
            ),
            (
                json!({"uid": UID, "allowed": true, "patch": right}),
                Some(Expected::Patched),
            ),
            (
                json!({"uid": UID, "allowed": true, "patch": patch("[]")}),
                None,
            ),
        ] {
            for kind in [Expected::Allowed, Expected::Denied, Expected::Patched] {
                let answer = answer(response.clone());
                assert_eq!(
                    kind.is_exactly(&answer),
                    expected == Some(kind),
                    "{response}"
                );
                assert!(kind.is(&answer) || expected != Some(kind), "{response}");
            }
        }
    }
}
