//! The next step for one name: a pure function of the Service and the Ingress with that name.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::Resource;
use serde_json::{Value, json};

use crate::desired::{self, Defaults, Problem};

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing: the Ingress is as desired, or is already being deleted.
    Nothing,
    /// Create this Ingress.
    Create(Box<Ingress>),
    /// Patch the Ingress to the desired state. The patch applies only to the version of the decision.
    Repair(Value),
    /// Delete the Ingress with this uid.
    Delete {
        /// The Ingress's uid.
        uid: String,
    },
    /// Delete the Ingress with this uid, if its Service is also gone at the API server: the
    /// cache of Services may be behind that of Ingresses.
    DeleteOrphan {
        /// The Ingress's uid.
        uid: String,
        /// The uid of the Service that it belongs to.
        owner: String,
    },
    /// Leave the Ingress: it has another owner, and the Service requests one of this name.
    Conflict,
    /// Leave the Ingress: the annotation of the Service is not valid.
    Refuse(Problem),
}

/// Decides about `service` and `ingress`, which have the same name.
#[must_use]
pub fn plan(service: Option<&Service>, ingress: Option<&Ingress>, defaults: &Defaults) -> Step {
    let wanted = service.map_or(Ok(None), |service| desired::ingress(service, defaults));
    let uid = service.and_then(|service| service.meta().uid.as_deref());
    let Some(ingress) = ingress else {
        return match wanted {
            Ok(None) => Step::Nothing,
            Ok(Some(wanted)) => Step::Create(Box::new(wanted)),
            Err(problem) => Step::Refuse(problem),
        };
    };
    let meta = ingress.meta();
    let controller = controller_of(ingress);
    let ours = controller.is_some_and(|owner| Some(owner.uid.as_str()) == uid);
    if !ours {
        return match (orphaned_by(controller, ingress), wanted) {
            // The event of its deletion enqueues the key again.
            (Some(_), _) if meta.deletion_timestamp.is_some() => Step::Nothing,
            (Some(owner), _) => Step::DeleteOrphan {
                uid: uid_of(ingress),
                owner: owner.to_owned(),
            },
            (None, Ok(None)) => Step::Nothing,
            (None, Ok(Some(_))) => Step::Conflict,
            (None, Err(problem)) => Step::Refuse(problem),
        };
    }
    match wanted {
        Err(problem) => Step::Refuse(problem),
        _ if meta.deletion_timestamp.is_some() => Step::Nothing,
        Ok(None) => Step::Delete {
            uid: uid_of(ingress),
        },
        Ok(Some(wanted)) => repair(ingress, &wanted),
    }
}

/// The patch from `ingress` to `wanted`: class, rules, and the reference to the owner. All other parts (TLS,
/// annotations, a default backend) belong to other clients and stay unchanged.
fn repair(ingress: &Ingress, wanted: &Ingress) -> Step {
    let mut patch = json!({});
    if let (Some(is), Some(should)) = (&ingress.spec, &wanted.spec) {
        if is.ingress_class_name != should.ingress_class_name {
            patch["spec"]["ingressClassName"] = json!(should.ingress_class_name);
        }
        if is.rules != should.rules {
            patch["spec"]["rules"] = json!(should.rules);
        }
    } else {
        patch["spec"] = json!(wanted.spec);
    }
    let owner = controller_of(wanted);
    let same = |one: &OwnerReference, other: &OwnerReference| {
        (&one.api_version, &one.kind, &one.name) == (&other.api_version, &other.kind, &other.name)
    };
    if let (Some(is), Some(should)) = (controller_of(ingress), owner)
        && !same(is, should)
    {
        // A merge patch replaces a list as a whole.
        let all = ingress.meta().owner_references.iter().flatten();
        let all = all.map(|reference| {
            if reference.uid == should.uid {
                should
            } else {
                reference
            }
        });
        patch["metadata"]["ownerReferences"] = json!(all.collect::<Vec<_>>());
    }
    if patch == json!({}) {
        return Step::Nothing;
    }
    patch["metadata"]["uid"] = json!(ingress.meta().uid);
    patch["metadata"]["resourceVersion"] = json!(ingress.meta().resource_version);
    Step::Repair(patch)
}

fn controller_of(ingress: &Ingress) -> Option<&OwnerReference> {
    let references = ingress.meta().owner_references.iter().flatten();
    references
        .into_iter()
        .find(|reference| reference.controller == Some(true))
}

/// The uid of the former Service of the same name that controls the Ingress.
///
/// The apiVersion may be `meta.k8s.io/v1`, which the original program wrote. No garbage collector can collect such an
/// Ingress, so this program has to.
fn orphaned_by<'a>(controller: Option<&'a OwnerReference>, ingress: &Ingress) -> Option<&'a str> {
    let owner = controller?;
    let is_service =
        owner.kind == "Service" && matches!(&*owner.api_version, "v1" | "meta.k8s.io/v1");
    let same_name = Some(&owner.name) == ingress.meta().name.as_ref();
    (is_service && same_name).then_some(owner.uid.as_str())
}

fn uid_of(ingress: &Ingress) -> String {
    ingress.meta().uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::ANNOTATION;

    fn service(uid: &str, annotation: Option<&str>) -> Service {
        let mut metadata = json!({"name": "web", "namespace": "shop", "uid": uid});
        if let Some(value) = annotation {
            metadata["annotations"] = json!({ANNOTATION: value});
        }
        serde_json::from_value(json!({"metadata": metadata, "spec": {"ports": [{"port": 80}]}}))
            .unwrap()
    }

    /// The Ingress that the Service requests, as the server stores it.
    fn stored(service: &Service) -> Ingress {
        let mut annotated = service.clone();
        annotated.metadata.annotations = Some([(ANNOTATION.to_owned(), String::new())].into());
        let mut made = desired::ingress(&annotated, &Defaults::default())
            .unwrap()
            .unwrap();
        made.metadata.uid = Some("i-1".to_owned());
        made.metadata.resource_version = Some("7".to_owned());
        made
    }

    fn decide(service: Option<&Service>, ingress: Option<&Ingress>) -> Step {
        plan(service, ingress, &Defaults::default())
    }

    #[test]
    fn a_missing_ingress_is_created_and_a_correct_one_is_left() {
        let (on, off) = (service("s-1", Some("on")), service("s-1", None));
        assert!(matches!(decide(Some(&on), None), Step::Create(_)));
        assert_eq!(decide(Some(&on), Some(&stored(&on))), Step::Nothing);
        assert_eq!(decide(Some(&off), None), Step::Nothing);
        assert_eq!(decide(None, None), Step::Nothing);
    }

    #[test]
    fn an_own_ingress_is_deleted_when_the_service_does_not_request_it_any_more() {
        let off = service("s-1", None);
        let delete = Step::Delete {
            uid: "i-1".to_owned(),
        };
        assert_eq!(decide(Some(&off), Some(&stored(&off))), delete);
        let mut leaving = stored(&off);
        leaving.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        for service in [&off, &service("s-1", Some("on"))] {
            assert_eq!(
                decide(Some(service), Some(&leaving)),
                Step::Nothing,
                "it is being deleted"
            );
        }
    }

    #[test]
    fn an_orphan_of_this_name_is_deleted_with_either_api_version() {
        let gone = service("s-0", None);
        let orphan = Step::DeleteOrphan {
            uid: "i-1".to_owned(),
            owner: "s-0".to_owned(),
        };
        let mut left = stored(&gone);
        for version in ["v1", "meta.k8s.io/v1"] {
            left.metadata.owner_references.as_mut().unwrap()[0].api_version = version.to_owned();
            for service in [
                None,
                Some(&service("s-1", Some("on"))),
                Some(&service("s-1", None)),
            ] {
                assert_eq!(decide(service, Some(&left)), orphan, "{version}");
            }
        }
    }

    #[test]
    fn an_ingress_with_another_owner_is_never_touched() {
        let (on, off) = (service("s-1", Some("on")), service("s-1", None));
        let mut free = stored(&on);
        free.metadata.owner_references = None;
        let with = |field: &str, value: Value| {
            let mut object = serde_json::to_value(stored(&on)).unwrap();
            object["metadata"]["ownerReferences"][0]["uid"] = json!("other");
            object["metadata"]["ownerReferences"][0][field] = value;
            serde_json::from_value::<Ingress>(object).unwrap()
        };
        for (case, foreign) in [
            ("without an owner", free),
            ("another kind's", with("kind", json!("Gateway"))),
            (
                "another group's",
                with("apiVersion", json!("serving.knative.dev/v1")),
            ),
            ("another name's", with("name", json!("api"))),
            ("owned, not controlled", with("controller", json!(false))),
        ] {
            assert_eq!(decide(None, Some(&foreign)), Step::Nothing, "{case}");
            assert_eq!(decide(Some(&off), Some(&foreign)), Step::Nothing, "{case}");
            assert_eq!(decide(Some(&on), Some(&foreign)), Step::Conflict, "{case}");
        }
    }

    #[test]
    fn a_repair_changes_only_what_differs() {
        let on = service("s-1", Some("on"));
        let precise = |mut patch: Value| {
            patch["metadata"]["uid"] = json!("i-1");
            patch["metadata"]["resourceVersion"] = json!("7");
            Step::Repair(patch)
        };
        let mut drifted = stored(&on);
        let spec = drifted.spec.as_mut().unwrap();
        spec.ingress_class_name = None;
        spec.tls = Some(Vec::new());
        let patch = json!({"spec": {"ingressClassName": "nginx"}});
        assert_eq!(decide(Some(&on), Some(&drifted)), precise(patch));

        let mut drifted = stored(&on);
        drifted.spec.as_mut().unwrap().rules.as_mut().unwrap()[0].host =
            Some("evil.example".to_owned());
        let patch = json!({"spec": {"rules": stored(&on).spec.unwrap().rules}});
        assert_eq!(decide(Some(&on), Some(&drifted)), precise(patch));

        let mut adopted = stored(&on);
        let mine = adopted.metadata.owner_references.as_ref().unwrap()[0].clone();
        let other = OwnerReference {
            uid: "o-1".to_owned(),
            controller: None,
            ..mine.clone()
        };
        let owners = adopted.metadata.owner_references.as_mut().unwrap();
        owners[0].api_version = "meta.k8s.io/v1".to_owned();
        owners.insert(0, other.clone());
        let patch = json!({"metadata": {"ownerReferences": [other, mine]}});
        assert_eq!(
            decide(Some(&on), Some(&adopted)),
            precise(patch),
            "adopted from the original program"
        );
    }

    #[test]
    fn an_ingress_that_serves_stays_when_the_annotation_becomes_unreadable() {
        let wrong = service("s-1", Some("host=a.example.com,pth=/"));
        for ingress in [None, Some(&stored(&wrong))] {
            assert!(matches!(decide(Some(&wrong), ingress), Step::Refuse(_)));
        }
    }
}
