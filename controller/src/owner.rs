//! Owner references: the entries in `metadata.ownerReferences` by which the garbage collector deletes an object after
//! its owners, and a controller finds its objects.
//!
//! The functions change the object in memory and return whether they did; the caller writes it. An owner is identified
//! by its **uid**. controller-runtime compares group, kind and name, so that it takes an owner that was deleted and
//! created again for the one before, and adopts an object that the garbage collector is about to delete.
//!
//! There is one object of a kind and name at a time, so of two owners that differ in the uid alone at most one exists.
//! The references do not show which. [`set_owner`] assumes that the given owner exists: it replaces the namesake, as
//! controller-runtime does. So pass an owner in the server's present state: a stale copy of an owner that was created
//! again since has the uid that is gone, and the garbage collector deletes the object if it has no other owner.
//! [`set_controller`] never replaces a controller: a namesake that controls the object is [`Error::OwnedByNamesake`].
//!
//! | controller-runtime (`controllerutil`) | here |
//! |---|---|
//! | `SetControllerReference`, `WithBlockOwnerDeletion(false)` | [`set_controller`], [`Owner::without_blocking_deletion`] |
//! | `SetOwnerReference` | [`set_owner`]: replaces a namesake, as there; keeps the flags for the controller and for blocking the owner's deletion |
//! | `SetOwnerReference`, `WithBlockOwnerDeletion(true)` | [`Owner::blocking_deletion`], [`Owner::own`] |
//! | `RemoveOwnerReference`, `RemoveControllerReference` | [`remove_owner`], [`remove_controller`]: false where those fail |
//! | `HasOwnerReference`, `HasControllerReference` | [`is_owned_by`], [`is_controlled_by`], [`controller_of`] |
//!
//! ```
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use reeve_controller::owner;
//! # fn read() -> ConfigMap {
//! #     serde_json::from_str(r#"{"metadata": {"name": "web", "namespace": "default", "uid": "1"}}"#).unwrap()
//! # }
//!
//! let map: ConfigMap = read();
//! let mut secret = Secret::default();
//! secret.metadata.namespace = Some("default".into());
//! assert!(owner::set_controller(&map, &mut secret)?);
//! assert!(owner::is_controlled_by(&secret, &map));
//! assert!(!owner::set_controller(&map, &mut secret)?, "it is");
//! # Ok::<(), owner::Error>(())
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::metadata::TypeMeta;
use kube_core::{ApiResource, DynamicObject, Resource};
use reeve_client::{AsObject, types_of};

/// The reason why an object cannot have this owner.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another controller exists already; there is one at most.
    #[error("{object} is controlled by {kind} {name} (uid {uid}) already")]
    AlreadyOwned {
        /// The object.
        object: String,
        /// The kind of the controller.
        kind: String,
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// The controller of the object has the kind and name of the owner, and another uid: one of the two was deleted. If
    /// it is the controller, the garbage collector deletes the object, which can then be created again. If it is the
    /// given owner, that is a stale copy, and the next one is the controller itself. Either case ends by itself: try
    /// again.
    #[error(
        "{object} is controlled by a {kind} {name} of another uid ({uid}): either that one is gone, and {object} will \
         be garbage collected, or this copy of the owner is out of date; try again"
    )]
    OwnedByNamesake {
        /// The object.
        object: String,
        /// The kind of both.
        kind: String,
        /// The name of both.
        name: String,
        /// The predecessor's uid.
        uid: String,
    },
    /// The object exists, and no controller owns it: it is not a child of this owner.
    #[error(
        "{object} exists already, and {owner} does not control it: delete or rename one of the two"
    )]
    NotControlled {
        /// The object.
        object: String,
        /// The owner.
        owner: String,
    },
    /// An owner must be in the namespace of its objects.
    #[error("{object} cannot be owned by {owner}: it is in another namespace")]
    OtherNamespace {
        /// The object.
        object: String,
        /// The owner.
        owner: String,
    },
    /// An object without a namespace needs an owner without one.
    #[error("{object} cannot be owned by {owner}: it is in no namespace, or none is set yet")]
    NoNamespace {
        /// The object.
        object: String,
        /// The owner.
        owner: String,
    },
    /// A dynamic owner does not name its kind.
    #[error("{owner} cannot own anything: its kind is not known; use Owner::of_dynamic")]
    NoKind {
        /// The owner.
        owner: String,
    },
    /// The owner was not read from the server: it lacks a name or a uid.
    #[error("{owner} cannot own anything: it has no uid; use the object that the server returned")]
    NotStored {
        /// The owner.
        owner: String,
    },
}

/// An owner in the form of a reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    /// Without flags.
    reference: OwnerReference,
    namespace: Option<String>,
    /// Whether its deletion in the foreground waits for the object's, if set.
    blocks: Option<bool>,
}

// === impl Owner ===

impl Owner {
    /// The owner `object`: also a dynamic one, which names its kind if it was read by a client or a cache of this crate.
    ///
    /// # Errors
    /// [`Error::NotStored`], [`Error::NoKind`].
    pub fn of<Form>(object: &impl AsObject<Form>) -> Result<Self, Error> {
        let object = object.as_object();
        let types = types_of(object).ok_or_else(|| Error::NoKind {
            owner: described(object),
        })?;
        Self::named(object, types)
    }

    /// The owner `object`, of a kind known at run time.
    ///
    /// # Errors
    /// [`Error::NotStored`].
    pub fn of_dynamic(object: &DynamicObject, resource: &ApiResource) -> Result<Self, Error> {
        let types = TypeMeta {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
        };
        Self::named(object, types)
    }

    fn named<O: Resource>(object: &O, types: TypeMeta) -> Result<Self, Error> {
        let name = object
            .meta()
            .name
            .as_deref()
            .filter(|name| !name.is_empty());
        let (Some(name), Some(uid)) = (name, uid_of(object)) else {
            return Err(Error::NotStored {
                owner: format!("{} {}", types.kind, name_of(object)),
            });
        };
        Ok(Self {
            reference: OwnerReference {
                api_version: types.api_version,
                kind: types.kind,
                name: name.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            },
            namespace: namespace_of(object).map(str::to_owned),
            blocks: None,
        })
    }

    /// The same owner, whose deletion in the foreground waits for the object's (controller-runtime:
    /// `WithBlockOwnerDeletion(true)`). The default is true for a controller, and false for another owner.
    ///
    /// Where the admission plugin `OwnerReferencesPermissionEnforcement` is on, as in OpenShift, the caller needs the
    /// right to update the `finalizers` of the owner.
    #[must_use]
    pub fn blocking_deletion(mut self) -> Self {
        self.blocks = Some(true);
        self
    }

    /// The same owner, whose deletion in the foreground does not wait for the object's (controller-runtime:
    /// `WithBlockOwnerDeletion(false)`).
    #[must_use]
    pub fn without_blocking_deletion(mut self) -> Self {
        self.blocks = Some(false);
        self
    }

    /// Makes it the controller of `object`: its one managing owner. True if that changed the object. An existing entry
    /// keeps its place; a new one comes last.
    ///
    /// # Errors
    /// When another controller exists, or the namespaces do not allow it; the object is unchanged then.
    pub fn control<K: Resource>(&self, object: &mut K) -> Result<bool, Error> {
        self.check_namespace(object)?;
        if let Some(other) = controlling(object).filter(|other| other.uid != self.reference.uid) {
            let (object, kind) = (described(object), other.kind.clone());
            let (name, uid) = (other.name.clone(), other.uid.clone());
            return Err(if self.is_namesake(other) {
                Error::OwnedByNamesake {
                    object,
                    kind,
                    name,
                    uid,
                }
            } else {
                Error::AlreadyOwned {
                    object,
                    kind,
                    name,
                    uid,
                }
            });
        }
        let mut reference = self.reference.clone();
        reference.controller = Some(true);
        reference.block_owner_deletion = self.blocks.unwrap_or(true).then_some(true);
        Ok(self.put(object, reference))
    }

    /// Makes it an owner of `object`, its controller if it is that already. True if that changed the object. Without a
    /// setting, the flag for blocking its deletion in the foreground stays as in the object, and is false for a new
    /// entry. An owner of the same group, kind and name and another uid is removed, because only one of them can exist;
    /// the caller has to pass the existing one ([why it matters](self)).
    ///
    /// # Errors
    /// When the namespaces do not allow it; the object is unchanged then.
    pub fn own<K: Resource>(&self, object: &mut K) -> Result<bool, Error> {
        self.check_namespace(object)?;
        let mut reference = self.reference.clone();
        let known = references(object).iter().find(|known| self.is(known));
        reference.controller = known.and_then(|known| known.controller);
        reference.block_owner_deletion = match self.blocks {
            None => known.and_then(|known| known.block_owner_deletion),
            Some(blocks) => blocks.then_some(true),
        };
        Ok(self.put(object, reference))
    }

    /// Removes it from the owners of `object`. True if it was one.
    pub fn disown<K: Resource>(&self, object: &mut K) -> bool {
        disown(&self.reference.uid, object)
    }

    fn is(&self, reference: &OwnerReference) -> bool {
        reference.uid == self.reference.uid
    }

    /// Whether the reference names the same group, kind and name, in any version.
    fn is_namesake(&self, reference: &OwnerReference) -> bool {
        let ours = &self.reference;
        let group = group_of(&reference.api_version);
        group.is_some()
            && group == group_of(&ours.api_version)
            && (&reference.kind, &reference.name) == (&ours.kind, &ours.name)
    }

    fn put<K: Resource>(&self, object: &mut K, reference: OwnerReference) -> bool {
        let owners = object.meta_mut().owner_references.get_or_insert_default();
        let before = owners.clone();
        match owners.iter().position(|known| self.is(known)) {
            Some(known) => owners[known] = reference,
            None => owners.push(reference),
        }
        // Of namesakes one exists at most: by contract the given owner.
        owners.retain(|known| self.is(known) || !self.is_namesake(known));
        *owners != before
    }

    /// The error for an existing `object` that this owner did not create.
    pub(crate) fn does_not_control<K: Resource>(&self, object: &K) -> Error {
        Error::NotControlled {
            object: described(object),
            owner: self.described(),
        }
    }

    fn described(&self) -> String {
        let OwnerReference { kind, name, .. } = &self.reference;
        match &self.namespace {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        }
    }

    fn check_namespace<K: Resource>(&self, object: &K) -> Result<(), Error> {
        let Some(ours) = self.namespace.as_deref() else {
            return Ok(());
        };
        match namespace_of(object) {
            Some(namespace) if namespace == ours => Ok(()),
            Some(_) => Err(Error::OtherNamespace {
                object: described(object),
                owner: self.described(),
            }),
            None => Err(Error::NoNamespace {
                object: described(object),
                owner: self.described(),
            }),
        }
    }
}

/// Makes `owner` the controller of `object`: see [`Owner::control`].
///
/// # Errors
/// As [`Owner::control`] and [`Owner::of`].
pub fn set_controller<Form, K: Resource>(
    owner: &impl AsObject<Form>,
    object: &mut K,
) -> Result<bool, Error> {
    Owner::of(owner)?.control(object)
}

/// Makes `owner` an owner of `object`: see [`Owner::own`].
///
/// # Errors
/// As [`Owner::own`] and [`Owner::of`].
pub fn set_owner<Form, K: Resource>(
    owner: &impl AsObject<Form>,
    object: &mut K,
) -> Result<bool, Error> {
    Owner::of(owner)?.own(object)
}

/// Removes `owner` from the owners of `object`. True if it was one.
pub fn remove_owner<Form, K: Resource>(owner: &impl AsObject<Form>, object: &mut K) -> bool {
    uid_of(owner.as_object()).is_some_and(|uid| disown(uid, object))
}

/// Removes `owner` from the owners of `object` if it controls it. True if it did.
pub fn remove_controller<Form, K: Resource>(owner: &impl AsObject<Form>, object: &mut K) -> bool {
    let uid = uid_of(owner.as_object());
    let controls = controlling(object).is_some_and(|known| uid == Some(&known.uid));
    controls && remove_owner(owner, object)
}

/// Whether `owner` is an owner of `object`.
pub fn is_owned_by<Form, Owning>(
    object: &impl AsObject<Form>,
    owner: &impl AsObject<Owning>,
) -> bool {
    let references = references(object.as_object());
    uid_of(owner.as_object()).is_some_and(|uid| references.iter().any(|known| known.uid == uid))
}

/// Whether `owner` controls `object`.
pub fn is_controlled_by<Form, Owning>(
    object: &impl AsObject<Form>,
    owner: &impl AsObject<Owning>,
) -> bool {
    let controller = controller_of(object);
    uid_of(owner.as_object()).is_some_and(|uid| controller.is_some_and(|known| known.uid == uid))
}

/// The controller of `object`, if it has one.
pub fn controller_of<Form>(object: &impl AsObject<Form>) -> Option<&OwnerReference> {
    controlling(object.as_object())
}

fn controlling<K: Resource>(object: &K) -> Option<&OwnerReference> {
    references(object)
        .iter()
        .find(|reference| reference.controller == Some(true))
}

fn disown<K: Resource>(uid: &str, object: &mut K) -> bool {
    let owners = &mut object.meta_mut().owner_references;
    let before = owners.as_ref().map_or(0, Vec::len);
    if let Some(owners) = owners {
        owners.retain(|known| known.uid != uid);
    }
    // An object without owners is decoded with `None`.
    *owners = owners.take().filter(|owners| !owners.is_empty());
    owners.as_ref().map_or(0, Vec::len) != before
}

fn references<K: Resource>(object: &K) -> &[OwnerReference] {
    object
        .meta()
        .owner_references
        .as_deref()
        .unwrap_or_default()
}

fn uid_of<K: Resource>(object: &K) -> Option<&str> {
    object.meta().uid.as_deref().filter(|uid| !uid.is_empty())
}

fn name_of<K: Resource>(object: &K) -> &str {
    object.meta().name.as_deref().unwrap_or("without a name")
}

fn namespace_of<K: Resource>(object: &K) -> Option<&str> {
    let namespace = object.meta().namespace.as_deref();
    namespace.filter(|namespace| !namespace.is_empty())
}

fn described<K: Resource>(object: &K) -> String {
    match namespace_of(object) {
        Some(namespace) => format!("{namespace}/{}", name_of(object)),
        None => name_of(object).to_owned(),
    }
}

/// The group of an `apiVersion`, empty for the core group; `None` if it has more than one slash, which no kind has
/// (apimachinery: `ParseGroupVersion`).
pub(crate) fn group_of(api_version: &str) -> Option<&str> {
    match api_version.split_once('/') {
        None => Some(""),
        Some((_, version)) if version.contains('/') => None,
        Some((group, _)) => Some(group),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};

    use super::*;

    fn owner(uid: &str) -> Deployment {
        let mut owner = Deployment::default();
        owner.metadata.name = Some("web".into());
        owner.metadata.namespace = Some("ns".into());
        owner.metadata.uid = Some(uid.into());
        owner
    }

    fn pod() -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some("web-1".into());
        pod.metadata.namespace = Some("ns".into());
        pod
    }

    fn uids(pod: &Pod) -> Vec<&str> {
        references(pod)
            .iter()
            .map(|known| known.uid.as_str())
            .collect()
    }

    #[test]
    fn a_shared_or_a_dynamic_owner_gives_the_same_reference() {
        let (typed, mut one, mut two) = (owner("1"), pod(), pod());
        set_controller(&typed, &mut one).unwrap();
        set_controller(&Arc::new(typed.clone()), &mut two).unwrap();
        assert_eq!(one, two);
        let resource = ApiResource::erase::<Deployment>(&());
        let mut dynamic = DynamicObject::new("web", &resource);
        dynamic.metadata = typed.metadata.clone();
        for dynamic in [Owner::of(&dynamic), Owner::of(&Arc::new(dynamic.clone()))] {
            let mut pod = pod();
            dynamic.unwrap().control(&mut pod).unwrap();
            assert_eq!(pod, one);
        }
        let shared = Arc::new(one);
        assert!(is_controlled_by(&shared, &Arc::new(typed)) && is_owned_by(&shared, &dynamic));
        assert_eq!(controller_of(&shared).unwrap().uid, "1");
        dynamic.types = None;
        let unnamed = set_controller(&dynamic, &mut pod());
        let owner = "ns/web".to_owned();
        assert_eq!(unnamed, Err(Error::NoKind { owner }));
        assert!(Owner::of_dynamic(&dynamic, &resource).is_ok());
    }

    #[test]
    fn a_controller_is_set_once_with_both_flags() {
        let mut pod = pod();
        assert!(set_controller(&owner("1"), &mut pod).unwrap());
        let expected = OwnerReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
            uid: "1".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        assert_eq!(controller_of(&pod), Some(&expected));
        assert!(!set_controller(&owner("1"), &mut pod).unwrap());
        assert!(is_controlled_by(&pod, &owner("1")) && !is_controlled_by(&pod, &owner("2")));
        let gently = Owner::of(&owner("1")).unwrap().without_blocking_deletion();
        assert!(gently.control(&mut pod).unwrap());
        assert_eq!(controller_of(&pod).unwrap().block_owner_deletion, None);
    }

    #[test]
    fn a_mere_owner_does_not_block_unless_said_and_what_others_said_stays() {
        let blocks = |pod: &Pod| references(pod)[0].block_owner_deletion;
        let mut pod = pod();
        assert!(set_owner(&owner("1"), &mut pod).unwrap());
        assert_eq!(blocks(&pod), None);
        let owner = Owner::of(&owner("1")).unwrap();
        assert!(owner.clone().blocking_deletion().own(&mut pod).unwrap());
        assert_eq!(blocks(&pod), Some(true));
        assert!(!owner.own(&mut pod).unwrap(), "it stays");
        for other in [Some(false), Some(true), None] {
            pod.metadata.owner_references.as_mut().unwrap()[0].block_owner_deletion = other;
            assert!(!owner.own(&mut pod).unwrap());
            assert_eq!(blocks(&pod), other);
        }
        pod.metadata.owner_references.as_mut().unwrap()[0].block_owner_deletion = Some(true);
        assert!(owner.without_blocking_deletion().own(&mut pod).unwrap());
        assert_eq!(blocks(&pod), None);
    }

    #[test]
    fn a_second_controller_is_refused_and_nothing_changes() {
        let mut pod = pod();
        let mut other = owner("2");
        other.metadata.name = Some("db".into());
        set_controller(&other, &mut pod).unwrap();
        let before = pod.clone();
        let refused = set_controller(&owner("1"), &mut pod).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "ns/web-1 is controlled by Deployment db (uid 2) already"
        );
        assert_eq!(pod, before);
        // But it may be one more owner.
        assert!(set_owner(&owner("1"), &mut pod).unwrap());
        assert_eq!(uids(&pod), ["2", "1"]);
        assert!(is_owned_by(&pod, &owner("1")) && !is_controlled_by(&pod, &owner("1")));
    }

    #[test]
    fn an_owner_made_again_is_not_the_one_before() {
        let mut pod = pod();
        set_controller(&owner("1"), &mut pod).unwrap();
        let refused = set_controller(&owner("2"), &mut pod).unwrap_err();
        assert!(
            matches!(refused, Error::OwnedByNamesake { .. }),
            "{refused}"
        );
        // Either may be the deleted one.
        for part in ["(1)", "is gone", "garbage collected", "out of date"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
        assert!(!is_owned_by(&pod, &owner("2")) && !remove_owner(&owner("2"), &mut pod));
    }

    #[test]
    fn a_mere_owner_takes_the_place_of_its_namesake_whichever_is_gone() {
        let mut pod = pod();
        for uid in ["1", "2", "1"] {
            set_owner(&owner(uid), &mut pod).unwrap();
            assert_eq!(uids(&pod), [uid]);
        }
    }

    #[test]
    fn a_reference_of_another_version_is_replaced_where_it_is() {
        let mut pod = pod();
        set_controller(&owner("1"), &mut pod).unwrap();
        let mut second = owner("2");
        second.metadata.name = Some("db".into());
        set_owner(&second, &mut pod).unwrap();
        pod.metadata.owner_references.as_mut().unwrap()[0].api_version = "apps/v1beta1".into();
        assert!(set_owner(&owner("1"), &mut pod).unwrap());
        assert_eq!(uids(&pod), ["1", "2"]);
        let first = &references(&pod)[0];
        assert_eq!(
            (first.api_version.as_str(), first.controller),
            ("apps/v1", Some(true))
        );
    }

    #[test]
    fn a_reference_with_a_bad_api_version_is_no_namesake() {
        for (api_version, group) in [
            ("v1", Some("")),
            ("", Some("")),
            ("apps/v1", Some("apps")),
            ("apps/v1/", None),
            ("apps/v1/web", None),
            ("a/apps/v1", None),
        ] {
            assert_eq!(group_of(api_version), group, "{api_version}");
        }
        let mut pod = pod();
        set_owner(&owner("1"), &mut pod).unwrap();
        for bad in ["apps/v1/web", "a/apps/v1"] {
            pod.metadata.owner_references.as_mut().unwrap()[0].api_version = bad.into();
            let mut pod = pod.clone();
            set_owner(&owner("2"), &mut pod).unwrap();
            assert_eq!(uids(&pod), ["1", "2"], "{bad}: it stays");
        }
    }

    #[test]
    fn removing_takes_one_and_keeps_the_others() {
        let mut pod = pod();
        let mut second = owner("2");
        second.metadata.name = Some("db".into());
        set_controller(&owner("1"), &mut pod).unwrap();
        set_owner(&second, &mut pod).unwrap();
        assert!(!remove_controller(&second, &mut pod), "it does not control");
        assert!(remove_controller(&owner("1"), &mut pod));
        assert_eq!(uids(&pod), ["2"]);
        assert!(Owner::of(&second).unwrap().disown(&mut pod));
        assert_eq!(pod.metadata.owner_references, None);
        assert!(!remove_owner(&second, &mut pod));
    }

    #[test]
    fn namespaces_decide_what_may_own() {
        let mut elsewhere = pod();
        elsewhere.metadata.namespace = Some("other".into());
        let mut node = Node::default();
        (node.metadata.name, node.metadata.uid) = (Some("n".into()), Some("9".into()));
        let cross = set_controller(&owner("1"), &mut elsewhere).unwrap_err();
        assert_eq!(
            cross.to_string(),
            "other/web-1 cannot be owned by Deployment ns/web: it is in another namespace"
        );
        let cluster = set_owner(&owner("1"), &mut node).unwrap_err();
        assert!(matches!(cluster, Error::NoNamespace { .. }), "{cluster}");
        // A cluster-scoped object may own any object.
        assert!(set_controller(&node, &mut elsewhere).unwrap());
    }

    #[test]
    fn an_owner_without_a_uid_is_refused() {
        let error = set_controller(&ConfigMap::default(), &mut pod()).unwrap_err();
        assert!(matches!(error, Error::NotStored { .. }));
        assert!(error.to_string().starts_with("ConfigMap without a name"));
        let resource = ApiResource::erase::<Deployment>(&());
        let value = serde_json::to_value(owner("1")).unwrap();
        let dynamic = serde_json::from_value(value).unwrap();
        let owner = Owner::of_dynamic(&dynamic, &resource).unwrap();
        let mut pod = pod();
        assert!(owner.control(&mut pod).unwrap());
        assert_eq!(controller_of(&pod).unwrap().kind, "Deployment");
    }
}
