//! The checks of webhook configurations.

use serde_json::Value;

use super::match_rules::{conditions, rule};
use super::selectors;
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

/// The versions of reviews that a server can send.
const REVIEWS: &[&str] = &["v1", "v1beta1"];

/// Checks a configuration.
pub(super) fn validate(object: &Value, errors: &mut Errors) {
    let mut known: Vec<&str> = Vec::new();
    for (at, hook) in items(&object["webhooks"]).iter().enumerate() {
        let path = Path::new("webhooks").index(at);
        webhook(hook, &path, errors);
        reviews(
            &hook["admissionReviewVersions"],
            &path.child("admissionReviewVersions"),
            &format!("must specify one of {}", REVIEWS.join(", ")),
            errors,
        );
        let name = string(&hook["name"]);
        if known.contains(&name) && !name.is_empty() {
            errors.push(FieldError::duplicate(&path.child("name"), name));
        }
        known.push(name);
    }
}

fn webhook(hook: &Value, path: &Path, errors: &mut Errors) {
    fully_qualified(string(&hook["name"]), &path.child("name"), errors);
    for (at, one) in items(&hook["rules"]).iter().enumerate() {
        rule(one, &path.child("rules").index(at), errors);
    }
    for (field, allowed) in [
        ("failurePolicy", &["Fail", "Ignore"][..]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("reinvocationPolicy", &["IfNeeded", "Never"]),
        ("sideEffects", &["None", "NoneOnDryRun"]),
    ] {
        let value = &hook[field];
        if !value.is_null() && !allowed.contains(&string(value)) {
            errors.push(FieldError::not_supported(
                &path.child(field),
                value.clone(),
                allowed,
            ));
        }
    }
    if hook["sideEffects"].is_null() {
        errors.push(FieldError::required(
            &path.child("sideEffects"),
            "must specify one of None, NoneOnDryRun",
        ));
    }
    let seconds = hook["timeoutSeconds"].as_i64();
    if let Some(seconds) = seconds.filter(|seconds| !(1..=30).contains(seconds)) {
        errors.push(FieldError::invalid(
            &path.child("timeoutSeconds"),
            seconds,
            "the timeout value must be between 1 and 30 seconds",
        ));
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selectors::validate(&hook[field], &path.child(field), errors);
    }
    client_config(&hook["clientConfig"], &path.child("clientConfig"), errors);
    conditions(
        &hook["matchConditions"],
        &path.child("matchConditions"),
        false,
        errors,
    );
}

/// Checks a domain name of at least three parts.
fn fully_qualified(name: &str, path: &Path, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let problems = names::dns_subdomain(name);
    if !problems.is_empty() {
        errors.push(FieldError::invalid(path, name, problems.join(",")));
    } else if name.split('.').count() < 3 {
        errors.push(FieldError::invalid(
            path,
            name,
            "should be a domain with at least three segments separated by dots",
        ));
    }
}

/// Checks the versions of the reviews that a webhook reads.
pub(crate) fn reviews(list: &Value, path: &Path, missing: &str, errors: &mut Errors) {
    let versions = items(list);
    if versions.is_empty() {
        errors.push(FieldError::required(path, missing));
        return;
    }
    for (at, version) in versions.iter().enumerate() {
        let text = string(version);
        if versions[..at].contains(version) {
            errors.push(FieldError::invalid(
                &path.index(at),
                text,
                "duplicate version",
            ));
            continue;
        }
        for problem in names::dns_1035_label(text) {
            errors.push(FieldError::invalid(&path.index(at), text, problem));
        }
    }
    if !versions
        .iter()
        .any(|version| REVIEWS.contains(&string(version)))
    {
        errors.push(FieldError::invalid(
            path,
            list.clone(),
            format!("must include at least one of {}", REVIEWS.join(", ")),
        ));
    }
}

/// Checks where a webhook listens.
pub(crate) fn client_config(config: &Value, path: &Path, errors: &mut Errors) {
    let (url, service) = (&config["url"], &config["service"]);
    if url.is_null() == service.is_null() {
        errors.push(FieldError::required(
            path,
            "exactly one of url or service is required",
        ));
        return;
    }
    if service.is_null() {
        https_url(string(url), &path.child("url"), errors);
        return;
    }
    let path = path.child("service");
    // kube-apiserver exchanges the two.
    for (missing, named) in [("namespace", "name"), ("name", "namespace")] {
        if string(&service[missing]).is_empty() {
            errors.push(FieldError::required(&path.child(named), ""));
        }
    }
    let port = service["port"].as_i64().unwrap_or(0);
    if !(1..=65535).contains(&port) {
        errors.push(FieldError::invalid(
            &path.child("port"),
            port,
            "port is not valid: must be between 1 and 65535, inclusive",
        ));
    }
    url_path(string(&service["path"]), &path.child("path"), errors);
}

/// Checks the URL of a webhook. (apiserver: `ValidateWebhookURL`.)
fn https_url(text: &str, path: &Path, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut refuse =
        |part: &str, why: String| errors.push(FieldError::invalid(path, part.to_owned(), why));
    if !scheme.eq_ignore_ascii_case("https") {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        refuse(&scheme.to_ascii_lowercase(), why);
    }
    if host.is_empty() {
        refuse(host, format!("host must be specified{FORM}"));
    }
    for (part, what) in [
        (user, "user information is"),
        (fragment, "fragments are"),
        (query, "query parameters are"),
    ] {
        if !part.is_empty() {
            refuse(part, format!("{what} not permitted in the URL"));
        }
    }
}

fn url_path(text: &str, path: &Path, errors: &mut Errors) {
    if text.is_empty() || text == "/" {
        return;
    }
    let mut refuse = |problem: String| errors.push(FieldError::invalid(path, text, problem));
    if !text.starts_with('/') {
        refuse("must start with a '/'".to_owned());
    }
    // The first character is not looked at, whatever it is.
    let rest = text.get(1..).unwrap_or_default();
    for (at, segment) in rest
        .strip_suffix('/')
        .unwrap_or(rest)
        .split('/')
        .enumerate()
    {
        if segment.is_empty() {
            refuse(format!("segment[{at}] may not be empty"));
            continue;
        }
        for problem in names::dns_subdomain(segment) {
            refuse(format!("segment[{at}]: {problem}"));
        }
    }
}
