//! The checks of FlowSchemas and PriorityLevelConfigurations. (kubernetes: `pkg/apis/flowcontrol/validation`.)

use serde_json::Value;

use super::check;
use crate::field::{Errors, FieldError, Path};
use crate::meta;
use crate::names;
use crate::table::cells::{items, string};
use crate::table::count;

const METHODS: &[&str] = &["ByNamespace", "ByUser"];
const SUBJECTS: &[(&str, &str)] = &[
    ("Group", "group"),
    ("ServiceAccount", "serviceAccount"),
    ("User", "user"),
];
const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];
/// The bits of the hash of a request, and the most queues of a level.
const HASH_BITS: f64 = 60.0;
const MOST_QUEUES: i64 = 10_000_000;
/// The highest precedence.
const HIGHEST: i64 = 10_000;

/// Checks a FlowSchema.
pub(super) fn validate(schema: &Value, errors: &mut Errors) {
    let (spec, path) = (&schema["spec"], Path::new("spec"));
    precedence(schema, &path.child("matchingPrecedence"), errors);
    let method = &spec["distinguisherMethod"];
    if !method.is_null() && !METHODS.contains(&string(&method["type"])) {
        errors.push(FieldError::not_supported(
            &path.child("distinguisherMethod").child("type"),
            method.clone(),
            METHODS,
        ));
    }
    let level = string(&spec["priorityLevelConfiguration"]["name"]);
    let at = path.child("priorityLevelConfiguration").child("name");
    if level.is_empty() {
        errors.push(FieldError::required(&at, "must reference a priority level"));
    } else {
        for problem in names::dns_subdomain(level) {
            errors.push(FieldError::invalid(&at, level, problem));
        }
    }
    for (at, one) in items(&spec["rules"]).iter().enumerate() {
        rule(one, &path.child("rules").index(at), errors);
    }
}

fn precedence(schema: &Value, path: &Path, errors: &mut Errors) {
    let precedence = count(&schema["spec"]["matchingPrecedence"]);
    let mut refuse = |text: String| errors.push(FieldError::invalid(path, precedence, text));
    if precedence <= 0 {
        refuse("must be a positive value".to_owned());
    }
    if precedence > HIGHEST {
        refuse(format!("must not be greater than {HIGHEST}"));
    }
    if precedence == 1 && meta::text(schema, "name") != "exempt" {
        refuse("only the schema named 'exempt' may have matchingPrecedence 1".to_owned());
    }
}

fn rule(rule: &Value, path: &Path, errors: &mut Errors) {
    let subjects = items(&rule["subjects"]);
    if subjects.is_empty() {
        errors.push(FieldError::required(
            &path.child("subjects"),
            "subjects must contain at least one value",
        ));
    }
    for (at, one) in subjects.iter().enumerate() {
        subject(one, &path.child("subjects").index(at), errors);
    }
    let (of_resources, others) = (
        items(&rule["resourceRules"]),
        items(&rule["nonResourceRules"]),
    );
    if of_resources.is_empty() && others.is_empty() {
        errors.push(FieldError::required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
        ));
    }
    for (at, one) in of_resources.iter().enumerate() {
        resource_rule(one, &path.child("resourceRules").index(at), errors);
    }
    for (at, one) in others.iter().enumerate() {
        non_resource_rule(one, &path.child("nonResourceRules").index(at), errors);
    }
}

fn subject(subject: &Value, path: &Path, errors: &mut Errors) {
    let kind = string(&subject["kind"]);
    let Some((_, own)) = SUBJECTS.iter().find(|(known, _)| *known == kind) else {
        let kinds: Vec<&str> = SUBJECTS.iter().map(|(kind, _)| *kind).collect();
        errors.push(FieldError::not_supported(&path.child("kind"), kind, &kinds));
        return;
    };
    let at = path.child(own);
    let named = &subject[*own];
    if named.is_null() {
        errors.push(FieldError::required(
            &at,
            format!("{own} is required when subject kind is '{kind}'"),
        ));
    } else {
        let name = string(&named["name"]);
        let of_name = at.child("name");
        if name.is_empty() {
            errors.push(FieldError::required(&of_name, ""));
        } else if kind == "ServiceAccount" && name != "*" {
            for problem in names::dns_subdomain(name) {
                errors.push(FieldError::invalid(&of_name, name, problem));
            }
        }
        if kind == "ServiceAccount" {
            account_namespace(string(&named["namespace"]), &at.child("namespace"), errors);
        }
    }
    for (other, field) in SUBJECTS {
        if *other != kind && !subject[*field].is_null() {
            errors.push(FieldError::forbidden(
                &path.child(field),
                format!("{field} is forbidden when subject kind is not '{other}'"),
            ));
        }
    }
}

fn account_namespace(namespace: &str, path: &Path, errors: &mut Errors) {
    if namespace.is_empty() {
        errors.push(FieldError::required(
            path,
            "must specify namespace for service account",
        ));
        return;
    }
    for problem in names::dns_label(namespace) {
        errors.push(FieldError::invalid(path, namespace, problem));
    }
}

/// A list that is not empty, and has `*` only alone. Returns whether its items are to be checked.
fn listed(list: &Value, path: &Path, missing: &str, others: &str, errors: &mut Errors) -> bool {
    let values = items(list);
    if values.is_empty() {
        errors.push(FieldError::required(path, missing));
        return false;
    }
    let is_any = values.iter().any(|value| value == "*");
    if is_any && values.len() > 1 {
        errors.push(FieldError::invalid(
            path,
            list.clone(),
            format!("if '*' is present, must not specify other {others}"),
        ));
    }
    !is_any
}

fn verbs(rule: &Value, path: &Path, errors: &mut Errors) {
    let path = path.child("verbs");
    let missing = "verbs must contain at least one value";
    if listed(&rule["verbs"], &path, missing, "verbs", errors)
        && !items(&rule["verbs"])
            .iter()
            .all(|verb| VERBS.contains(&string(verb)))
    {
        errors.push(FieldError::not_supported(
            &path,
            rule["verbs"].clone(),
            VERBS,
        ));
    }
}

fn resource_rule(rule: &Value, path: &Path, errors: &mut Errors) {
    verbs(rule, path, errors);
    for (field, missing, others) in [
        (
            "apiGroups",
            "resource rules must supply at least one api group",
            "api groups",
        ),
        (
            "resources",
            "resource rules must supply at least one resource",
            "resources",
        ),
    ] {
        listed(&rule[field], &path.child(field), missing, others, errors);
    }
    let path = path.child("namespaces");
    let namespaces = &rule["namespaces"];
    if items(namespaces).is_empty() && rule["clusterScope"] == true {
        return;
    }
    let missing = "resource rules that are not cluster scoped must supply at least one namespace";
    if !listed(namespaces, &path, missing, "namespaces", errors) {
        return;
    }
    for (at, namespace) in items(namespaces).iter().enumerate() {
        let namespace = string(namespace);
        for problem in names::dns_label(namespace) {
            let text =
                format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            errors.push(FieldError::invalid(&path.index(at), namespace, text));
        }
    }
}

fn non_resource_rule(rule: &Value, path: &Path, errors: &mut Errors) {
    verbs(rule, path, errors);
    let path = path.child("nonResourceURLs");
    let urls = &rule["nonResourceURLs"];
    let missing = "nonResourceURLs must contain at least one value";
    if !listed(urls, &path, missing, "non-resource URLs", errors) {
        return;
    }
    for (at, url) in items(urls).iter().enumerate() {
        let (url, path) = (string(url), path.index(at));
        let mut refuse = |text: &str| errors.push(FieldError::invalid(&path, url, text));
        if url.is_empty() {
            refuse("must not be empty");
        } else if !url.starts_with('/') {
            refuse("must start with slash");
        } else if url.contains(' ') {
            refuse("must not contain white-space");
        } else if url.contains("//") {
            refuse("must not contain double slash");
        } else if url.strip_suffix("/*").unwrap_or(url).contains('*') {
            refuse("wildcard can only do suffix matching");
        }
    }
}

// === PriorityLevelConfigurations ===

/// Checks a PriorityLevelConfiguration.
pub(super) fn level(level: &Value, errors: &mut Errors) {
    let (spec, path) = (&level["spec"], Path::new("spec"));
    let (kind, at) = (string(&spec["type"]), path.child("type"));
    if (meta::text(level, "name") == "exempt") != (kind == "Exempt") {
        let text = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.push(FieldError::invalid(&at, kind, text));
    }
    let (exempt, limited) = (&spec["exempt"], &spec["limited"]);
    match kind {
        "Exempt" => {
            if !limited.is_null() {
                let text = "must be nil if the type is not Limited";
                errors.push(FieldError::forbidden(&path.child("limited"), text));
            }
            shares(exempt, &path.child("exempt"), errors);
        }
        "Limited" => {
            if !exempt.is_null() {
                let text = "must be nil if the type is Limited";
                errors.push(FieldError::forbidden(&path.child("exempt"), text));
            }
            let path = path.child("limited");
            if limited.is_null() {
                let text = "must not be empty when type is Limited";
                errors.push(FieldError::required(&path, text));
                return;
            }
            shares(limited, &path, errors);
            response(
                &limited["limitResponse"],
                &path.child("limitResponse"),
                errors,
            );
            let borrowing = limited["borrowingLimitPercent"].as_i64();
            if let Some(percent) = borrowing.filter(|percent| *percent < 0) {
                let text = "if specified, must be a non-negative integer";
                let path = path.child("borrowingLimitPercent");
                errors.push(FieldError::invalid(&path, percent, text));
            }
        }
        _ => check::one_of(&spec["type"], &at, &["Exempt", "Limited"], errors),
    }
}

/// The shares of a level of either type.
fn shares(of: &Value, path: &Path, errors: &mut Errors) {
    let nominal = of["nominalConcurrencyShares"].as_i64();
    if let Some(shares) = nominal.filter(|shares| *shares < 0) {
        let text = "must be a non-negative integer";
        let path = path.child("nominalConcurrencyShares");
        errors.push(FieldError::invalid(&path, shares, text));
    }
    let percent = of["lendablePercent"].as_i64();
    if let Some(percent) = percent.filter(|percent| !(0..=100).contains(percent)) {
        let text = "must be between 0 and 100, inclusive";
        let path = path.child("lendablePercent");
        errors.push(FieldError::invalid(&path, percent, text));
    }
}

fn response(response: &Value, path: &Path, errors: &mut Errors) {
    let (queuing, at) = (&response["queuing"], path.child("queuing"));
    match string(&response["type"]) {
        "Reject" if !queuing.is_null() => {
            let text = "must be nil if limited.limitResponse.type is not Limited";
            errors.push(FieldError::forbidden(&at, text));
        }
        "Reject" => {}
        "Queue" if queuing.is_null() => {
            let text = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(FieldError::required(&at, text));
        }
        "Queue" => queues(queuing, &at, errors),
        _ => check::one_of(
            &response["type"],
            &path.child("type"),
            &["Queue", "Reject"],
            errors,
        ),
    }
}

fn queues(queuing: &Value, path: &Path, errors: &mut Errors) {
    let number = |field: &str| queuing[field].as_i64().unwrap_or(0);
    let mut refuse = |field: &str, text: String| {
        errors.push(FieldError::invalid(&path.child(field), number(field), text));
    };
    let (queues, hand) = (number("queues"), number("handSize"));
    for field in ["queueLengthLimit", "queues", "handSize"] {
        if number(field) <= 0 {
            refuse(field, "must be positive".to_owned());
        }
    }
    if queues > MOST_QUEUES {
        refuse("queues", format!("must not be greater than {MOST_QUEUES}"));
    }
    if hand <= 0 {
        return;
    }
    if hand > queues {
        let text = format!("should not be greater than queues ({queues})");
        refuse("handSize", text);
    } else if entropy(queues, hand) > HASH_BITS {
        let text = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS:.0}"
        );
        refuse("handSize", text);
    }
}

/// The bits of a hash that deal a hand of queues. (apiserver: `RequiredEntropyBits`.)
#[expect(clippy::cast_precision_loss, reason = "an estimate of small numbers")]
fn entropy(queues: i64, hand: i64) -> f64 {
    ((queues as f64).log2() * hand as f64).ceil()
}
