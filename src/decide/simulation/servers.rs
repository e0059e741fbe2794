//! The API server and the gateways in memory, with their faults.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::*;

/// A step that ends the run.
pub(super) enum Broken {
    /// With the process.
    Killed,
    /// The process goes on, and does not know whether the write took effect.
    Failed,
}

pub(super) fn addresses(target: &Target) -> BTreeSet<u32> {
    let net = target.net();
    net.hosts()
        .chain([net.network(), net.broadcast()])
        .filter_map(|address| match address {
            IpAddr::V4(v4) => Some(u32::from(v4)),
            IpAddr::V6(_) => None,
        })
        .collect()
}

fn merge(target: &mut Value, patch: &Value) {
    if let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) {
        for (key, value) in patch {
            if value.is_null() {
                target.remove(key);
            } else {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        return;
    }
    *target = match patch {
        Value::Object(patch) => {
            let mut fresh = Value::Object(serde_json::Map::new());
            merge(&mut fresh, &Value::Object(patch.clone()));
            fresh
        }
        other => other.clone(),
    };
}

// === impl Simulation ===

impl Simulation {
    fn fault(&mut self) -> Fault {
        let fault = self.faults.next().unwrap_or(Fault::None);
        if fault == Fault::None || self.budget == 0 {
            return Fault::None;
        }
        self.budget -= 1;
        fault
    }

    /// Whether this fault comes next, at a step that has it.
    pub(super) fn has(&mut self, fault: Fault) -> bool {
        let has = self.budget > 0 && self.faults.as_slice().first() == Some(&fault);
        if has {
            self.fault();
        }
        has
    }

    /// Writes to the version `base` of an object as the server does.
    pub(super) fn write(
        &mut self,
        base: &IPBlock,
        change: impl FnOnce(&mut IPBlock),
    ) -> Result<Outcome, Broken> {
        let key = base.key();
        let fault = self.fault();
        match fault {
            Fault::KilledBefore => return Err(Broken::Killed),
            Fault::FailsBefore => return Err(Broken::Failed),
            Fault::Overtaken(how) => self.overtake(&key, how),
            _ => {}
        }
        let Some(mut block) = self.objects.get(&key).cloned() else {
            return Ok(Outcome::Gone);
        };
        if block.metadata.resource_version != base.metadata.resource_version {
            return Ok(Outcome::Conflict);
        }
        let before = block.status.clone().unwrap_or_default();
        let spec = block.spec.clone();
        change(&mut block);
        self.stamp(&mut block, &spec);
        let held = block
            .metadata
            .finalizers
            .as_ref()
            .is_some_and(|all| !all.is_empty());
        let after = block.status.clone().unwrap_or_default();
        self.expected.status(&key, &before, &after, self.now);
        self.audit.changes(&key, &before, &after);
        if block.is_deleting() {
            self.expected.deleted(&key);
        }
        if block.is_deleting() && !held {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key.clone(), block.clone());
        }
        self.queue.insert(key);
        match fault {
            Fault::KilledAfter => Err(Broken::Killed),
            Fault::FailsAfter => Err(Broken::Failed),
            _ => Ok(Outcome::Object(block.into())),
        }
    }

    /// A new version, and a new generation if the spec changed.
    pub(super) fn stamp(&mut self, block: &mut IPBlock, spec: &IPBlockSpec) {
        self.version += 1;
        block.metadata.resource_version = Some(self.version.to_string());
        if block.spec != *spec {
            block.metadata.generation = block.metadata.generation.map(|number| number + 1);
        }
    }

    /// Another client writes the object first.
    fn overtake(&mut self, key: &str, how: Overtaking) {
        match how {
            Overtaking::By => self.edit(key, |block| {
                block.spec.by = Some(match block.spec.by.as_deref() {
                    Some("one") => "another".into(),
                    _ => "one".into(),
                });
            }),
            Overtaking::Duration(duration) => self.set_duration(key, duration),
            Overtaking::Deletion => self.delete(key),
        }
    }

    pub(super) fn patch(&mut self, base: &IPBlock, patch: &Patch) -> Result<Outcome, Broken> {
        self.write(base, |block| {
            let mut value = serde_json::to_value(&*block).unwrap();
            merge(&mut value, &patch.to_merge_patch(base));
            *block = serde_json::from_value(value).unwrap();
        })
    }

    pub(super) fn call(&mut self, key: &str, call: &Call) -> Result<Outcome, Broken> {
        let untouched = self.coverage.touch(key, &call.standing.place);
        let outcome = self.answer(key, call);
        if let (true, Ok(Outcome::Failed(failure))) = (untouched, &outcome)
            && !failure.may_have_happened
        {
            self.coverage.untouched(key, &call.standing.place);
        }
        outcome
    }

    fn answer(&mut self, key: &str, call: &Call) -> Result<Outcome, Broken> {
        let failed = |may_have_happened| {
            Ok(Outcome::Failed(Failure {
                reason: "Fault".into(),
                message: "fault".into(),
                may_have_happened,
                ..Failure::default()
            }))
        };
        if self.dead.contains(&call.standing.place) {
            self.dead_call |= call.required || !self.objects.contains_key(key);
            return failed(false);
        }
        let fault = self.fault();
        match fault {
            Fault::KilledBefore => return Err(Broken::Killed),
            Fault::FailsBefore => return failed(false),
            _ => {}
        }
        let addresses = addresses(&call.standing.target);
        let enforced = self
            .enforced
            .entry(call.standing.place.clone())
            .or_default();
        match call.operation {
            Operation::Ban(_) => enforced.extend(addresses),
            Operation::Unban => enforced.retain(|address| !addresses.contains(address)),
        }
        match fault {
            Fault::KilledAfter => Err(Broken::Killed),
            Fault::FailsAfter => failed(true),
            _ => Ok(Outcome::Done),
        }
    }
}
