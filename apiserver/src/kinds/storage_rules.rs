//! The checks of PersistentVolumes, claims, StorageClasses and CSIDrivers.
//!
//! (kubernetes: `ValidatePersistentVolumeUpdate`, `ValidatePersistentVolumeClaimUpdate`, `pkg/apis/storage/validation`.)

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::data::Data;
use super::{check, immutable, placement_rules, selectors, volume_rules};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

const GROUP_POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
const MODES: &[&str] = &["Persistent", "Ephemeral"];
const POSITIVE: &str = "must be greater than zero";
/// The struct of Go with the sources of a volume.
const VOLUME_SOURCE: &str = "PersistentVolumeSource";
const ONE_POD: &str = "ReadWriteOncePod";
const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", ONE_POD];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const RECLAIM_POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];
const CLASS_POLICIES: &[&str] = &["Delete", "Retain"];
const BINDING_MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];
/// The shortest and the longest life of a token, in seconds.
const TOKEN_LIFE: (i64, i64) = (600, 1 << 32);

/// Checks a CSIDriver.
pub(super) fn driver(driver: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&driver["spec"], Path::new("spec"));
    let policy = &spec["fsGroupPolicy"];
    if !policy.is_null() && !GROUP_POLICIES.contains(&string(policy)) {
        errors.push(FieldError::not_supported(
            &path.child("fsGroupPolicy"),
            policy.clone(),
            GROUP_POLICIES,
        ));
    }
    tokens(spec, &path.child("tokenRequests"), errors);
    let modes = path.child("volumeLifecycleModes");
    for mode in items(&spec["volumeLifecycleModes"]) {
        if !MODES.contains(&string(mode)) {
            errors.push(FieldError::not_supported(&modes, mode.clone(), MODES));
        }
    }
    let period = spec["nodeAllocatableUpdatePeriodSeconds"].as_i64();
    if let Some(period) = period.filter(|period| *period < 10) {
        errors.push(FieldError::invalid(
            &path.child("nodeAllocatableUpdatePeriodSeconds"),
            period,
            "must be greater than or equal to 10 seconds",
        ));
    }
    let Some(old) = old else { return };
    let old = &old["spec"];
    // kube-apiserver misspells the field.
    let attach = path.child("attachedRequired");
    immutable::field(
        &spec["attachRequired"],
        &old["attachRequired"],
        &attach,
        errors,
    );
    let field = "volumeLifecycleModes";
    immutable::field(&spec[field], &old[field], &modes, errors);
}

fn tokens(spec: &Value, path: &Path, errors: &mut Errors) {
    let mut audiences = BTreeSet::new();
    for (at, token) in items(&spec["tokenRequests"]).iter().enumerate() {
        let path = path.index(at);
        let audience = string(&token["audience"]);
        if !audiences.insert(audience) {
            errors.push(FieldError::duplicate(&path.child("audience"), audience));
            continue;
        }
        let Some(seconds) = token["expirationSeconds"].as_i64() else {
            continue;
        };
        let path = path.child("expirationSeconds");
        if seconds < TOKEN_LIFE.0 {
            let text = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(&path, seconds, text));
        }
        if seconds > TOKEN_LIFE.1 {
            let text = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid(&path, seconds, text));
        }
    }
}

// === volumes and claims ===

/// Checks a PersistentVolume.
pub(super) fn volume(volume: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&volume["spec"], Path::new("spec"));
    access_modes(spec, "", &path, errors);
    capacity(&spec["capacity"], &path.child("capacity"), errors);
    let policy = &spec["persistentVolumeReclaimPolicy"];
    let at = path.child("persistentVolumeReclaimPolicy");
    check::allowed(policy, &at, RECLAIM_POLICIES, errors);
    let affinity = &spec["nodeAffinity"];
    if affinity.is_object() {
        let path = path.child("nodeAffinity").child("required");
        if affinity["required"].is_null() {
            let text = "must specify required node constraints";
            errors.push(FieldError::required(&path, text));
        } else {
            placement_rules::node_selector(&affinity["required"], &path, errors);
        }
    }
    let of = "core.v1.PersistentVolumeSpec";
    if !volume_rules::source(spec, of, VOLUME_SOURCE, &path, errors) {
        errors.push(FieldError::required(&path, "must specify a volume type"));
    }
    if !spec["local"].is_null() && affinity.is_null() {
        let text = "Local volume requires node affinity";
        errors.push(FieldError::required(&path.child("nodeAffinity"), text));
    }
    classes(spec, &path, errors);
    let Some(old) = old else { return };
    let old = &old["spec"];
    let of = Data::get().named(of);
    let sources = of.into_iter().flat_map(|of| &of.fields);
    let mut sources = sources.filter(|field| field.embedded_in == Some(VOLUME_SOURCE));
    let is_changed = |name: &str| {
        let mut source = spec[name].clone();
        // It may be set, but not changed.
        let late = "controllerExpandSecretRef";
        if name == "csi" && old[name][late].is_null() {
            source.as_object_mut().map(|source| source.remove(late));
        }
        !immutable::is_same(&source, &old[name])
    };
    if sources.any(|field| is_changed(field.name)) {
        errors.push(FieldError::forbidden(
            &path.child("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation",
        ));
    }
    // kube-apiserver names these fields without `spec`.
    let field = "volumeMode";
    immutable::field(&spec[field], &old[field], &Path::new(field), errors);
    let was = &old["nodeAffinity"];
    if !was.is_null() && affinity != was {
        errors.push(FieldError::invalid(
            &Path::new("nodeAffinity"),
            affinity.clone(),
            "field is immutable, except for updating from beta label to GA",
        ));
    }
}

fn access_modes(spec: &Value, why: &str, path: &Path, errors: &mut Errors) {
    let (modes, path) = (items(&spec["accessModes"]), path.child("accessModes"));
    if modes.is_empty() {
        errors.push(FieldError::required(&path, why));
    }
    for mode in modes {
        check::supported(mode, &path, ACCESS_MODES, errors);
    }
    let known = modes.iter().map(string);
    let others = known.filter(|mode| ACCESS_MODES.contains(mode) && *mode != ONE_POD);
    if modes.iter().any(|mode| mode == ONE_POD) && others.count() > 0 {
        let text = "may not use ReadWriteOncePod with other access modes";
        errors.push(FieldError::forbidden(&path, text));
    }
}

fn capacity(capacity: &Value, path: &Path, errors: &mut Errors) {
    let amounts = capacity.as_object().into_iter().flatten();
    let count = amounts.clone().count();
    if count == 0 {
        errors.push(FieldError::required(path, ""));
    }
    if count > 1 || capacity.get("storage").is_none() {
        errors.push(FieldError::not_supported(
            path,
            capacity.clone(),
            &["storage"],
        ));
    }
    for (name, amount) in amounts {
        check::positive_quantity(amount, POSITIVE, &path.key(name), errors);
    }
}

/// The classes and the mode of a volume or claim.
fn classes(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in ["storageClassName", "volumeAttributesClassName"] {
        check::optional(
            &spec[field],
            names::dns_subdomain,
            &path.child(field),
            errors,
        );
    }
    let mode = &spec["volumeMode"];
    check::allowed(mode, &path.child("volumeMode"), VOLUME_MODES, errors);
}

/// Checks the spec of a claim, alone or in a template.
pub(super) fn claim_spec(spec: &Value, path: &Path, errors: &mut Errors) {
    access_modes(spec, "at least 1 access mode is required", path, errors);
    selectors::validate(&spec["selector"], &path.child("selector"), errors);
    let at = path.child("resources").key("storage");
    match spec["resources"]["requests"].get("storage") {
        None => errors.push(FieldError::required(&at, "")),
        Some(amount) => check::positive_quantity(amount, POSITIVE, &at, errors),
    }
    classes(spec, path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        data_source(&spec[field], &path.child(field), errors);
    }
}

fn data_source(source: &Value, path: &Path, errors: &mut Errors) {
    if source.is_null() {
        return;
    }
    for field in ["name", "kind"] {
        check::required(&source[field], "", &path.child(field), errors);
    }
    let (group, kind) = (string(&source["apiGroup"]), string(&source["kind"]));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(FieldError::invalid(path, kind, text));
    }
    let group = &source["apiGroup"];
    check::optional(group, names::dns_subdomain, &path.child("apiGroup"), errors);
    let namespace = &source["namespace"];
    check::optional(
        namespace,
        names::dns_label,
        &path.child("namespace"),
        errors,
    );
}

/// Checks a PersistentVolumeClaim.
pub(super) fn claim(claim: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (&claim["spec"], Path::new("spec"));
    claim_spec(spec, &path, errors);
    let Some(old) = old else { return };
    let was = &old["spec"];
    let mut kept = spec.clone();
    if string(&was["volumeName"]).is_empty() {
        immutable::restore(&mut kept, was, "volumeName");
    }
    if was["storageClassName"].is_null() {
        immutable::restore(&mut kept, was, "storageClassName");
    }
    if claim["status"]["phase"] == "Bound" {
        immutable::restore(&mut kept, was, "volumeAttributesClassName");
        let requests = kept.pointer_mut("/resources/requests");
        if let Some(requests) = requests.filter(|requests| requests.is_object()) {
            immutable::restore(requests, &was["resources"]["requests"], "storage");
        }
    }
    if !immutable::is_same(&kept, was) {
        errors.push(FieldError::forbidden(
            &path,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    let size = |of: &Value| {
        of["resources"]["requests"]["storage"]
            .as_str()
            .map_or_else(|| "0".to_owned(), str::to_owned)
    };
    let reached = old["status"]["capacity"]["storage"].as_str().unwrap_or("0");
    if check::is_more(&size(was), &size(spec)) && !check::is_more(&size(spec), reached) {
        errors.push(FieldError::forbidden(
            &path.child("resources").child("requests").child("storage"),
            "field can not be less than status.capacity",
        ));
    }
    let field = "volumeMode";
    immutable::field(&spec[field], &was[field], &Path::new(field), errors);
}

// === StorageClasses ===

/// Checks a StorageClass.
pub(super) fn class(class: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("provisioner");
    let provisioner = string(&class["provisioner"]).to_lowercase();
    check::name(&provisioner.into(), names::qualified_name, &path, errors);
    let policy = string(&class["reclaimPolicy"]);
    if !policy.is_empty() {
        let path = Path::new("reclaimPolicy");
        check::supported(&class["reclaimPolicy"], &path, CLASS_POLICIES, errors);
    }
    let path = Path::new("volumeBindingMode");
    check::supported(&class["volumeBindingMode"], &path, BINDING_MODES, errors);
    topologies(items(&class["allowedTopologies"]), errors);
    let Some(old) = old else { return };
    for field in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        immutable::field(&class[field], &old[field], &Path::new(field), errors);
    }
}

fn topologies(terms: &[Value], errors: &mut Errors) {
    let mut known: BTreeSet<BTreeMap<&str, BTreeSet<&str>>> = BTreeSet::new();
    for (at, term) in terms.iter().enumerate() {
        let path = Path::new("allowedTopologies").index(at);
        let path = path.child("matchLabelExpressions");
        let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (at, one) in items(&term["matchLabelExpressions"]).iter().enumerate() {
            let path = path.index(at);
            let of_values = path.child("values");
            let mut values = BTreeSet::new();
            if items(&one["values"]).is_empty() {
                errors.push(FieldError::required(&of_values, ""));
            }
            for (at, value) in items(&one["values"]).iter().enumerate() {
                if !values.insert(string(value)) {
                    errors.push(FieldError::duplicate(&of_values.index(at), string(value)));
                }
            }
            let (key, of_key) = (string(&one["key"]), path.child("key"));
            check::refuse(key, names::qualified_name, &of_key, errors);
            if keys.insert(key, values).is_some() {
                errors.push(FieldError::duplicate(&of_key, key));
            }
        }
        // A real server counts a term without expressions as one that occurs before.
        if keys.is_empty() || !known.insert(keys) {
            errors.push(FieldError::duplicate(&path, ""));
        }
    }
}
