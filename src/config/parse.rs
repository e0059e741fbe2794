//! From texts to a [`Config`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Config, EngineConfig, Errors, Options, allowlist, engines, gateways, guard, keys, triggers,
};
use crate::api::Place;
use crate::duration;
use crate::engine::{Endpoint, Kind};
use crate::mounted::MountedFile;
use crate::outbound::AddressPolicy;
use crate::policy::{self, Policy, Protected};
use crate::prefix::Prefixes;
use crate::sets;
use crate::target::Target;
use crate::trigger::{Definition, RawTrigger, Repeat};

const DEFAULT_DURATION: Duration = Duration::from_secs(60 * 60);
const RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const UNBLOCK_GRACE: Duration = Duration::from_secs(10 * 60);
const RESYNC: Duration = Duration::from_secs(5 * 60);
/// More frequent assertions would be a load, not a repair.
const LEAST_RESYNC: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(5);

/// Reads the keys of a ConfigMap.
///
/// # Errors
/// Every error, with key and line.
pub fn parse(data: &BTreeMap<String, String>, options: &Options) -> Result<Config, Errors> {
    read(data, options, false)
}

/// As [`parse`], when there is no earlier configuration to keep. In a takeover ([`Options::takeover`]) the errors that
/// the original ignores (whitelist lines that are not addresses, an unknown engine) are left out as the original does,
/// and listed in [`Config::dropped`]. Otherwise a cluster that ran well with the original would not ban any more.
/// Without a takeover nothing is left out: an allowlist without its bad line would fail open at a restart.
///
/// # Errors
/// As [`parse`].
pub fn parse_first(data: &BTreeMap<String, String>, options: &Options) -> Result<Config, Errors> {
    read(data, options, options.takeover)
}

/// The protection that `after` lacks because a key is missing that `before` had with entries.
///
/// A key that is gone is more often a typing mistake or a template that rendered nothing than intended: its addresses
/// would be banned at once. A key that was emptied is intended.
#[must_use]
pub fn unprotected(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Option<Errors> {
    let mut errors = Errors::default();
    for key in keys::PROTECTING {
        let had = before.get(*key).is_some_and(|text| protects(key, text));
        if had && !after.contains_key(*key) {
            let message = "the key is gone, and the last good configuration protects addresses by it; to give that up, keep the key and empty it";
            errors.add(key, None, message);
        }
    }
    (!errors.0.is_empty()).then_some(errors)
}

/// Whether `key` with `text` protects more than without it.
fn protects(key: &str, text: &str) -> bool {
    let above = |default: u8| {
        let length = text.trim().trim_start_matches('/').parse::<u8>();
        length.is_ok_and(|length| length > default)
    };
    match key {
        keys::PROTECT_PRIVATE => text.trim() == "true",
        keys::MIN_PREFIX_V4 => above(policy::DEFAULT_MIN_PREFIX_V4),
        keys::MIN_PREFIX_V6 => above(policy::DEFAULT_MIN_PREFIX_V6),
        _ => entries(text).next().is_some(),
    }
}

fn read(
    data: &BTreeMap<String, String>,
    options: &Options,
    lenient: bool,
) -> Result<Config, Errors> {
    let mut reader = Reader {
        data,
        errors: Errors::default(),
        lenient,
        dropped: Errors::default(),
    };
    let default_duration = reader
        .duration(keys::DEFAULT_DURATION)
        .unwrap_or(DEFAULT_DURATION);
    let max_duration = reader.duration(keys::MAX_DURATION);
    if let Some(most) = max_duration
        && default_duration > most
    {
        reader.errors.add(
            keys::DEFAULT_DURATION,
            None,
            format!(
                "{} is longer than maxDuration {}",
                duration::display(default_duration),
                duration::display(most)
            ),
        );
    }
    let retention = reader.duration_or(keys::RETENTION, "never", RETENTION);
    let unblock_grace = reader.duration_or(keys::UNBLOCK_GRACE, "none", UNBLOCK_GRACE);
    let repeated_alert = reader.repeated_alert();
    let resync_interval = reader.duration(keys::RESYNC_INTERVAL).unwrap_or(RESYNC);
    if resync_interval < LEAST_RESYNC {
        reader
            .errors
            .add(keys::RESYNC_INTERVAL, None, "the minimum is 10s");
    }
    let triggers = reader.triggers(options);
    let engines = engines::read(data, &triggers, options, &mut reader.errors);
    let engine = reader.engine(options, !engines.is_empty());
    let policy = reader.policy(options, engine.as_ref().ok());
    let mut guard = guard::read(data, max_duration, &mut reader.errors);
    if repeated_alert == Repeat::Escalate && guard.escalation.is_none() {
        let message = "escalate needs the key escalation, which says by how much";
        reader.errors.add(keys::REPEATED_ALERT, None, message);
    }
    let shown = triggers.iter().filter(|trigger| trigger.shadow);
    guard
        .shadow
        .extend(shown.map(|trigger| trigger.name.clone()));
    let sources = super::sources::read(text(data, keys::SOURCES), options, &mut reader.errors);
    let former = gateways::read(data, keys::FORMER_GATEWAYS, &mut reader.errors);
    let place = engine.as_ref().ok().map(|engine| &engine.place);
    let withdrawn = gateways::read_withdrawn(data, place, &former, &mut reader.errors);
    let mut warnings: Vec<String> = data
        .keys()
        .filter(|key| !keys::ALL.contains(&key.as_str()) && !key.starts_with(keys::NOTIFY_PREFIX))
        .map(|key| format!("unknown key {key} ignored"))
        .collect();
    warnings.extend(triggers.iter().filter_map(Definition::warning));
    warnings.extend(Definition::shared_names(&triggers));
    warnings.extend(engines.iter().filter_map(sets::Definition::warning));
    let about_notifications = data
        .keys()
        .map(String::as_str)
        .filter(|key| key.starts_with(keys::NOTIFY_PREFIX));
    let text = |key: &str| text(data, key);
    let notify = super::notify::read(
        text,
        about_notifications,
        options,
        &mut reader.errors,
        &mut warnings,
    );
    if !reader.errors.0.is_empty() {
        return Err(reader.errors);
    }
    Ok(Config {
        engine,
        allowlist: policy.allowlist.clone(),
        engines,
        policy,
        default_duration,
        max_duration,
        retention,
        unblock_grace: unblock_grace.unwrap_or_default(),
        repeated_alert,
        resync_interval,
        triggers,
        guard,
        sources,
        notify,
        warnings,
        dropped: reader.dropped.0.iter().map(ToString::to_string).collect(),
        former,
        withdrawn,
    })
}

struct Reader<'a> {
    data: &'a BTreeMap<String, String>,
    errors: Errors,
    /// Errors that the original ignores go to `dropped`, not to `errors`.
    lenient: bool,
    dropped: Errors,
}

// === impl Reader ===

impl Reader<'_> {
    /// The trimmed text of a key; an empty one counts as absent.
    fn text(&self, key: &str) -> Option<&str> {
        text(self.data, key)
    }

    fn duration(&mut self, key: &str) -> Option<Duration> {
        match duration::parse(self.text(key)?) {
            Ok(duration) => Some(duration),
            Err(error) => {
                self.errors.add(key, None, error);
                None
            }
        }
    }

    /// A duration, or `None` for the text `off`.
    fn duration_or(&mut self, key: &str, off: &str, default: Duration) -> Option<Duration> {
        if self.text(key) == Some(off) {
            return None;
        }
        Some(self.duration(key).unwrap_or(default))
    }

    fn repeated_alert(&mut self) -> Repeat {
        match self.text(keys::REPEATED_ALERT) {
            None | Some("extend") => Repeat::Extend,
            Some("ignore") => Repeat::Ignore,
            Some("escalate") => Repeat::Escalate,
            Some(other) => {
                let message = format!("{other:?} is none of extend, ignore and escalate");
                self.errors.add(keys::REPEATED_ALERT, None, message);
                Repeat::Extend
            }
        }
    }

    fn switch(&mut self, key: &str) -> bool {
        match self.text(key) {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                let message = format!("{other:?} is neither true nor false");
                self.errors.add(key, None, message);
                false
            }
        }
    }

    fn prefix(&mut self, key: &str, default: u8, floor: u8, longest: u8) -> u8 {
        let Some(text) = self.text(key) else {
            return default;
        };
        match text.trim_start_matches('/').parse::<u8>() {
            Ok(length) if (floor..=longest).contains(&length) => length,
            _ => {
                let message = format!("{text:?} is not a prefix length from {floor} to {longest}");
                self.errors.add(key, None, message);
                default
            }
        }
    }

    fn count(&mut self, key: &str) -> Option<usize> {
        let text = self.text(key)?;
        match text.parse() {
            Ok(count) if count > 0 => Some(count),
            _ => {
                let message = format!("{text:?} is not a number above zero");
                self.errors.add(key, None, message);
                None
            }
        }
    }

    /// One target a line.
    fn targets(&mut self, key: &str) -> Vec<Target> {
        let mut targets = Vec::new();
        let text = self.data.get(key).map(String::as_str).unwrap_or_default();
        for (line, entry) in entries(text) {
            match entry.parse() {
                Ok(target) => targets.push(target),
                Err(error) => self.errors.add(key, Some(line), error),
            }
        }
        targets
    }

    /// A file below the directory of secrets.
    fn file(&mut self, key: &str, options: &Options) -> Option<MountedFile> {
        match options.secrets.file(self.text(key)?) {
            Ok(file) => Some(file),
            Err(error) => {
                self.errors.add(key, None, error);
                None
            }
        }
    }

    /// The engine that is called for each block. Without one the engines that follow the set enforce all bans.
    fn engine(&mut self, options: &Options, followed: bool) -> Result<EngineConfig, String> {
        let connect_timeout = self.duration(keys::CONNECT_TIMEOUT).unwrap_or(CONNECT);
        let request_timeout = self.duration(keys::REQUEST_TIMEOUT).unwrap_or(REQUEST);
        let name = self.text(keys::ENGINE);
        let Some(name) = name.or(followed.then(|| Kind::Sets.name())) else {
            let names = Kind::names();
            return Err(format!(
                "no engine is configured: set engine to {names} in the ConfigMap"
            ));
        };
        let kind: Kind = match name.parse() {
            Ok(kind) => kind,
            Err(error) if self.lenient => {
                let message = format!("{error}; xdp is used, as the original does");
                self.dropped.add(keys::ENGINE, None, message);
                Kind::Xdp
            }
            Err(error) => {
                self.errors.add(keys::ENGINE, None, &error);
                return Err(error.to_string());
            }
        };
        if kind == Kind::Sets && !followed {
            let message = "sets stands for the engines of the key engines, and there is none";
            self.errors.add(keys::ENGINE, None, message);
            return Err(message.to_owned());
        }
        let endpoint = if kind.capabilities().gateway {
            Some(self.gateway(options)?)
        } else {
            None
        };
        let place = Place::new(kind.name(), endpoint.as_ref().map_or("", Endpoint::as_str));
        let bearer_token_file = self.file(keys::GATEWAY_TOKEN_FILE, options);
        let authority_file = self.file(keys::GATEWAY_CA_FILE, options);
        if bearer_token_file.is_some()
            && !options.bearer_over_http
            && let Some(endpoint) = &endpoint
            && in_the_clear(endpoint)
        {
            let message = "the token would go over plain HTTP, readable on the way; use https:// in gatewayHost, or run with --allow-bearer-over-http";
            self.errors.add(keys::GATEWAY_TOKEN_FILE, None, message);
        }
        Ok(EngineConfig {
            kind,
            endpoint,
            place,
            connect_timeout,
            request_timeout,
            bearer_token_file,
            authority_file,
        })
    }

    fn gateway(&mut self, options: &Options) -> Result<Endpoint, String> {
        let Some(text) = self.text(keys::GATEWAY_HOST) else {
            return Err(
                "no gateway is configured: set gatewayHost to host:port in the ConfigMap".into(),
            );
        };
        let endpoint = match Endpoint::parse(text) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                self.errors.add(keys::GATEWAY_HOST, None, &error);
                return Err(error.to_string());
            }
        };
        if let Some(address) = literal(&endpoint) {
            let policy = AddressPolicy {
                allow_loopback: options.allow_loopback,
            };
            if !policy.allows(address) {
                let hint = if address.is_loopback() {
                    "; for development, run with --allow-loopback"
                } else {
                    ""
                };
                let message = format!(
                    "the operator must not call {address} (loopback, link-local and metadata addresses are refused{hint})"
                );
                self.errors.add(keys::GATEWAY_HOST, None, &message);
                return Err(message);
            }
        }
        Ok(endpoint)
    }

    fn policy(&mut self, options: &Options, engine: Option<&EngineConfig>) -> Policy {
        let text = self.data.get(keys::WHITELIST).map(String::as_str);
        let dropped = self.lenient.then_some(&mut self.dropped);
        let text = text.unwrap_or_default();
        let allowlist = allowlist::read(text, keys::WHITELIST, &mut self.errors, dropped);
        let configured = self.targets(keys::PROTECTED_RANGES);
        let mut protected = options.infrastructure.clone();
        if let Some(address) = engine
            .and_then(|engine| engine.endpoint.as_ref())
            .and_then(literal)
        {
            protected.push(Protected {
                target: Target::host(address),
                what: "the gateway".into(),
            });
        }
        protected.extend(configured.into_iter().map(|target| Protected {
            target,
            what: policy::CONFIGURED.into(),
        }));
        Policy {
            allowlist,
            protected: protected.into_iter().collect(),
            resolved: Prefixes::new(),
            discovered: Arc::default(),
            protect_private: self.switch(keys::PROTECT_PRIVATE),
            min_prefix_v4: self.prefix(
                keys::MIN_PREFIX_V4,
                policy::DEFAULT_MIN_PREFIX_V4,
                policy::FLOOR_V4,
                32,
            ),
            min_prefix_v6: self.prefix(
                keys::MIN_PREFIX_V6,
                policy::DEFAULT_MIN_PREFIX_V6,
                policy::FLOOR_V6,
                128,
            ),
        }
    }

    fn triggers(&mut self, options: &Options) -> Vec<Definition> {
        let seconds = self.duration(keys::DEBOUNCE).map(|it| it.as_secs());
        let entries = self.count(keys::DEBOUNCE_ENTRIES);
        let dropped = self.lenient.then_some(&mut self.dropped);
        let text = text(self.data, keys::TRIGGER);
        let mut list = triggers::read(text, dropped, &mut self.errors);
        for trigger in &mut list {
            trigger.debounce_seconds = trigger.debounce_seconds.or(seconds);
            trigger.debounce_entries = trigger.debounce_entries.or(entries);
        }
        RawTrigger::define_all(&list, options).unwrap_or_else(|error| {
            self.errors.add(keys::TRIGGER, None, error);
            Vec::new()
        })
    }
}

fn text<'a>(data: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    data.get(key)
        .map(|text| text.trim())
        .filter(|text| !text.is_empty())
}

/// The entries of a text with one a line, with the number of the line; `#` begins a comment.
pub(super) fn entries(text: &str) -> impl Iterator<Item = (usize, &str)> {
    lines(text).filter_map(|(number, line)| {
        let entry = line.split('#').next().unwrap_or_default().trim();
        (!entry.is_empty()).then_some((number, entry))
    })
}

/// The lines of a text with their numbers.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(position, line)| (position + 1, line))
}

/// Whether requests to `endpoint` can be read on their way: not over TLS, and not inside of one machine.
fn in_the_clear(endpoint: &Endpoint) -> bool {
    let local = literal(endpoint).is_some_and(|address| address.is_loopback());
    !endpoint.as_str().starts_with("https://") && !local
}

/// The address of a gateway that is given by number.
fn literal(endpoint: &Endpoint) -> Option<IpAddr> {
    let shown = endpoint.as_str();
    let (host, _) = shown
        .strip_prefix("https://")
        .unwrap_or(shown)
        .rsplit_once(':')?;
    host.trim_start_matches('[')
        .trim_end_matches(']')
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
