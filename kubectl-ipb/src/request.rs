//! A ban that is asked for, and what it changes about the block that is there already.

use std::time::Duration;

use ipblock_operator::api::{IPBlock, IPBlockSpec, IPBlockStatus, Phase, RESOLVED, condition};
use ipblock_operator::duration;
use ipblock_operator::target::Target;
use ipblock_operator::why::moment;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::ban::How;

/// A ban that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) target: Target,
    /// The text as given, when a block may be named after it.
    pub(crate) raw: Option<String>,
    /// `None`: without end.
    pub(crate) length: Option<Duration>,
    pub(crate) reason: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) tags: Vec<String>,
}

/// What a ban changes about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing, for this reason.
    None(String),
    /// Bans again.
    Trigger(Value),
    /// Moves the end of the ban to this time; `None`: without end.
    Extend(Value, Option<Timestamp>),
}

// === impl Wanted ===

impl Wanted {
    /// The spec of a new block.
    pub(crate) fn spec(&self) -> IPBlockSpec {
        IPBlockSpec {
            ip: self.target.to_string(),
            reason: self.reason.clone(),
            source: self.source.clone(),
            by: self.by.clone(),
            duration: self.length.map(duration::display),
            tags: self.tags.clone(),
            ..IPBlockSpec::default()
        }
    }

    /// What the ban changes about `block`, which is about the same target and not in deletion. With `extend` it lasts
    /// from now on for its whole length, and at most `maxDuration` in all.
    pub(crate) fn change(&self, block: &IPBlock, how: How, now: Timestamp) -> Change {
        let status = block.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_ref());
        if block.spec.unblock == Some(true) {
            return Change::Trigger(self.trigger());
        }
        // After the end of its alert a ban is about to be lifted, though its status does not say so yet.
        let resolved = phase != Some(&Phase::Active) && block.annotation(RESOLVED).is_some();
        if resolved || block.is_overdue(now) {
            return Change::Trigger(self.trigger());
        }
        match phase {
            Some(Phase::Active) => {
                let end = status.and_then(IPBlockStatus::expires_at);
                let began = status.and_then(IPBlockStatus::blocked_at);
                self.prolong(began, end, how, now)
            }
            None | Some(Phase::Pending) => self.before(block, how),
            Some(_) => Change::Trigger(self.trigger()),
        }
    }

    /// The spec of a new ban with the same block.
    fn trigger(&self) -> Value {
        let mut spec = Map::new();
        spec.insert("trigger".into(), json!(true));
        spec.insert("unblock".into(), json!(false));
        spec.insert("duration".into(), json!(self.length.map(duration::display)));
        for (field, text) in [
            ("reason", &self.reason),
            ("source", &self.source),
            ("by", &self.by),
        ] {
            if let Some(text) = text {
                spec.insert(field.into(), json!(text));
            }
        }
        if !self.tags.is_empty() {
            spec.insert("tags".into(), json!(self.tags));
        }
        Value::Object(spec)
    }

    /// A ban that stands from `began` to `end`.
    fn prolong(
        &self,
        began: Option<Timestamp>,
        end: Option<Timestamp>,
        how: How,
        now: Timestamp,
    ) -> Change {
        let target = self.target;
        let Some(end) = end else {
            return Change::None(format!("{target} is banned without end already"));
        };
        let wanted = self.length.map(|length| now.checked_add(length));
        let longer = match wanted {
            None => true,
            Some(Ok(wanted)) => wanted > end,
            Some(Err(_)) => false,
        };
        let present = format!("{target} is banned until {} already", moment(end, now));
        if !longer {
            return Change::None(present);
        }
        if !how.extend {
            return Change::None(format!("{present}; --extend prolongs it"));
        }
        // The duration counts from the start of the ban.
        let passed = began.map(|began| now.duration_since(began));
        let passed = passed.and_then(|passed| Duration::try_from(passed).ok());
        let total = self
            .length
            .map(|length| passed.unwrap_or_default().saturating_add(length));
        let cut = how
            .most
            .filter(|most| total.is_none_or(|total| total > *most));
        let (Some(most), Some(began)) = (cut, began) else {
            let until = wanted.and_then(Result::ok);
            let text = total.map(duration::display);
            return Change::Extend(json!({ "duration": text }), until);
        };
        // The operator refuses a longer one.
        let longest = began.checked_add(most).unwrap_or(Timestamp::MAX);
        if longest <= end {
            let most = duration::display(most);
            return Change::None(format!("{present}, as long as maxDuration ({most}) allows"));
        }
        Change::Extend(
            json!({ "duration": duration::display(most) }),
            Some(longest),
        )
    }

    /// A ban that is requested and does not stand yet.
    fn before(&self, block: &IPBlock, how: How) -> Change {
        let target = self.target;
        let status = block.status.as_ref();
        let message = status.and_then(|status| status.message.as_deref());
        let why = message.map_or_else(String::new, |message| format!(": {message}"));
        let present = format!("the ban of {target} is requested already{why}");
        let asked = block.spec.duration.as_deref().unwrap_or_default();
        // The operator refuses a longer one.
        let length = match (self.length, how.most) {
            (Some(length), Some(most)) => Some(length.min(most)),
            (length, most) => length.or(most),
        };
        let longer = match (duration::parse_optional(asked), length) {
            (Ok(None), _) => false,
            (_, None) | (Err(_), _) => true,
            (Ok(Some(asked)), Some(length)) => length > asked,
        };
        match (longer, how.extend) {
            (false, _) => Change::None(present),
            (true, false) => Change::None(format!("{present}; --extend makes it longer")),
            (true, true) => {
                let text = length.map(duration::display);
                Change::Extend(json!({ "duration": text }), None)
            }
        }
    }
}

/// What the operator made of a block that was written: `Ok` with a sentence when it is banned, `Err` when it was refused;
/// `None` while it is at work.
pub(crate) fn outcome(block: &IPBlock) -> Option<Result<String, String>> {
    let status = block.status.as_ref()?;
    let seen = status.observed_generation >= block.metadata.generation
        && block.spec.trigger != Some(true)
        && block.spec.unblock != Some(true);
    if !seen {
        return None;
    }
    let message = || status.message.clone().unwrap_or_default();
    match status.phase.as_ref()? {
        // A spec that the operator refuses leaves the ban as it was.
        Phase::Active => Some(match status.condition(condition::READY) {
            Some(ready) if ready.reason == "InvalidSpec" => Err(ready.message.clone()),
            _ => Ok(message()),
        }),
        Phase::Skipped | Phase::Failed | Phase::Expired => Some(Err(message())),
        Phase::Pending | Phase::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn how(extend: bool) -> How {
        How {
            extend,
            ..How::default()
        }
    }

    fn wanted(length: Option<u64>) -> Wanted {
        Wanted {
            target: "192.0.2.7".parse().unwrap(),
            raw: None,
            length: length.map(|minutes| Duration::from_secs(60 * minutes)),
            reason: Some("scan".into()),
            source: Some("manual".into()),
            by: None,
            tags: Vec::new(),
        }
    }

    fn block(phase: Option<Phase>, end: Option<&str>) -> IPBlock {
        let spec = IPBlockSpec {
            ip: "192.0.2.7".into(),
            duration: Some("30m".into()),
            ..IPBlockSpec::default()
        };
        let mut block = IPBlock::new("a", spec);
        block.status = Some(IPBlockStatus {
            phase,
            blocked_at: Some("2026-01-01T11:40:00Z".into()),
            expires_at: end.map(str::to_owned),
            ..IPBlockStatus::default()
        });
        block
    }

    #[test]
    fn a_ban_that_stands_is_prolonged_only_when_asked_to() {
        let stands = || block(Some(Phase::Active), Some("2026-01-01T12:10:00Z"));
        for (minutes, extend, expected) in [
            (
                Some(5),
                true,
                Change::None(
                    "192.0.2.7 is banned until 2026-01-01T12:10:00Z (in 10m) already".into(),
                ),
            ),
            (
                Some(60),
                false,
                Change::None("192.0.2.7 is banned until 2026-01-01T12:10:00Z (in 10m) already; --extend prolongs it".into()),
            ),
            (
                Some(60),
                true,
                Change::Extend(
                    json!({"duration": "1h20m"}),
                    Some("2026-01-01T13:00:00Z".parse().unwrap()),
                ),
            ),
            (None, true, Change::Extend(json!({"duration": null}), None)),
        ] {
            let given = wanted(minutes).change(&stands(), how(extend), now());
            assert_eq!(given, expected, "{minutes:?} {extend}");
        }
        let endless = wanted(None).change(&block(Some(Phase::Active), None), how(true), now());
        assert_eq!(
            endless,
            Change::None("192.0.2.7 is banned without end already".into())
        );
    }

    #[test]
    fn no_extension_goes_beyond_the_longest_ban_of_the_operator() {
        let stands = || block(Some(Phase::Active), Some("2026-01-01T12:10:00Z"));
        let within = |most: u64| How {
            most: Some(Duration::from_secs(60 * most)),
            ..how(true)
        };
        for length in [Some(60), None] {
            // It began 20 minutes ago.
            let given = wanted(length).change(&stands(), within(45), now());
            let until = "2026-01-01T12:25:00Z".parse().unwrap();
            assert_eq!(
                given,
                Change::Extend(json!({"duration": "45m"}), Some(until))
            );
            let given = wanted(length).change(&stands(), within(30), now());
            let Change::None(why) = given else {
                panic!("{given:?}");
            };
            assert!(
                why.ends_with("already, as long as maxDuration (30m) allows"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_ban_that_ended_or_is_overdue_is_made_again() {
        let spec = json!({"trigger": true, "unblock": false, "duration": "1h", "reason": "scan", "source": "manual"});
        for present in [
            block(Some(Phase::Expired), None),
            block(Some(Phase::Failed), None),
            block(Some(Phase::Skipped), None),
            block(Some(Phase::Active), Some("2026-01-01T11:59:00Z")),
        ] {
            let given = wanted(Some(60)).change(&present, how(false), now());
            assert_eq!(given, Change::Trigger(spec.clone()), "{present:?}");
        }
        // The end of an alert cut the ban of 30 minutes to the 20 that have passed.
        let mut resolved = block(Some(Phase::Active), Some("2026-01-01T12:10:00Z"));
        resolved.spec.duration = Some("20m".into());
        let mut waiting = block(Some(Phase::Pending), None);
        let at = (RESOLVED.to_owned(), "2026-01-01T12:00:00Z".to_owned());
        waiting.metadata.annotations = Some([at].into());
        for present in [resolved, waiting] {
            let given = wanted(Some(60)).change(&present, how(false), now());
            assert_eq!(given, Change::Trigger(spec.clone()), "{present:?}");
        }
        let mut unblocked = block(Some(Phase::Active), Some("2026-01-01T12:10:00Z"));
        unblocked.spec.unblock = Some(true);
        let given = wanted(None).change(&unblocked, how(false), now());
        assert!(matches!(given, Change::Trigger(spec) if spec["duration"].is_null()));
    }

    #[test]
    fn a_ban_that_does_not_stand_yet_is_made_longer_only_when_asked_to() {
        for (minutes, extend, part) in [
            (Some(10), true, "requested already"),
            (Some(60), false, "--extend makes it longer"),
        ] {
            let Change::None(why) =
                wanted(minutes).change(&block(Some(Phase::Pending), None), how(extend), now())
            else {
                panic!("{minutes:?} {extend}");
            };
            assert!(why.contains(part), "{why}");
        }
        let given = wanted(Some(60)).change(&block(None, None), how(true), now());
        assert_eq!(given, Change::Extend(json!({"duration": "1h"}), None));
        let most = How {
            most: Some(Duration::from_secs(45 * 60)),
            ..how(true)
        };
        for length in [Some(60), None] {
            let given = wanted(length).change(&block(None, None), most, now());
            assert_eq!(given, Change::Extend(json!({"duration": "45m"}), None));
        }
    }

    #[test]
    fn an_outcome_is_of_the_generation_that_was_written() {
        let mut block = block(Some(Phase::Active), None);
        block.metadata.generation = Some(2);
        let status = block.status.as_mut().unwrap();
        status.observed_generation = Some(1);
        status.message = Some("banned".into());
        assert_eq!(outcome(&block), None);
        block.status.as_mut().unwrap().observed_generation = Some(2);
        assert_eq!(outcome(&block), Some(Ok("banned".into())));
        let refused = json!({"type": condition::READY, "status": "False", "reason": "InvalidSpec",
            "message": "too long", "lastTransitionTime": "2026-01-01T12:00:00Z"});
        let refused = serde_json::from_value(refused).unwrap();
        let status = block.status.as_mut().unwrap();
        status.conditions = vec![refused];
        assert_eq!(outcome(&block), Some(Err("too long".into())));
        block.status.as_mut().unwrap().conditions.clear();
        block.spec.trigger = Some(true);
        assert_eq!(outcome(&block), None);
        block.spec.trigger = Some(false);
        block.status.as_mut().unwrap().phase = Some(Phase::Skipped);
        assert_eq!(outcome(&block), Some(Err("banned".into())));
    }
}
