//! The keys of the guard rails.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::parse::entries;
use super::{Errors, keys};
use crate::duration;
use crate::guard::{Brake, Escalation, Limit, Limits, Settings};
use crate::target::Target;

/// The largest cap of bans a minute: so many times are remembered.
const MOST_A_MINUTE: usize = 100_000;

/// The most namespaces, sources or sources in shadow mode.
const MOST_NAMES: usize = 1000;

/// The longest name of a namespace or a source, in bytes.
const LONGEST_NAME: usize = 256;

/// The key `limits`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawLimits {
    exempt_manual: bool,
    namespaces: BTreeMap<String, RawLimit>,
    sources: BTreeMap<String, RawLimit>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawLimit {
    max_active_blocks: Option<usize>,
    max_bans_per_minute: Option<usize>,
}

/// The key `brake`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawBrake {
    bans_per_minute: Option<usize>,
    lift_percent: Option<u8>,
    lift_least: Option<usize>,
}

/// The key `escalation`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawEscalation {
    factor: Option<f64>,
    cap: Option<String>,
    decay: Option<String>,
    jitter: Option<f64>,
}

/// Reads the keys. `most` is `maxDuration`.
pub(super) fn read(
    data: &BTreeMap<String, String>,
    most: Option<Duration>,
    errors: &mut Errors,
) -> Settings {
    let mut reader = Reader { data, errors };
    Settings {
        limits: reader.limits(),
        brake: reader.brake(),
        shadow: reader.shadow(),
        escalation: reader.escalation(most),
        protect_cluster: reader.protects_cluster(),
    }
}

struct Reader<'a> {
    data: &'a BTreeMap<String, String>,
    errors: &'a mut Errors,
}

// === impl Reader ===

impl Reader<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        let text = self.data.get(key).map(|text| text.trim());
        text.filter(|text| !text.is_empty())
    }

    fn add(&mut self, key: &str, message: impl std::fmt::Display) {
        self.errors.add(key, None, message);
    }

    /// A YAML document; the default if it is wrong or absent.
    fn yaml<T: DeserializeOwned + Default>(&mut self, key: &str, expected: &str) -> Option<T> {
        let text = self.data.get(key).filter(|text| !text.trim().is_empty())?;
        let options = serde_saphyr::options! { emit_comments: false };
        match serde_saphyr::from_str_with_options(text, options) {
            Ok(read) => Some(read),
            Err(error) => {
                let line = error.location();
                let line = line.and_then(|at| usize::try_from(at.line()).ok());
                let error = error.without_snippet();
                self.errors
                    .add(key, line, format!("{expected} is expected: {error}"));
                None
            }
        }
    }

    fn count(&mut self, key: &str) -> Option<usize> {
        let text = self.text(key)?.to_owned();
        let count = text.parse().ok().filter(|count| *count > 0);
        if count.is_none() {
            self.add(key, format!("{text:?} is not a number above zero"));
        }
        count
    }

    fn limits(&mut self) -> Limits {
        let expected = "YAML such as {namespaces: {team-a: {maxActiveBlocks: 100, maxBansPerMinute: 10}}, sources: {}, exemptManual: true}";
        let raw: RawLimits = self.yaml(keys::LIMITS, expected).unwrap_or_default();
        let all = RawLimit {
            max_active_blocks: self.count(keys::MAX_ACTIVE_BLOCKS),
            max_bans_per_minute: self.count(keys::MAX_BANS_PER_MINUTE),
        };
        Limits {
            all: self.limit(keys::MAX_BANS_PER_MINUTE, "", all),
            namespaces: self.named("namespaces", raw.namespaces),
            sources: self.named("sources", raw.sources),
            exempt_manual: raw.exempt_manual,
        }
    }

    fn named(&mut self, of: &str, raw: BTreeMap<String, RawLimit>) -> BTreeMap<String, Limit> {
        if raw.len() > MOST_NAMES {
            self.add(
                keys::LIMITS,
                format!("{of} has more than {MOST_NAMES} names"),
            );
            return BTreeMap::new();
        }
        let mut all = BTreeMap::new();
        for (name, limit) in raw {
            if name.is_empty() || name.len() > LONGEST_NAME {
                let message = format!("{of}: {name:?} is not a name of 1 to {LONGEST_NAME} bytes");
                self.add(keys::LIMITS, message);
            }
            let place = format!("{of}.{name}: ");
            let limit = self.limit(keys::LIMITS, &place, limit);
            all.insert(name, limit);
        }
        all
    }

    fn limit(&mut self, key: &str, place: &str, raw: RawLimit) -> Limit {
        if raw.max_active_blocks == Some(0) || raw.max_bans_per_minute == Some(0) {
            let message = format!(
                "{place}a cap of 0 bans nothing at all; leave it out for no cap, or put the source into shadowSources"
            );
            self.add(key, message);
        }
        if raw
            .max_bans_per_minute
            .is_some_and(|most| most > MOST_A_MINUTE)
        {
            let message = format!("{place}the largest maxBansPerMinute is {MOST_A_MINUTE}");
            self.add(key, message);
        }
        Limit {
            active: raw.max_active_blocks,
            per_minute: raw.max_bans_per_minute.map(|most| most.min(MOST_A_MINUTE)),
        }
    }

    fn brake(&mut self) -> Brake {
        let expected = "YAML such as {bansPerMinute: 1000, liftPercent: 50, liftLeast: 100}";
        let raw: RawBrake = self.yaml(keys::BRAKE, expected).unwrap_or_default();
        let default = Brake::default();
        let bans = raw.bans_per_minute;
        if bans.is_some_and(|most| most == 0 || most > MOST_A_MINUTE) {
            let message = format!("bansPerMinute is a number from 1 to {MOST_A_MINUTE}");
            self.add(keys::BRAKE, message);
        }
        if raw.lift_percent.is_some_and(|percent| percent > 100) {
            self.add(keys::BRAKE, "liftPercent is a number from 0 (off) to 100");
        }
        Brake {
            bans_per_minute: bans,
            lift_percent: raw.lift_percent.unwrap_or(default.lift_percent),
            lift_least: raw.lift_least.unwrap_or(default.lift_least),
        }
    }

    fn shadow(&mut self) -> BTreeSet<String> {
        let text = self.data.get(keys::SHADOW_SOURCES);
        let mut sources = BTreeSet::new();
        for (line, source) in entries(text.map(String::as_str).unwrap_or_default()) {
            let source = source.trim_start_matches("- ").trim();
            let problem = if source.len() > LONGEST_NAME {
                "is too long for a source"
            } else if source.parse::<Target>().is_ok() {
                "is an address; write the sources of blocks (spec.source), one a line"
            } else if sources.len() == MOST_NAMES {
                "is one source too many"
            } else {
                sources.insert(source.to_owned());
                continue;
            };
            let message = format!("{source:?} {problem}");
            self.errors.add(keys::SHADOW_SOURCES, Some(line), message);
        }
        sources
    }

    fn escalation(&mut self, most: Option<Duration>) -> Option<Escalation> {
        let expected = "YAML such as {factor: 2, cap: 7d, decay: 7d, jitter: 0.1}";
        let raw: RawEscalation = self.yaml(keys::ESCALATION, expected)?;
        let default = Escalation::default();
        let mut time = |name: &str, text: Option<String>, default: Duration| {
            let read = text.map(|text| duration::parse(&text));
            match read {
                None => default,
                Some(Ok(time)) if !time.is_zero() => time,
                Some(Ok(_)) => {
                    self.add(keys::ESCALATION, format!("{name} is above zero"));
                    default
                }
                Some(Err(error)) => {
                    self.add(keys::ESCALATION, format!("{name}: {error}"));
                    default
                }
            }
        };
        let cap = time("cap", raw.cap, default.cap);
        let decay = time("decay", raw.decay, default.decay);
        let factor = raw.factor.unwrap_or(default.factor);
        if !(1.0..=10.0).contains(&factor) {
            self.add(keys::ESCALATION, "factor is a number from 1 to 10");
        }
        let jitter = raw.jitter.unwrap_or(default.jitter);
        if !(0.0..=0.5).contains(&jitter) {
            self.add(keys::ESCALATION, "jitter is a number from 0 to 0.5");
        }
        Some(Escalation {
            factor,
            cap: most.map_or(cap, |most| most.min(cap)),
            decay,
            jitter,
        })
    }

    fn protects_cluster(&mut self) -> bool {
        match self.text(keys::PROTECT_CLUSTER) {
            None | Some("true") => true,
            Some("false") => false,
            Some(other) => {
                let message = format!("{other:?} is neither true nor false");
                self.add(keys::PROTECT_CLUSTER, message);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let data = pairs.iter();
        let data = data.map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        let mut errors = Errors::default();
        let settings = read(&data.collect(), None, &mut errors);
        if errors.0.is_empty() {
            Ok(settings)
        } else {
            Err(errors.to_string())
        }
    }

    #[test]
    fn without_keys_there_are_no_caps_and_the_cluster_is_protected() {
        let settings = read_all(&[]).unwrap();
        assert_eq!(settings, Settings::default());
        assert!(settings.protect_cluster && !settings.limits.any());
    }

    #[test]
    fn caps_are_read_for_all_by_namespace_and_by_source() {
        let settings = read_all(&[
            ("maxActiveBlocks", "5000"),
            ("maxBansPerMinute", "300"),
            (
                "limits",
                "exemptManual: true\nnamespaces:\n  team-a: {maxActiveBlocks: 100}\n  '*': {maxBansPerMinute: 20}\nsources:\n  feed: {maxActiveBlocks: 7, maxBansPerMinute: 3}\n",
            ),
            ("shadowSources", "feed-x\n# none\nfeed-y # new\n"),
            ("protectCluster", "false"),
            ("brake", "{bansPerMinute: 1000, liftPercent: 30}"),
            ("escalation", "{factor: 3, cap: 2d}"),
        ])
        .unwrap();
        let limit = |active, per_minute| Limit { active, per_minute };
        assert_eq!(settings.limits.all, limit(Some(5000), Some(300)));
        assert_eq!(settings.limits.namespaces["team-a"], limit(Some(100), None));
        assert_eq!(settings.limits.namespaces["*"], limit(None, Some(20)));
        assert_eq!(settings.limits.sources["feed"], limit(Some(7), Some(3)));
        assert!(settings.limits.exempt_manual && !settings.protect_cluster);
        assert!(settings.is_shadow(Some("feed-x")) && settings.is_shadow(Some("feed-y")));
        assert_eq!(settings.brake.bans_per_minute, Some(1000));
        assert_eq!(
            (settings.brake.lift_percent, settings.brake.lift_least),
            (30, 100)
        );
        let escalation = settings.escalation.unwrap();
        assert_eq!(escalation.cap, Duration::from_secs(2 * 24 * 3600));
        assert_eq!(escalation.decay, Escalation::default().decay);
    }

    #[test]
    fn what_is_wrong_is_an_error_with_its_key_and_line() {
        for (key, text, expected) in [
            (
                "maxActiveBlocks",
                "many",
                "maxActiveBlocks: \"many\" is not a number",
            ),
            ("maxBansPerMinute", "0", "maxBansPerMinute: \"0\""),
            (
                "maxBansPerMinute",
                "1000000",
                "the largest maxBansPerMinute is 100000",
            ),
            (
                "limits",
                "namespaces: {a: {maxActive: 1}}",
                "limits, line 1: YAML such as",
            ),
            (
                "limits",
                "namespaces: {a: {maxActiveBlocks: 0}}",
                "namespaces.a: a cap of 0",
            ),
            ("limits", "[]", "limits, line 1:"),
            (
                "brake",
                "{liftPercent: 101}",
                "liftPercent is a number from 0",
            ),
            (
                "brake",
                "{bansPerMinute: 0}",
                "bansPerMinute is a number from 1",
            ),
            (
                "shadowSources",
                "a\n192.0.2.7",
                "shadowSources, line 2: \"192.0.2.7\" is an address",
            ),
            (
                "escalation",
                "{factor: 0.5}",
                "factor is a number from 1 to 10",
            ),
            ("escalation", "{jitter: 0.6}", "jitter is a number"),
            ("escalation", "{cap: soon}", "escalation: cap:"),
            ("escalation", "{factor: .nan}", "factor is a number"),
            ("protectCluster", "maybe", "neither true nor false"),
        ] {
            let error = read_all(&[(key, text)]).unwrap_err();
            assert!(error.contains(expected), "{key}: {text}: {error}");
        }
    }
}
