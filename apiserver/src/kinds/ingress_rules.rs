//! Validation of Ingresses.
//!
//! (kubernetes: `ValidateIngressSpec` in `pkg/apis/networking/validation/validation.go`.)

use serde_json::Value;

use super::check::{self, port_number};
use crate::field::{Errors, FieldError, Path};
use crate::names;

/// Sequences that a path of type Exact or Prefix may neither contain nor end with.
const NOT_IN_PATHS: &[&str] = &["//", "/./", "/../", "%2f", "%2F"];
const NOT_AT_THE_END: &[&str] = &["/..", "/."];

/// Checks an Ingress.
pub(crate) fn validate(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let path = Path::new("spec");
    let rules = spec["rules"].as_array();
    if rules.is_none_or(Vec::is_empty) && spec["defaultBackend"].is_null() {
        errors.push(FieldError::invalid(
            &path,
            Value::Null,
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    if !spec["defaultBackend"].is_null() {
        backend(
            &spec["defaultBackend"],
            &path.child("defaultBackend"),
            errors,
        );
    }
    for (at, rule) in rules.into_iter().flatten().enumerate() {
        let path = path.child("rules").index(at);
        host(&rule["host"], &path.child("host"), errors);
        let http = &rule["http"];
        if http.is_null() {
            continue;
        }
        let path = path.child("http").child("paths");
        let paths = http["paths"].as_array();
        if paths.is_none_or(Vec::is_empty) {
            errors.push(FieldError::required(&path, ""));
        }
        for (at, entry) in paths.into_iter().flatten().enumerate() {
            http_path(entry, &path.index(at), errors);
        }
    }
    for (at, tls) in spec["tls"].as_array().into_iter().flatten().enumerate() {
        let path = path.child("tls").index(at);
        let secret = &tls["secretName"];
        check::optional(
            secret,
            names::dns_subdomain,
            &path.child("secretName"),
            errors,
        );
        let path = path.child("hosts");
        for (at, name) in tls["hosts"].as_array().into_iter().flatten().enumerate() {
            // An address is valid here, as it has the form of a name; an empty name is not.
            host_name(name.as_str().unwrap_or_default(), &path.index(at), errors);
        }
    }
    let class = spec["ingressClassName"].as_str().unwrap_or_default();
    if !class.is_empty() {
        for problem in names::dns_subdomain(class) {
            errors.push(FieldError::invalid(
                &path.child("ingressClassName"),
                class,
                problem,
            ));
        }
    }
}

fn host(host: &Value, path: &Path, errors: &mut Errors) {
    let host = host.as_str().unwrap_or_default();
    if host.is_empty() {
        return;
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        errors.push(FieldError::invalid(
            path,
            host,
            "must be a DNS name, not an IP address",
        ));
    }
    host_name(host, path, errors);
}

fn host_name(host: &str, path: &Path, errors: &mut Errors) {
    let problems = if host.contains('*') {
        names::wildcard_dns_subdomain(host)
    } else {
        names::dns_subdomain(host)
    };
    for problem in problems {
        errors.push(FieldError::invalid(path, host, problem));
    }
}

fn http_path(entry: &Value, path: &Path, errors: &mut Errors) {
    let text = entry["path"].as_str().unwrap_or_default();
    let at = path.child("path");
    let kind = entry["pathType"].as_str().unwrap_or_default();
    match kind {
        "" => {
            errors.push(FieldError::required(
                &path.child("pathType"),
                "pathType must be specified",
            ));
            return;
        }
        "Exact" | "Prefix" | "ImplementationSpecific" => {
            let is_left_out = text.is_empty() && kind == "ImplementationSpecific";
            if !is_left_out && !text.starts_with('/') {
                errors.push(FieldError::invalid(&at, text, "must be an absolute path"));
            }
        }
        other => errors.push(FieldError::not_supported(
            &path.child("pathType"),
            other,
            &["Exact", "ImplementationSpecific", "Prefix"],
        )),
    }
    if matches!(kind, "Exact" | "Prefix") {
        for part in NOT_IN_PATHS.iter().filter(|part| text.contains(**part)) {
            let problem = format!("must not contain '{part}'");
            errors.push(FieldError::invalid(&at, text, problem));
        }
        for end in NOT_AT_THE_END.iter().filter(|end| text.ends_with(**end)) {
            let problem = format!("cannot end with '{end}'");
            errors.push(FieldError::invalid(&at, text, problem));
        }
    }
    backend(&entry["backend"], &path.child("backend"), errors);
}

fn backend(backend: &Value, path: &Path, errors: &mut Errors) {
    let (resource, service) = (&backend["resource"], &backend["service"]);
    match (resource.is_null(), service.is_null()) {
        (false, false) => errors.push(FieldError::invalid(
            path,
            "",
            "cannot set both resource and service backends",
        )),
        (false, true) => {
            let (group, at) = (
                &resource["apiGroup"],
                path.child("resource").child("apiGroup"),
            );
            check::optional(group, names::dns_subdomain, &at, errors);
            for field in ["kind", "name"] {
                let text = resource[field].as_str().unwrap_or_default();
                let path = path.child("resource").child(field);
                if text.is_empty() {
                    errors.push(FieldError::required(&path, ""));
                }
                for problem in names::path_segment(text) {
                    errors.push(FieldError::invalid(&path, text, problem));
                }
            }
        }
        (true, false) => service_backend(service, path, errors),
        (true, true) => errors.push(FieldError::invalid(
            path,
            "",
            "resource or service backend is required",
        )),
    }
}

fn service_backend(service: &Value, backend: &Path, errors: &mut Errors) {
    let path = backend.child("service");
    let name = service["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else {
        for problem in names::dns_label(name) {
            errors.push(FieldError::invalid(&path.child("name"), name, problem));
        }
    }
    let port = &service["port"];
    let name = port["name"].as_str().unwrap_or_default();
    let number = port["number"].as_i64().unwrap_or(0);
    let path = path.child("port");
    match (name.is_empty(), number) {
        (true, 0) => errors.push(FieldError::required(
            backend,
            "port name or number is required",
        )),
        (true, number) => port_number(number, &path.child("number"), errors),
        (false, 0) => {
            for problem in names::port_name(name) {
                errors.push(FieldError::invalid(&path.child("name"), name, problem));
            }
        }
        _ => errors.push(FieldError::invalid(
            backend,
            "",
            "cannot set both port name & port number",
        )),
    }
}
