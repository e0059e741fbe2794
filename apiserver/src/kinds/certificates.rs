//! CertificateSigningRequests: their requestor, and approval.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1;
use serde_json::{Map, Value, json};

use super::check;
use super::entry::Entry;
use super::strategy::{Context, Paths, Strategy};
use crate::field::{Errors, FieldError, Path, quote};
use crate::meta;
use crate::names;
use crate::resource::{Column, ResourceInfo, SelectableField};
use crate::table::cells::{NONE, aged, items, or_none, plain, string, text};
use crate::table::duration;

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[Entry::of::<v1::CertificateSigningRequest>(
    "certificates.k8s.io",
    "certificatesigningrequests",
    &SigningRequests,
)];

/// The conditions that only the approval subresource sets.
const APPROVAL: &[&str] = &["Approved", "Denied"];

/// The conditions that stay.
const KEPT: &[&str] = &["Approved", "Denied", "Failed"];

/// The head of an encoded request.
const PEM: &str = "-----BEGIN CERTIFICATE REQUEST-----";

/// The usages that a request may have.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// CertificateSigningRequests.
#[derive(Debug)]
pub(super) struct SigningRequests;

// === impl SigningRequests ===

impl Strategy for SigningRequests {
    fn describe(&self, info: &mut ResourceInfo) {
        info.selectable_fields = vec![SelectableField::at("spec.signerName")];
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            aged(),
            text("SignerName", |value, _| {
                or_none(&value["spec"]["signerName"])
            }),
            text("Requestor", |value, _| plain(&value["spec"]["username"])),
            text("RequestedDuration", |value, _| {
                let seconds = value["spec"]["expirationSeconds"].as_i64();
                seconds.map_or_else(
                    || NONE.into(),
                    |seconds| duration::human(jiff::SignedDuration::from_secs(seconds)).into(),
                )
            }),
            text("Condition", |value, _| {
                let conditions = items(&value["status"]["conditions"]);
                let has = |kind: &str| conditions.iter().any(|one| one["type"] == kind);
                let mut shown = if has("Denied") {
                    "Denied".to_owned()
                } else if has("Approved") {
                    "Approved".to_owned()
                } else {
                    "Pending".to_owned()
                };
                if has("Failed") {
                    shown.push_str(",Failed");
                }
                if !string(&value["status"]["certificate"]).is_empty() {
                    shown.push_str(",Issued");
                }
                shown.into()
            }),
        ]
    }

    fn name_problems(&self, name: &str) -> Vec<String> {
        names::path_segment(name)
    }

    fn prepare_create(&self, context: &Context<'_>, request: &mut Value) {
        let spec = meta::map_at(meta::object_mut(request), "spec");
        let user = context.user;
        for field in ["username", "uid", "groups", "extra"] {
            spec.remove(field);
        }
        spec.insert("username".to_owned(), user.name.as_str().into());
        spec.insert("uid".to_owned(), user.uid.as_str().into());
        spec.insert("groups".to_owned(), json!(user.groups));
        if !user.extra.is_empty() {
            spec.insert("extra".to_owned(), json!(user.extra));
        }
    }

    fn prepare_update(&self, context: &Context<'_>, old: &Value, new: &mut Value) {
        meta::copy_field(old, new, "spec");
        let conditions = new["status"]["conditions"].clone();
        match context.subresource {
            "status" => {
                let kept = items(&old["status"]["conditions"]).iter();
                let kept = kept.filter(|one| is_approval(one)).cloned();
                let added = items(&conditions).iter();
                let added = added.filter(|one| !is_approval(one)).cloned();
                let all: Vec<Value> = kept.chain(added).collect();
                set_conditions(new, timed(all, old, context));
            }
            "approval" => {
                meta::copy_field(old, new, "status");
                set_conditions(new, timed(items(&conditions).to_vec(), old, context));
            }
            _ => {}
        }
    }

    fn validate_status(&self, request: &Value, old: &Value, errors: &mut Errors) {
        conditions(request, old, errors);
    }

    fn default(&self, _: &ResourceInfo, request: &mut Value) {
        let conditions = request.pointer_mut("/status/conditions");
        let conditions = conditions.and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            let condition = meta::object_mut(condition);
            condition.entry("status").or_insert_with(|| "True".into());
        }
    }

    fn validate(&self, _: &Context<'_>, request: &Value, old: Option<&Value>, errors: &mut Errors) {
        if old.is_none() {
            of_creation(&request["spec"], errors);
        }
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        Some(match subresource {
            "" => &[&["spec"], &["status"]],
            "status" => &[&["spec"], &["status", "conditions"]],
            "approval" => &[&["spec"], &["status", "certificate"]],
            _ => return None,
        })
    }
}

/// Checks what a client sends. (kubernetes: `validateCertificateSigningRequest`.)
fn of_creation(spec: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    let sent = string(&spec["request"]);
    let decoded = STANDARD.decode(sent).unwrap_or_default();
    if !String::from_utf8_lossy(&decoded).contains(PEM) {
        let shown = if sent.is_empty() {
            Value::Null
        } else {
            sent.into()
        };
        let text = "PEM block type must be CERTIFICATE REQUEST";
        errors.push(FieldError::invalid(&path.child("request"), shown, text));
    }
    let usages = items(&spec["usages"]);
    let at_usages = path.child("usages");
    if usages.is_empty() {
        errors.push(FieldError::required(&at_usages, ""));
    }
    for (at, usage) in usages.iter().enumerate() {
        let path = at_usages.index(at);
        check::supported(usage, &path, USAGES, errors);
        if usages[..at].contains(usage) {
            errors.push(FieldError::duplicate(&path, string(usage)));
        }
    }
    signer(
        string(&spec["signerName"]),
        &path.child("signerName"),
        errors,
    );
    let seconds = spec["expirationSeconds"].as_i64();
    if let Some(seconds) = seconds.filter(|seconds| *seconds < 600) {
        let text = "may not specify a duration less than 600 seconds (10 minutes)";
        let path = path.child("expirationSeconds");
        errors.push(FieldError::invalid(&path, seconds, text));
    }
}

/// Checks the name of a signer. (kubernetes: `ValidateSignerName`.)
fn signer(name: &str, path: &Path, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let text =
            "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid(path, name, text));
        return;
    };
    for label in domain.split('.') {
        for problem in names::dns_label(label) {
            let text = format!("validating label {}: {problem}", quote(label));
            errors.push(FieldError::invalid(path, domain, text));
        }
    }
    if !domain.contains('.') {
        let text = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, domain, text));
    }
    for label in rest.split('.') {
        for problem in names::dns_subdomain(label) {
            let text = format!("validating label {}: {problem}", quote(label));
            errors.push(FieldError::invalid(path, rest, text));
        }
    }
}

/// Checks the conditions of a request. (kubernetes: `validateCertificateSigningRequestUpdate`.)
fn conditions(request: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::new("status").child("conditions");
    let count = |of: &Value, kind: &str| {
        let all = items(&of["status"]["conditions"]).iter();
        all.filter(|one| one["type"] == kind).count()
    };
    let has_both = |of: &Value| APPROVAL.iter().all(|kind| count(of, kind) > 0);
    let becomes_both = has_both(request) && !has_both(old);
    for (at, one) in items(&request["status"]["conditions"]).iter().enumerate() {
        let (kind, path) = (string(&one["type"]), path.index(at));
        if becomes_both && is_approval(one) {
            let text = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(&path.child("type"), kind, text));
        }
        check::required(&one["type"], "", &path.child("type"), errors);
        if KEPT.contains(&kind) && one["status"] != "True" {
            check::one_of(&one["status"], &path.child("status"), &["True"], errors);
        }
    }
    for kind in KEPT {
        if count(request, kind) < count(old, kind) {
            let text = format!("updates may not remove a condition of type {}", quote(kind));
            errors.push(FieldError::forbidden(&path, text));
        }
    }
    let certificate = |of: &Value| string(&of["status"]["certificate"]).to_owned();
    if !certificate(old).is_empty() && certificate(old) != certificate(request) {
        let text = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden(
            &Path::new("status").child("certificate"),
            text,
        ));
    }
}

fn is_approval(condition: &Value) -> bool {
    APPROVAL.iter().any(|kind| condition["type"] == *kind)
}

fn set_conditions(request: &mut Value, conditions: Vec<Value>) {
    let status = meta::map_at(meta::object_mut(request), "status");
    status.insert("conditions".to_owned(), conditions.into());
}

/// The conditions with the times of their changes.
fn timed(mut conditions: Vec<Value>, old: &Value, context: &Context<'_>) -> Vec<Value> {
    let now = meta::time(context.now);
    for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
        let former = items(&old["status"]["conditions"]).iter();
        let former = former
            .filter(|one| Some(&one["type"]) == condition.get("type"))
            .find(|one| Some(&one["status"]) == condition.get("status"));
        let kept = former.map(|one| one["lastTransitionTime"].clone());
        set(condition, "lastUpdateTime", now.as_str().into());
        set(
            condition,
            "lastTransitionTime",
            kept.unwrap_or_else(|| now.as_str().into()),
        );
    }
    conditions
}

fn set(condition: &mut Map<String, Value>, field: &str, time: Value) {
    if condition.get(field).is_none_or(Value::is_null) {
        condition.insert(field.to_owned(), time);
    }
}
