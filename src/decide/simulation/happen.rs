//! What happens to blocks and gateways.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::servers::addresses;
use super::*;
use crate::trigger::repeat::{self, Answer, Repeat, Rules};

impl Simulation {
    pub(super) fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Create {
                block,
                target: number,
                duration,
                ours,
            } => {
                let target = target(number);
                let spec = IPBlockSpec {
                    ip: target.to_string(),
                    duration: duration.map(|seconds| format!("{seconds}s")),
                    ..IPBlockSpec::default()
                };
                let place = self.place.clone().filter(|_| ours);
                let object =
                    IPBlock::born(&block.to_string(), "default", &target, place.as_ref(), spec);
                self.create(&key(block), object);
            }
            Happening::CreateOriginals {
                block,
                target: number,
                duration,
                age,
                failed,
            } => {
                let (Some(place), false) =
                    (self.place.clone(), self.objects.contains_key(&key(block)))
                else {
                    return;
                };
                let mut object = IPBlock::new(
                    &block.to_string(),
                    IPBlockSpec {
                        ip: TARGETS[number].into(),
                        duration: Some(format!("{duration}s")),
                        ..IPBlockSpec::default()
                    },
                );
                object.metadata.namespace = Some("default".into());
                let began = self.now - SignedDuration::from_secs(age as i64);
                object.status = Some(IPBlockStatus {
                    phase: Some(if failed { Phase::Failed } else { Phase::Active }),
                    blocked_at: Some(
                        began
                            .to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(8)))
                            .strftime("%Y-%m-%dT%H:%M:%S%:z")
                            .to_string(),
                    ),
                    last_spec_hash: Some("0a".into()),
                    ..IPBlockStatus::default()
                });
                self.enforced
                    .entry(place)
                    .or_default()
                    .extend(addresses(&target(number)));
                self.create(&key(block), object);
                // An object that is deleted before it is adopted cannot be lifted, so it is adopted first.
                let faults = std::mem::take(&mut self.faults);
                self.settle();
                self.faults = faults;
            }
            Happening::Alert { target, duration } => self.alert(target, duration),
            Happening::Delete(block) => {
                self.delete(&key(block));
            }
            Happening::Unblock(block) => {
                self.expected.edited(&key(block));
                self.edit(&key(block), |object| object.spec.unblock = Some(true));
            }
            Happening::Trigger(block) => {
                self.trigger(&key(block));
                self.edit(&key(block), |object| object.spec.trigger = Some(true));
            }
            Happening::TriggerByAnnotation(block, value) => {
                let (key, value) = (key(block), value.to_string());
                if self.objects.get(&key).is_some_and(|it| is_news(it, &value)) {
                    self.trigger(&key);
                } else {
                    self.expected.taken_back(&key);
                }
                self.edit(&key, |object| {
                    let annotations = object.metadata.annotations.get_or_insert_default();
                    annotations.insert(TRIGGER_ANNOTATION.into(), value);
                });
            }
            Happening::Duration(block, duration) => {
                self.set_duration(&key(block), duration);
            }
            Happening::BreakDuration(block) => {
                self.expected.edited(&key(block));
                self.edit(&key(block), |object| {
                    object.spec.duration = Some("soon".into());
                });
            }
            Happening::Relabel(block) => self.edit(&key(block), |object| {
                object.spec.reason = Some("other".into());
            }),
            Happening::Allowlist(target) => {
                self.policy.allowlist = target.map(super::target).into_iter().collect();
                for key in self.objects.keys() {
                    self.expected.edited(key);
                }
                self.queue.extend(self.objects.keys().cloned());
            }
            Happening::Move(place) => {
                self.place = Some(gateway(place));
                self.queue.extend(self.objects.keys().cloned());
            }
            Happening::Unconfigure => {
                self.place = None;
                self.queue.extend(self.objects.keys().cloned());
            }
            Happening::Pass(seconds) => self.pass(seconds),
            Happening::Die(place) => {
                self.dead.insert(gateway(place));
            }
            Happening::GatewayForgets => {
                self.enforced.clear();
                self.expected.forgotten();
            }
            Happening::Kill => self.kill(),
        }
        // Not always run to rest: things happen in between.
        if let Some(key) = self.queue.pop_first()
            && self.reconcile(&key).is_err()
        {
            self.kill();
        }
    }

    fn create(&mut self, key: &str, mut object: IPBlock) {
        if self.objects.contains_key(key) {
            return;
        }
        object.metadata.generation = Some(1);
        object.metadata.uid = Some(key.into());
        object.metadata.creation_timestamp = Some(Time(self.now));
        let spec = object.spec.clone();
        self.stamp(&mut object, &spec);
        self.objects.insert(key.into(), object);
        self.queue.insert(key.into());
        self.expected.forget(key);
        self.audit.forget(key);
        // It is born with an intent, or may be banned by the original operator.
        self.audit.intends(key);
        self.expected.asked(key, self.now);
    }

    fn trigger(&mut self, key: &str) {
        let unblocked = |block: &IPBlock| block.spec.unblock == Some(true);
        if self.objects.get(key).is_some_and(unblocked) {
            // The lift wins.
            self.expected.asked(key, self.now);
        } else {
            self.expected.triggered(key, self.now);
        }
    }

    pub(super) fn delete(&mut self, key: &str) {
        let now = self.now;
        self.expected.deleted(key);
        self.edit(key, |object| {
            object.metadata.deletion_timestamp = Some(Time(now));
        });
        let held = self.objects.get(key).is_some_and(IPBlock::is_held);
        if !held {
            self.objects.remove(key);
        }
    }

    pub(super) fn set_duration(&mut self, key: &str, duration: Option<u64>) {
        self.expected.edited(key);
        self.edit(key, |object| {
            object.spec.duration = duration.map(|seconds| format!("{seconds}s"));
        });
    }

    pub(super) fn edit(&mut self, key: &str, change: impl FnOnce(&mut IPBlock)) {
        if let Some(object) = self.objects.get_mut(key)
            && !object.is_deleting()
        {
            let spec = object.spec.clone();
            change(object);
            let mut object = object.clone();
            self.stamp(&mut object, &spec);
            self.objects.insert(key.into(), object);
            self.queue.insert(key.into());
        }
    }

    /// As the intake of triggers does.
    fn alert(&mut self, number: usize, seconds: u64) {
        let (target, key) = (target(number), key(NAMED + number));
        let place = self.place.clone();
        let asked_for = SignedDuration::from_secs(seconds as i64);
        let mut until = self.now + asked_for;
        let Some(present) = self.objects.get(&key).cloned() else {
            self.expected.created_by_alert(&key, self.now);
            let spec = IPBlockSpec {
                ip: target.to_string(),
                duration: Some(format!("{seconds}s")),
                ..IPBlockSpec::default()
            };
            let name = target.object_name();
            let object = IPBlock::born(&name, "default", &target, place.as_ref(), spec);
            self.create(&key, object);
            return self.lasts(&key, &target, until);
        };
        if present.is_deleting() {
            return;
        }
        let asked = format!("{seconds}s");
        let rules = Rules {
            most: None,
            repeated: Repeat::Extend,
            grace: GRACE,
            escalation: None,
            renew_before: Duration::ZERO,
        };
        match repeat::answer(&present, &asked, rules, self.now) {
            Answer::LeaveAlone => return,
            Answer::Trigger => {
                self.trigger(&key);
                self.edit(&key, |object| {
                    object.spec.trigger = Some(true);
                    object.spec.duration = Some(asked);
                });
            }
            Answer::Extend(longer) => {
                let status = present.status.clone().unwrap_or_default();
                if !status.is(&Phase::Active) {
                    // A ban that is not made within its time from the first request is given up.
                    until = self.expected.asked_at(&key).unwrap() + asked_for;
                }
                self.edit(&key, |object| object.spec.duration = Some(longer));
            }
        }
        self.lasts(&key, &target, until);
    }

    /// The alert was taken: its address is banned until `until`, unless it may not be.
    fn lasts(&mut self, key: &str, target: &Target, until: Timestamp) {
        if self.policy.refusal(target).is_none() {
            self.expected.lasts(key, until);
        }
    }
}

/// Whether no ban acts upon this value of the trigger annotation, or has acted upon it.
fn is_news(block: &IPBlock, value: &str) -> bool {
    let status = block.status.clone().unwrap_or_default();
    let intent = block.annotation(INTENT).map(str::parse::<Intent>);
    let begun = intent.and_then(|intent| intent.ok()?.trigger);
    ![
        block.annotation(TRIGGER_ANNOTATION),
        status.last_handled_trigger.as_deref(),
        begun.as_deref(),
    ]
    .contains(&Some(value))
}
