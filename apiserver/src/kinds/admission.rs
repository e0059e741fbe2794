//! Webhook configurations, admission policies and their bindings.

use k8s_openapi::api::admissionregistration::v1;
use serde_json::{Map, Value, json};

use super::entry::{Entry, Texts, texts};
use super::pods::{put, set};
use super::strategy::{ALL_BUT_STATUS, Context, Paths, Strategy};
use super::{binding_rules, policy_rules, webhook_rules};
use crate::field::Errors;
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{aged, integer, length, or_unset, plain, string, text};

k8s_openapi::k8s_if_ge_1_36! {
    const MUTATING_TEXTS: Texts = texts::<v1::MutatingAdmissionPolicy>;
    const BINDING_TEXTS: Texts = texts::<v1::MutatingAdmissionPolicyBinding>;
}
k8s_openapi::k8s_if_le_1_35! {
    const MUTATING_TEXTS: Texts = super::entry::no_texts;
    const BINDING_TEXTS: Texts = super::entry::no_texts;
}

const GROUP: &str = "admissionregistration.k8s.io";

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[
    Entry::new(
        GROUP,
        "mutatingadmissionpolicies",
        &Policies::Mutating,
        MUTATING_TEXTS,
    ),
    Entry::new(
        GROUP,
        "mutatingadmissionpolicybindings",
        &PolicyBindings,
        BINDING_TEXTS,
    ),
    Entry::of::<v1::MutatingWebhookConfiguration>(
        GROUP,
        "mutatingwebhookconfigurations",
        &Webhooks,
    ),
    Entry::of::<v1::ValidatingAdmissionPolicy>(
        GROUP,
        "validatingadmissionpolicies",
        &Policies::Validating,
    ),
    Entry::of::<v1::ValidatingAdmissionPolicyBinding>(
        GROUP,
        "validatingadmissionpolicybindings",
        &PolicyBindings,
    ),
    Entry::of::<v1::ValidatingWebhookConfiguration>(
        GROUP,
        "validatingwebhookconfigurations",
        &Webhooks,
    ),
];

/// Mutating and validating webhook configurations.
#[derive(Debug)]
pub(super) struct Webhooks;

/// Admission policies.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Policies {
    Validating,
    Mutating,
}

/// Bindings of admission policies.
#[derive(Debug)]
pub(super) struct PolicyBindings;

// === impl Webhooks ===

impl Strategy for Webhooks {
    fn describe(&self, info: &mut ResourceInfo) {
        info.unconditional_update = false;
        info.generation = Generation::OutsideMetadata;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            integer("Webhooks", |value, _| length(&value["webhooks"])),
            aged(),
        ]
    }

    fn default(&self, info: &ResourceInfo, object: &mut Value) {
        let webhooks = object.get_mut("webhooks").and_then(Value::as_array_mut);
        for webhook in webhooks.into_iter().flatten().map(meta::object_mut) {
            set(webhook, "failurePolicy", "Fail");
            match_resources(webhook, &["rules"]);
            set(webhook, "timeoutSeconds", 10);
            if info.kind == "MutatingWebhookConfiguration" {
                set(webhook, "reinvocationPolicy", "Never");
            }
            let service = webhook
                .get_mut("clientConfig")
                .and_then(|config| config.get_mut("service"))
                .and_then(Value::as_object_mut);
            if let Some(service) = service {
                put(service, "port", 443);
            }
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, _: Option<&Value>, errors: &mut Errors) {
        webhook_rules::validate(object, errors);
    }
}

/// Sets the defaults of what is matched.
fn match_resources(of: &mut Map<String, Value>, rules: &[&str]) {
    put(of, "matchPolicy", "Equivalent");
    put(of, "namespaceSelector", json!({}));
    put(of, "objectSelector", json!({}));
    for list in rules {
        let rules = of.get_mut(*list).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten().map(meta::object_mut) {
            put(rule, "scope", "*");
        }
    }
}

// === impl Policies ===

impl Strategy for Policies {
    fn describe(&self, info: &mut ResourceInfo) {
        info.unconditional_update = false;
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        let param_kind = text("ParamKind", |value, _| {
            let kind = &value["spec"]["paramKind"];
            if kind.is_null() {
                return "<unset>".into();
            }
            format!("{}/{}", string(&kind["apiVersion"]), string(&kind["kind"])).into()
        });
        let rules = match self {
            Self::Validating => integer("Validations", |value, _| {
                length(&value["spec"]["validations"])
            }),
            Self::Mutating => integer("Mutations", |value, _| length(&value["spec"]["mutations"])),
        };
        vec![rules, param_kind, aged()]
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        let spec = meta::map_at(meta::object_mut(object), "spec");
        put(spec, "failurePolicy", "Fail");
        if let Some(matched) = spec
            .get_mut("matchConstraints")
            .and_then(Value::as_object_mut)
        {
            match_resources(matched, &["resourceRules", "excludeResourceRules"]);
        }
    }

    fn validate(&self, _: &Context<'_>, object: &Value, _: Option<&Value>, errors: &mut Errors) {
        match self {
            Self::Validating => policy_rules::validating(object, errors),
            Self::Mutating => policy_rules::mutating(object, errors),
        }
    }

    fn reset_fields(&self, subresource: &str) -> Option<Paths> {
        (subresource == "status").then_some(ALL_BUT_STATUS)
    }
}

// === impl PolicyBindings ===

impl Strategy for PolicyBindings {
    fn describe(&self, info: &mut ResourceInfo) {
        info.unconditional_update = false;
        info.generation = Generation::Spec;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("PolicyName", |value, _| plain(&value["spec"]["policyName"])),
            text("ParamRef", |value, _| {
                let parameters = &value["spec"]["paramRef"];
                let namespace = parameters["namespace"].as_str().unwrap_or("*");
                match string(&parameters["name"]) {
                    "" => or_unset(&Value::Null),
                    name => format!("{namespace}/{name}").into(),
                }
            }),
            aged(),
        ]
    }

    fn default(&self, _: &ResourceInfo, object: &mut Value) {
        if let Some(matched) = object.pointer_mut("/spec/matchResources")
            && matched.is_object()
        {
            match_resources(
                meta::object_mut(matched),
                &["resourceRules", "excludeResourceRules"],
            );
        }
    }

    fn validate(
        &self,
        context: &Context<'_>,
        object: &Value,
        _: Option<&Value>,
        errors: &mut Errors,
    ) {
        if context.info.kind == "ValidatingAdmissionPolicyBinding" {
            binding_rules::validating(object, errors);
        } else {
            binding_rules::mutating(object, errors);
        }
    }
}
