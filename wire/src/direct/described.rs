//! The messages that are read directly, beside the table.

use super::kinds::described;
use crate::table::{Field, Message, Shape, Table, Type};

/// A message that is read directly.
pub(super) struct Described {
    pub(super) name: &'static str,
    pub(super) fields: &'static [Entry],
    /// By the number of a message that is inlined in this one.
    pub(super) inlined: &'static [(u32, &'static [Entry])],
}

/// Mode, number and name of a field.
type Entry = (&'static str, u32, &'static str);

/// The fields whose types are not read directly, or not in every version of Kubernetes: an object that has one is left to
/// serde.
pub(super) const LEFT_TO_SERDE: &[&str] = &[
    "core.v1.Container.restartPolicyRules",
    "core.v1.EnvVarSource.fileKeyRef",
    "core.v1.EphemeralContainerCommon.restartPolicyRules",
    "core.v1.PodSpec.schedulingGroup",
    "core.v1.PodStatus.extendedResourceClaimStatus",
    "core.v1.PodStatus.nodeAllocatableResourceClaimStatuses",
    "core.v1.ServiceStatus.conditions",
    "core.v1.VolumeMountStatus.volumeStatus",
    "core.v1.VolumeProjection.podCertificate",
];

fn mode(field: &Field) -> &'static str {
    let is_time = matches!(field.of, Type::Time | Type::MicroTime);
    match field.shape {
        Shape::Plain if field.omit_empty && field.of.is_scalar() => "opt",
        Shape::Plain if !is_time => "must",
        _ => "any",
    }
}

/// `hostIPC` and `host_ipc` are the same name.
fn letters(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

fn compare(message: &Message, entries: &[Entry], left: &mut Vec<String>) {
    for (known, number, name) in entries {
        let field = message.field(*number).map(|index| &message.fields[index]);
        let field = field.unwrap_or_else(|| panic!("{} has no field {number}", message.name));
        let path = format!("{}.{name}", message.name);
        assert_eq!(letters(field.name.unwrap()), letters(name), "{path}");
        let known = if known.starts_with("v1_") {
            "any"
        } else {
            known
        };
        assert_eq!(mode(field), known, "{path}");
    }
    for field in &message.fields {
        let is_read = entries.iter().any(|(_, number, _)| *number == field.number);
        if let (false, Some(name)) = (is_read, field.name) {
            left.push(format!("{}.{name}", message.name));
        }
    }
}

#[test]
fn the_messages_are_those_of_the_table() {
    let table = Table::get();
    let mut left = Vec::new();
    for described in described() {
        let message = table.find(described.name);
        let message = message.unwrap_or_else(|| panic!("{}", described.name));
        compare(message, described.fields, &mut left);
        for field in message.fields.iter().filter(|field| field.name.is_none()) {
            let inlined = described.inlined.iter();
            let (_, entries) = inlined
                .clone()
                .find(|(number, _)| *number == field.number)
                .unwrap();
            let Type::Message(index) = field.of else {
                panic!()
            };
            compare(table.message(index), entries, &mut left);
        }
    }
    left.sort();
    left.dedup();
    assert_eq!(left, LEFT_TO_SERDE);
}
