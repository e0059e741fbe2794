//! Leases.

use k8s_openapi::api::coordination::v1;
use serde_json::Value;

use super::entry::Entry;
use super::strategy::{Context, Strategy};
use crate::field::{Errors, FieldError, Path};
use crate::resource::{Column, ResourceInfo};
use crate::table::cells::{aged, plain, text};

/// The kinds of this file.
pub(super) const KINDS: &[Entry] = &[Entry::of::<v1::Lease>(
    "coordination.k8s.io",
    "leases",
    &Leases,
)];

/// Leases.
#[derive(Debug)]
pub(super) struct Leases;

// === impl Leases ===

impl Strategy for Leases {
    fn describe(&self, info: &mut ResourceInfo) {
        info.create_on_update = true;
        info.unconditional_update = false;
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            text("Holder", |value, _| plain(&value["spec"]["holderIdentity"])),
            aged(),
        ]
    }

    fn validate(&self, _: &Context<'_>, object: &Value, _: Option<&Value>, errors: &mut Errors) {
        lease(object, errors);
    }
}

/// Checks the numbers of a Lease.
fn lease(object: &Value, errors: &mut Errors) {
    let path = Path::new("spec");
    if let Some(seconds) = object["spec"]["leaseDurationSeconds"]
        .as_i64()
        .filter(|&seconds| seconds <= 0)
    {
        errors.push(FieldError::invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = object["spec"]["leaseTransitions"]
        .as_i64()
        .filter(|&count| count < 0)
    {
        errors.push(FieldError::invalid(
            &path.child("leaseTransitions"),
            count,
            "must be greater than or equal to 0",
        ));
    }
}
