//! Volumes, claims and what provisions them.

use k8s_openapi::api;
use serde_json::{Value, json};

use super::entry::{Entry, Texts, texts};
use super::pods::{self, put, set};
use super::rbac::created_at;
use super::strategy::{ALL_BUT_STATUS, Context, Paths, Strategy};
use super::{csi_rules, storage_rules};
use crate::field::Errors;
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo, StatusUpdate};
use crate::table::Now;
use crate::table::cells::{
    NONE, aged, boolean, integer, items, joined, length, or_unset, plain, string, text, wide,
};

k8s_openapi::k8s_if_ge_1_34! {
    const ATTRIBUTES_TEXTS: Texts = texts::<api::storage::v1::VolumeAttributesClass>;
}
k8s_openapi::k8s_if_le_1_33! {
    const ATTRIBUTES_TEXTS: Texts = super::entry::no_texts;
}

const GROUP: &str = "storage.k8s.io";

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::of::<api::core::v1::PersistentVolumeClaim>("", "persistentvolumeclaims", &Claims),
    Entry::of::<api::core::v1::PersistentVolume>("", "persistentvolumes", &Volumes),
    Entry::of::<api::storage::v1::CSIDriver>(GROUP, "csidrivers", &Drivers),
    Entry::of::<api::storage::v1::CSINode>(GROUP, "csinodes", &DriverNodes),
    Entry::of::<api::storage::v1::CSIStorageCapacity>(GROUP, "csistoragecapacities", &Capacities),
    Entry::of::<api::storage::v1::StorageClass>(GROUP, "storageclasses", &Classes),
    Entry::of::<api::storage::v1::VolumeAttachment>(GROUP, "volumeattachments", &Attachments),
    Entry::new(
        GROUP,
        "volumeattributesclasses",
        &AttributesClasses,
        ATTRIBUTES_TEXTS,
    ),
];

/// The annotation that named the class before there was a field.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: &[&str] = &[
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
/// Access modes and their short forms.
const MODES: &[(&str, &str)] = &[
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

/// PersistentVolumes.
#[derive(Debug)]
pub(super) struct Volumes;

/// PersistentVolumeClaims.
#[derive(Debug)]
pub(super) struct Claims;

/// StorageClasses.
#[derive(Debug)]
pub(super) struct Classes;

/// CSIDrivers.
#[derive(Debug)]
pub(super) struct Drivers;

/// CSINodes.
#[derive(Debug)]
pub(super) struct DriverNodes;

/// CSIStorageCapacities.
#[derive(Debug)]
pub(super) struct Capacities;

/// VolumeAttachments.
#[derive(Debug)]
pub(super) struct Attachments;

/// VolumeAttributesClasses.
#[derive(Debug)]
pub(super) struct AttributesClasses;

// === impl Volumes ===

impl Strategy for Volumes {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Capacity", |value, _| {
                let capacity = &value["spec"]["capacity"]["storage"];
                capacity.as_str().unwrap_or("0").into()
            }),
            text("Access Modes", |value, _| {
                modes(&value["spec"]["accessModes"])
            }),
            text("Reclaim Policy", |value, _| {
                plain(&value["spec"]["persistentVolumeReclaimPolicy"])
            }),
            text("Status", phase),
            text("Claim", |value, _| {
                let claim = &value["spec"]["claimRef"];
                if claim.is_null() {
                    return "".into();
                }
                format!("{}/{}", string(&claim["namespace"]), string(&claim["name"])).into()
            }),
            text("StorageClass", class),
            text("VolumeAttributesClass", |value, _| {
                or_unset(&value["spec"]["volumeAttributesClassName"])
            }),
            text("Reason", |value, _| plain(&value["status"]["reason"])),
            aged(),
            wide("VolumeMode", |value, _| {
                or_unset(&value["spec"]["volumeMode"])
            }),
        ]
    }

    fn prepare_create(&self, context: &Context<'_>, volume: &mut Value) {
        let now = meta::time(context.now);
        volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
    }

    fn prepare_update(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        if context.subresource != "status" {
            return;
        }
        let (former, status) = (&old["status"], &new["status"]);
        let changed = former["phase"] != status["phase"];
        let time = &status["lastPhaseTransitionTime"];
        if !changed && time.is_null() {
            new["status"]["lastPhaseTransitionTime"] = former["lastPhaseTransitionTime"].clone();
        } else if changed && (time.is_null() || *time == former["lastPhaseTransitionTime"]) {
            new["status"]["lastPhaseTransitionTime"] = meta::time(context.now).into();
        }
    }

    fn default(&self, _: &ResourceInfo, volume: &mut Value) {
        let spec = meta::map_at(meta::object_mut(volume), "spec");
        put(spec, "persistentVolumeReclaimPolicy", "Retain");
        set(spec, "volumeMode", "Filesystem");
        if let Some(source) = spec.get_mut("hostPath").and_then(Value::as_object_mut) {
            put(source, "type", "");
        }
    }

    fn validate(&self, _: &Context<'_>, volume: &Value, old: Option<&Value>, errors: &mut Errors) {
        storage_rules::volume(volume, old, errors);
    }
}

fn phase(value: &Value, _: &Now) -> Value {
    if value["metadata"]["deletionTimestamp"].is_null() {
        plain(&value["status"]["phase"])
    } else {
        "Terminating".into()
    }
}

fn class(value: &Value, _: &Now) -> Value {
    let annotation = &value["metadata"]["annotations"][CLASS];
    if annotation.is_string() {
        return annotation.clone();
    }
    match &value["spec"]["storageClassName"] {
        Value::String(name) if value["kind"] == "PersistentVolumeClaim" || !name.is_empty() => {
            name.as_str().into()
        }
        _ => "".into(),
    }
}

/// The short forms in the order of the list, each once.
fn modes(value: &Value) -> Value {
    let listed = items(value);
    let present = MODES
        .iter()
        .filter(|(mode, _)| listed.iter().any(|one| one == mode));
    joined(present.map(|(_, short)| *short)).into()
}

// === impl Claims ===

impl Strategy for Claims {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Status", phase),
            text("Volume", |value, _| plain(&value["spec"]["volumeName"])),
            text("Capacity", |value, _| {
                if string(&value["spec"]["volumeName"]).is_empty() {
                    return "".into();
                }
                let capacity = &value["status"]["capacity"]["storage"];
                capacity.as_str().unwrap_or("0").into()
            }),
            text("Access Modes", |value, _| {
                if string(&value["spec"]["volumeName"]).is_empty() {
                    return "".into();
                }
                modes(&value["status"]["accessModes"])
            }),
            text("StorageClass", class),
            text("VolumeAttributesClass", |value, _| {
                or_unset(&value["spec"]["volumeAttributesClassName"])
            }),
            aged(),
            wide("VolumeMode", |value, _| {
                or_unset(&value["spec"]["volumeMode"])
            }),
        ]
    }

    fn prepare_create(&self, _: &Context<'_>, claim: &mut Value) {
        same_source(claim);
    }

    fn prepare_update(&self, context: &Context<'_>, _: &Value, new: &mut Value) {
        if context.subresource.is_empty() {
            same_source(new);
        }
    }

    fn default(&self, _: &ResourceInfo, claim: &mut Value) {
        let map = meta::object_mut(claim);
        pods::default_claim(map);
        put(meta::map_at(map, "status"), "phase", "Pending");
    }

    fn validate(&self, _: &Context<'_>, claim: &Value, old: Option<&Value>, errors: &mut Errors) {
        storage_rules::claim(claim, old, errors);
    }
}

/// The two fields for the source of the data have the same value, unless the newer one names a namespace.
fn same_source(claim: &mut Value) {
    let spec = meta::map_at(meta::object_mut(claim), "spec");
    let (old, new) = (
        spec.get("dataSource").cloned(),
        spec.get("dataSourceRef").cloned(),
    );
    match (old, new) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(source)) if string(&source["namespace"]).is_empty() => {
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

// === impl Classes ===

impl Strategy for Classes {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
    }

    fn columns(&self) -> Vec<Column> {
        let mut name = text("Name", |value, _| {
            let annotations = &value["metadata"]["annotations"];
            let name = string(&value["metadata"]["name"]);
            if DEFAULT_CLASS.iter().any(|one| annotations[*one] == "true") {
                format!("{name} (default)").into()
            } else {
                name.into()
            }
        });
        "name".clone_into(&mut name.format);
        vec![
            name,
            text("Provisioner", |value, _| plain(&value["provisioner"])),
            text("ReclaimPolicy", |value, _| plain(&value["reclaimPolicy"])),
            text("VolumeBindingMode", |value, _| {
                plain(&value["volumeBindingMode"])
            }),
            text("AllowVolumeExpansion", |value, _| {
                (value["allowVolumeExpansion"] == true).into()
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, class: &mut Value) {
        let class = meta::object_mut(class);
        set(class, "reclaimPolicy", "Delete");
        set(class, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, _: &Context<'_>, class: &Value, old: Option<&Value>, errors: &mut Errors) {
        storage_rules::class(class, old, errors);
    }
}

// === impl Drivers ===

impl Strategy for Drivers {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.unconditional_update = false;
        info.generation = Generation::Changes;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            boolean("AttachRequired", |value, _| {
                value["spec"]["attachRequired"].clone()
            }),
            boolean("PodInfoOnMount", |value, _| {
                value["spec"]["podInfoOnMount"].clone()
            }),
            boolean("StorageCapacity", |value, _| {
                value["spec"]["storageCapacity"].clone()
            }),
            text("TokenRequests", |value, _| {
                let requests = &value["spec"]["tokenRequests"];
                if requests.is_null() {
                    return "<unset>".into();
                }
                let all = items(requests).iter();
                joined(all.map(|one| string(&one["audience"]))).into()
            }),
            boolean("RequiresRepublish", |value, _| {
                value["spec"]["requiresRepublish"].clone()
            }),
            text("Modes", |value, _| {
                match joined(
                    items(&value["spec"]["volumeLifecycleModes"])
                        .iter()
                        .map(string),
                ) {
                    modes if modes.is_empty() => NONE.into(),
                    modes => modes.into(),
                }
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, driver: &mut Value) {
        let spec = meta::map_at(meta::object_mut(driver), "spec");
        put(spec, "attachRequired", true);
        for flag in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
        ] {
            put(spec, flag, false);
        }
        set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if items(spec.get("volumeLifecycleModes").unwrap_or(&Value::Null)).is_empty() {
            spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
        }
    }

    fn validate(&self, _: &Context<'_>, driver: &Value, old: Option<&Value>, errors: &mut Errors) {
        storage_rules::driver(driver, old, errors);
    }
}

// === impl DriverNodes ===

impl Strategy for DriverNodes {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.unconditional_update = false;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            integer("Drivers", |value, _| length(&value["spec"]["drivers"])),
            aged(),
        ]
    }

    fn validate(&self, _: &Context<'_>, node: &Value, old: Option<&Value>, errors: &mut Errors) {
        csi_rules::node(node, old, errors);
    }
}

// === impl Capacities ===

impl Strategy for Capacities {
    fn describe(&self, info: &mut ResourceInfo) {
        info.unconditional_update = false;
    }

    fn columns(&self) -> Vec<Column> {
        vec![created_at()]
    }

    fn validate(
        &self,
        _: &Context<'_>,
        capacity: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        csi_rules::capacity(capacity, old, errors);
    }
}

// === impl Attachments ===

impl Strategy for Attachments {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
        info.unconditional_update = false;
        info.status_update = StatusUpdate::StatusOnly;
    }

    fn columns(&self) -> Vec<Column> {
        let mut attacher = text("Attacher", |value, _| plain(&value["spec"]["attacher"]));
        "name".clone_into(&mut attacher.format);
        vec![
            attacher,
            text("PV", |value, _| {
                plain(&value["spec"]["source"]["persistentVolumeName"])
            }),
            text("Node", |value, _| plain(&value["spec"]["nodeName"])),
            boolean("Attached", |value, _| {
                (value["status"]["attached"] == true).into()
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, attachment: &mut Value) {
        if let Some(volume) = attachment.pointer_mut("/spec/source/inlineVolumeSpec")
            && volume.is_object()
        {
            put(meta::object_mut(volume), "volumeMode", "Filesystem");
        }
    }

    fn validate(
        &self,
        _: &Context<'_>,
        attachment: &Value,
        old: Option<&Value>,
        errors: &mut Errors,
    ) {
        csi_rules::attachment(attachment, old, errors);
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        (subresource == "status").then_some(ALL_BUT_STATUS)
    }
}

// === impl AttributesClasses ===

impl Strategy for AttributesClasses {
    fn describe(&self, info: &mut ResourceInfo) {
        info.delete_returns_object = true;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("DriverName", |value, _| plain(&value["driverName"])),
            aged(),
        ]
    }

    fn validate(&self, _: &Context<'_>, class: &Value, old: Option<&Value>, errors: &mut Errors) {
        csi_rules::attributes(class, old, errors);
    }
}
