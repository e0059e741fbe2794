//! The checks of IPAddresses and ServiceCIDRs. (kubernetes: `pkg/apis/networking/validation`.)

use serde_json::{Value, json};

use super::network_rules::network;
use super::{check, immutable};
use crate::field::{Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

const IMMUTABLE: &str = "field is immutable";
const ONE_EACH: &str =
    "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";

/// Checks an IPAddress.
pub(super) fn address(address: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec").child("parentRef");
    let parent = &address["spec"]["parentRef"];
    if let Some(old) = old {
        immutable::field(parent, &old["spec"]["parentRef"], &path, errors);
    }
    if parent.is_null() {
        errors.push(FieldError::required(&path, ""));
        return;
    }
    check::optional(
        &parent["group"],
        names::dns_subdomain,
        &path.child("group"),
        errors,
    );
    for field in ["resource", "name"] {
        check::name(
            &parent[field],
            names::path_segment,
            &path.child(field),
            errors,
        );
    }
    let namespace = path.child("namespace");
    check::optional(
        &parent["namespace"],
        names::path_segment,
        &namespace,
        errors,
    );
}

/// Checks a ServiceCIDR.
pub(super) fn networks(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("spec").child("cidrs");
    let all = items(&object["spec"]["cidrs"]);
    let Some(old) = old else {
        check_networks(all, &path, errors);
        return;
    };
    let old = items(&old["spec"]["cidrs"]);
    let grows = old.len() == 1 && all.len() == 2;
    if old.len() != all.len() && !grows {
        errors.push(FieldError::invalid(&path, json!(all), IMMUTABLE));
        return;
    }
    for (at, (new, old)) in all.iter().zip(old).enumerate() {
        if new != old {
            errors.push(FieldError::invalid(&path.index(at), string(new), IMMUTABLE));
        }
    }
    if grows {
        check_networks(all, &path, errors);
    }
}

fn check_networks(all: &[Value], path: &Path, errors: &mut Errors) {
    if all.is_empty() {
        errors.push(FieldError::required(path, "at least one CIDR required"));
        return;
    }
    if all.len() > 2 {
        let text = "may only hold up to 2 values";
        errors.push(FieldError::invalid(path, json!({"CIDRs": all}), text));
        return;
    }
    let mut families = Vec::new();
    for (at, one) in all.iter().enumerate() {
        let found = network(string(one), &[], &path.index(at), errors);
        families.extend(found.map(|network| network.address.is_ipv4()));
    }
    if families.len() == 2 && families[0] == families[1] {
        errors.push(FieldError::invalid(path, json!(all), ONE_EACH));
    }
}
