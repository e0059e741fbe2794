//! Webhook configurations, admission policies and their bindings.

use serde_json::{Map, Value, json};

use super::pods::put;
use super::strategy::{Context, Strategy};
use super::{binding_rules, policy_rules, webhook_rules};
use crate::field::Errors;
use crate::meta;
use crate::resource::{Column, Generation, ResourceInfo};
use crate::table::cells::{aged, integer, length, or_unset, plain, string, text};

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
            put(webhook, "failurePolicy", "Fail");
            match_resources(webhook, &["rules"]);
            put(webhook, "timeoutSeconds", 10);
            if info.kind == "MutatingWebhookConfiguration" {
                put(webhook, "reinvocationPolicy", "Never");
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
