//! From texts to a [`Config`].

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::keys;
use super::{Config, EngineConfig, Errors, Options};
use crate::api::Place;
use crate::duration;
use crate::engine::{Endpoint, Kind, UnknownEngine};
use crate::mounted::MountedFile;
use crate::outbound::AddressPolicy;
use crate::policy::{self, Policy, Protected};
use crate::target::Target;
use crate::trigger::{Definition, RawTrigger};

const DEFAULT_DURATION: Duration = Duration::from_secs(60 * 60);
const RESYNC: Duration = Duration::from_secs(5 * 60);
/// Asserting more often than this would be a load, not a repair.
const LEAST_RESYNC: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(5);

/// Reads the keys of a ConfigMap.
///
/// # Errors
/// Everything that is wrong, with key and line.
pub fn parse(data: &BTreeMap<String, String>, options: &Options) -> Result<Config, Errors> {
    read(data, options, false)
}

/// As [`parse`], when there is no earlier configuration to keep. In a takeover ([`Options::takeover`]) what the
/// original let pass (whitelist lines that are no address, an engine it does not know) is left out as the original
/// does, and listed in [`Config::dropped`]. Otherwise a cluster that ran well with the original would not ban any
/// more. Without a takeover nothing is left out: an allowlist without its bad line would fail open at a restart.
///
/// # Errors
/// As [`parse`].
pub fn parse_first(data: &BTreeMap<String, String>, options: &Options) -> Result<Config, Errors> {
    read(data, options, options.takeover)
}

/// What `after` protects from bans no longer because a key is missing that `before` had with entries.
///
/// A key that is gone is more often a typing mistake or a template that rendered nothing than a wish: what was
/// allowlisted would be banned at once. An emptied key is a wish.
#[must_use]
pub fn unprotected(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Option<Errors> {
    let mut errors = Errors::default();
    for key in keys::PROTECTING {
        let had = before
            .get(*key)
            .is_some_and(|text| entries(text).next().is_some());
        if had && !after.contains_key(*key) {
            let message = "the key is gone, and the last good configuration has entries in it; to protect nothing, keep the key and empty it";
            errors.add(key, None, message);
        }
    }
    (!errors.0.is_empty()).then_some(errors)
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
    let resync_interval = reader.duration(keys::RESYNC_INTERVAL).unwrap_or(RESYNC);
    if resync_interval < LEAST_RESYNC {
        reader.errors.add(
            keys::RESYNC_INTERVAL,
            None,
            "at least 10s, or the gateway gets no rest",
        );
    }
    let engine = reader.engine(options);
    let policy = reader.policy(options, engine.as_ref().ok());
    let triggers = reader.triggers(options);
    let former = reader.former();
    let mut warnings: Vec<String> = data
        .keys()
        .filter(|key| !keys::ALL.contains(&key.as_str()) && !key.starts_with(keys::NOTIFY_PREFIX))
        .map(|key| format!("unknown key {key} ignored"))
        .collect();
    warnings.extend(triggers.iter().filter_map(Definition::warning));
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
        policy,
        default_duration,
        max_duration,
        resync_interval,
        triggers,
        notify,
        warnings,
        dropped: reader.dropped.0.iter().map(ToString::to_string).collect(),
        former,
    })
}

struct Reader<'a> {
    data: &'a BTreeMap<String, String>,
    errors: Errors,
    /// What the original let pass goes to `dropped`, not to `errors`.
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
                let message = format!("{text:?} is no prefix length from {floor} to {longest}");
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
                let message = format!("{text:?} is no number above zero");
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
                Err(error) if self.lenient && key == keys::WHITELIST => {
                    self.dropped.add(key, Some(line), error);
                }
                Err(error) => self.errors.add(key, Some(line), error),
            }
        }
        targets
    }

    /// One `engine host:port` a line.
    fn former(&mut self) -> Vec<Place> {
        let mut places = Vec::new();
        let key = keys::FORMER_GATEWAYS;
        let text = self.data.get(key).map(String::as_str).unwrap_or_default();
        for (line, entry) in entries(text) {
            match former(entry) {
                Ok(place) => places.push(place),
                Err(why) => self.errors.add(key, Some(line), why),
            }
        }
        places
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

    fn engine(&mut self, options: &Options) -> Result<EngineConfig, String> {
        let connect_timeout = self.duration(keys::CONNECT_TIMEOUT).unwrap_or(CONNECT);
        let request_timeout = self.duration(keys::REQUEST_TIMEOUT).unwrap_or(REQUEST);
        let Some(name) = self.text(keys::ENGINE) else {
            return Err(
                "no engine is configured: set engine to iptables, xdp or dry-run in the ConfigMap"
                    .into(),
            );
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
        let endpoint = if kind == Kind::DryRun {
            None
        } else {
            Some(self.gateway(options)?)
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
                    "; for development, run with --allow-loopback-gateway"
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
        let allowlist = self.targets(keys::WHITELIST);
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
            what: "protectedRanges".into(),
        }));
        Policy {
            allowlist,
            protected,
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
        let debounce = self.duration(keys::DEBOUNCE);
        let entries = self.count(keys::DEBOUNCE_ENTRIES);
        let Some(text) = self
            .data
            .get(keys::TRIGGER)
            .filter(|text| !text.trim().is_empty())
        else {
            return Vec::new();
        };
        let mut list: Vec<RawTrigger> = match serde_yaml_ng::from_str(text) {
            Ok(list) => list,
            Err(error) => {
                let line = error.location().map(|location| location.line());
                let message = format!("a YAML list of triggers is expected: {error}");
                self.errors.add(keys::TRIGGER, line, message);
                return Vec::new();
            }
        };
        for trigger in &mut list {
            let seconds = debounce.map(|debounce| debounce.as_secs());
            trigger.debounce_seconds = trigger.debounce_seconds.or(seconds);
            trigger.debounce_entries = trigger.debounce_entries.or(entries);
        }
        match RawTrigger::define_all(&list, options) {
            Ok(definitions) => definitions,
            Err(error) => {
                self.errors.add(keys::TRIGGER, None, error);
                Vec::new()
            }
        }
    }
}

fn text<'a>(data: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    data.get(key)
        .map(|text| text.trim())
        .filter(|text| !text.is_empty())
}

/// The entries of a text with one a line, with the number of the line; `#` begins a comment.
fn entries(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(position, line)| {
        let entry = line.split('#').next().unwrap_or_default().trim();
        (!entry.is_empty()).then_some((position + 1, entry))
    })
}

fn former(entry: &str) -> Result<Place, String> {
    let (engine, endpoint) = entry.split_once(char::is_whitespace).ok_or_else(|| {
        format!("{entry:?} is not an engine and a gateway; write for example: xdp 192.0.2.1:8080")
    })?;
    let kind: Kind = engine
        .parse()
        .map_err(|error: UnknownEngine| error.to_string())?;
    let endpoint = Endpoint::parse(endpoint).map_err(|error| error.to_string())?;
    Ok(Place::new(kind.name(), endpoint.as_str()))
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
mod tests {
    use super::*;
    use crate::config::Changes;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
            .collect()
    }

    fn open() -> Options {
        Options {
            insecure_triggers: true,
            ..Options::default()
        }
    }

    const ORIGINALS: &[(&str, &str)] = &[
        ("gatewayHost", "10.0.0.5:9521"),
        ("engine", "iptables"),
        ("whitelist", "  198.51.100.1 \n\n203.0.113.0/24\n"),
        (
            "trigger",
            "- name: grafana\n  addr: \":8090\"\n  path: \"/trigger/grafana\"\n",
        ),
        ("notifyType", "lark"),
        (
            "notifyWebhookURL",
            "https://open.feishu.cn/open-apis/bot/v2/hook/x",
        ),
        ("notifyTemplate_ban", "/templates/lark/ban.json"),
    ];

    #[test]
    fn the_originals_configuration_is_read_whole() {
        let config = parse(&data(ORIGINALS), &open()).unwrap();
        assert_eq!(config.place(), Ok(&Place::new("iptables", "10.0.0.5:9521")));
        assert_eq!(config.policy.allowlist.len(), 2);
        assert_eq!(config.triggers.len(), 1);
        assert_eq!(config.triggers[0].path, "/trigger/grafana");
        assert_eq!(config.notify.as_ref().unwrap().templates.len(), 1);
        assert!(config.warnings.is_empty());
        assert_eq!(config.default_duration, Duration::from_secs(3_600));
        assert_eq!(config.max_duration, None);
        let gateway = "10.0.0.5".parse().unwrap();
        assert!(
            config
                .policy
                .refusal(&gateway)
                .unwrap()
                .message
                .contains("the gateway")
        );
    }

    #[test]
    fn an_empty_map_is_a_configuration_without_an_engine() {
        let config = parse(&data(&[]), &Options::default()).unwrap();
        assert!(config.place().unwrap_err().contains("set engine"));
        let config = parse(
            &data(&[("engine", "xdp"), ("gatewayHost", " ")]),
            &Options::default(),
        )
        .unwrap();
        assert!(config.place().unwrap_err().contains("set gatewayHost"));
        let config = parse(&data(&[("engine", "dry-run")]), &Options::default()).unwrap();
        assert_eq!(config.place(), Ok(&Place::new("dry-run", "")));
    }

    #[test]
    fn every_error_names_its_key_and_line() {
        for (key, text, expected) in [
            (
                "whitelist",
                "198.51.100.1\n\nexample.com\n",
                "whitelist, line 3: \"example.com\"",
            ),
            ("protectedRanges", "10.0.0.0/33", "protectedRanges, line 1:"),
            ("engine", "nftables", "engine: unknown engine \"nftables\""),
            (
                "gatewayHost",
                "http://u@h:1",
                "gatewayHost: the gateway address has a user name",
            ),
            ("gatewayHost", "127.0.0.1:9521", "--allow-loopback-gateway"),
            (
                "gatewayHost",
                "169.254.169.254:80",
                "gatewayHost: the operator must not call 169.254.169.254",
            ),
            (
                "defaultDuration",
                "10",
                "defaultDuration: duration \"10\" has a number without a unit",
            ),
            (
                "maxDuration",
                "-1h",
                "maxDuration: duration \"-1h\" is negative",
            ),
            (
                "maxDuration",
                "59m",
                "defaultDuration: 1h is longer than maxDuration 59m",
            ),
            (
                "debounceEntries",
                "0",
                "debounceEntries: \"0\" is no number",
            ),
            ("resyncInterval", "1s", "resyncInterval: at least 10s"),
            (
                "protectPrivate",
                "yes",
                "protectPrivate: \"yes\" is neither true nor false",
            ),
            (
                "minPrefixV4",
                "4",
                "minPrefixV4: \"4\" is no prefix length from 8 to 32",
            ),
            ("minPrefixV6", "x", "minPrefixV6:"),
            ("notifyType", "pigeon", "notifyType: unknown channel"),
            (
                "notifyWebhookURL",
                "",
                "notifyWebhookURL: notifyType is set",
            ),
            (
                "notifyWebhookURL",
                "open.feishu.cn/x",
                "notifyWebhookURL: a URL",
            ),
            (
                "notifyTimezone",
                "Asia/Shanghai",
                "notifyTimezone: an offset",
            ),
            ("trigger", "- name: grafana\n  addr: [\n", "trigger, line"),
            (
                "trigger",
                "- name: other\n  addr: ':1'\n  path: /x\n",
                "trigger: trigger other: unknown type",
            ),
        ] {
            let mut all = data(ORIGINALS);
            all.insert(key.into(), text.into());
            let error = parse(&all, &open()).unwrap_err().to_string();
            assert!(error.contains(expected), "{key}={text:?}: {error}");
        }
    }

    #[test]
    fn the_first_configuration_of_a_takeover_leaves_out_what_the_original_let_pass_and_says_so() {
        let mut all = data(ORIGINALS);
        all.insert("whitelist".into(), "198.51.100.1\nexample.com\n".into());
        all.insert("engine".into(), "ipset".into());
        let takeover = Options {
            takeover: true,
            ..open()
        };
        assert_eq!(parse(&all, &takeover).unwrap_err().0.len(), 2, "an edit");
        assert_eq!(
            parse_first(&all, &open()).unwrap_err().0.len(),
            2,
            "a restart is as strict as an edit"
        );
        let config = parse_first(&all, &takeover).unwrap();
        assert_eq!(config.place(), Ok(&Place::new("xdp", "10.0.0.5:9521")));
        assert_eq!(config.policy.allowlist, ["198.51.100.1".parse().unwrap()]);
        let [engine, line] = config.dropped.as_slice() else {
            panic!("{:?}", config.dropped);
        };
        assert!(engine.contains("ipset") && engine.contains("xdp is used"));
        assert!(line.contains("whitelist, line 2: \"example.com\""));
        // What the original does not know is never left out.
        all.insert("protectedRanges".into(), "nonsense".into());
        assert!(parse_first(&all, &takeover).is_err());
    }

    #[test]
    fn a_protecting_key_that_is_gone_is_an_error_and_an_emptied_one_is_not() {
        let before = data(&[("whitelist", "192.0.2.1"), ("protectedRanges", "# none")]);
        let lost = unprotected(&before, &data(&[("whiteList", "192.0.2.1")])).unwrap();
        assert_eq!(lost.0.len(), 1, "{lost}");
        assert!(
            lost.to_string().starts_with("whitelist: the key is gone"),
            "{lost}"
        );
        for after in [
            data(&[("whitelist", "")]),
            data(&[("whitelist", "192.0.2.2")]),
        ] {
            assert_eq!(unprotected(&before, &after), None);
        }
        assert_eq!(unprotected(&data(&[]), &data(&[])), None);
        assert_eq!(
            unprotected(&data(&[("whitelist", " \n")]), &data(&[])),
            None
        );
    }

    #[test]
    fn files_are_named_below_the_directory_of_secrets_only() {
        let token = "/var/run/secrets/kubernetes.io/serviceaccount/token";
        let hmac = format!("[{{name: grafana, addr: ':8090', path: /p, hmacSecretFile: {token}}}]");
        let bearer =
            format!("[{{name: grafana, addr: ':8090', path: /p, bearerTokenFile: {token}}}]");
        for (key, text) in [
            ("gatewayBearerTokenFile", token),
            ("gatewayCAFile", token),
            ("notifyWebhookURLFile", token),
            ("notifySigningSecretFile", token),
            ("notifyTemplate_ban", token),
            (
                "gatewayCAFile",
                "/etc/ipblock-operator/secrets/../../passwd",
            ),
            ("trigger", &hmac),
            ("trigger", &bearer),
        ] {
            let mut all = data(ORIGINALS);
            all.insert(key.into(), text.into());
            let error = parse(&all, &open()).unwrap_err().to_string();
            assert!(error.starts_with(key), "{key}: {error}");
            assert!(
                error.contains("/etc/ipblock-operator/secrets; only files below it"),
                "{key}: {error}"
            );
        }
        let mut all = data(ORIGINALS);
        let inside = "/etc/ipblock-operator/secrets/ca.crt";
        all.insert("gatewayCAFile".into(), inside.into());
        let config = parse(&all, &open()).unwrap().engine.unwrap();
        assert_eq!(config.authority_file.unwrap().to_string(), inside);
    }

    #[test]
    fn a_bearer_token_goes_over_plain_http_only_when_a_flag_says_so() {
        let read = |host: &str, options: &Options| {
            let mut all = data(ORIGINALS);
            all.insert("gatewayHost".into(), host.into());
            let token = "/etc/ipblock-operator/secrets/token";
            all.insert("gatewayBearerTokenFile".into(), token.into());
            parse(&all, options)
                .map(drop)
                .map_err(|error| error.to_string())
        };
        let flag = Options {
            bearer_over_http: true,
            allow_loopback: true,
            ..open()
        };
        let error = read("gateway.example:9521", &open()).unwrap_err();
        assert!(error.contains("--allow-bearer-over-http"), "{error}");
        assert_eq!(read("https://gateway.example", &open()), Ok(()));
        assert_eq!(read("gateway.example:9521", &flag), Ok(()));
        let local = Options {
            bearer_over_http: false,
            ..flag
        };
        assert_eq!(
            read("127.0.0.1:9521", &local),
            Ok(()),
            "it leaves no machine"
        );
    }

    #[test]
    fn former_gateways_are_read_as_they_are_recorded() {
        let text = "iptables 192.0.2.1:9521  # until May\n\nxdp https://gw.example\n";
        let config = parse(&data(&[("formerGateways", text)]), &open()).unwrap();
        let expected = [
            Place::new("iptables", "192.0.2.1:9521"),
            Place::new("xdp", "https://gw.example:443"),
        ];
        assert_eq!(config.former, expected);
        for wrong in ["192.0.2.1:9521", "nft 192.0.2.1:9521", "xdp http://u@h"] {
            let error = parse(&data(&[("formerGateways", wrong)]), &open()).unwrap_err();
            assert!(
                error.to_string().starts_with("formerGateways, line 1:"),
                "{error}"
            );
        }
    }

    #[test]
    fn alerts_go_only_to_a_namespace_that_is_watched() {
        let read = |namespace: Option<&str>, watched: Option<&str>| {
            let name = namespace.map_or(String::new(), |name| format!(", namespace: {name}"));
            let trigger = format!("[{{name: grafana, addr: ':8090', path: /p{name}}}]");
            let options = Options {
                namespace: "system".into(),
                watch_namespace: watched.map(str::to_owned),
                ..open()
            };
            parse(&data(&[("trigger", &trigger)]), &options)
                .map(drop)
                .map_err(|error| error.to_string())
        };
        assert_eq!(read(None, None), Ok(()));
        assert_eq!(read(Some("other"), None), Ok(()));
        assert_eq!(read(None, Some("system")), Ok(()));
        assert_eq!(read(Some("team"), Some("team")), Ok(()));
        for (namespace, made) in [(None, "system"), (Some("other"), "other")] {
            let error = read(namespace, Some("team")).unwrap_err();
            assert!(
                error.contains(&format!("namespace {made}")) && error.contains("only team"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_trigger_does_not_take_a_port_of_the_operator_itself() {
        let options = Options {
            own_ports: vec![(8081, "health")],
            ..open()
        };
        let read = |address: &str| {
            let trigger = format!("[{{name: grafana, addr: '{address}', path: /p}}]");
            parse(&data(&[("trigger", &trigger)]), &options)
        };
        let error = read(":8081").unwrap_err().to_string();
        assert!(
            error.contains("port 8081") && error.contains("health"),
            "{error}"
        );
        assert!(read("127.0.0.1:8081").is_err());
        assert!(read(":8090").is_ok());
    }

    #[test]
    fn a_signature_without_a_time_is_a_warning() {
        let read = |more: &str| {
            let trigger = format!(
                "[{{name: grafana, addr: ':8090', path: /p, hmacSecretFile: /etc/ipblock-operator/secrets/key{more}}}]"
            );
            parse(&data(&[("trigger", &trigger)]), &open())
                .unwrap()
                .warnings
        };
        assert!(read("")[0].contains("hmacTimestampHeader"));
        assert_eq!(read(", hmacTimestampHeader: X-Time"), [""; 0]);
    }

    #[test]
    fn all_errors_come_at_once() {
        let errors = parse(
            &data(&[("engine", "x"), ("whitelist", "a\nb"), ("maxDuration", "z")]),
            &open(),
        )
        .unwrap_err();
        assert_eq!(errors.0.len(), 4);
    }

    #[test]
    fn the_whitelist_takes_comments() {
        let config = parse(
            &data(&[("whitelist", "# office\n192.0.2.1 # door\n")]),
            &open(),
        )
        .unwrap();
        assert_eq!(config.policy.allowlist.len(), 1);
    }

    #[test]
    fn a_debounce_below_a_second_counts_as_a_second_and_not_as_none() {
        for (debounce, seconds) in [("500ms", 1), ("1500ms", 2), ("1m", 60)] {
            let mut all = data(ORIGINALS);
            all.insert("debounce".into(), debounce.into());
            let config = parse(&all, &open()).unwrap();
            assert_eq!(config.triggers[0].debounce, Duration::from_secs(seconds));
        }
    }

    #[test]
    fn a_new_limit_reaches_the_triggers() {
        let config = |most| parse(&data(&[("maxDuration", most)]), &open()).unwrap();
        let changes = config("2h").changes(&config("24h"));
        assert!(changes.triggers && changes.blocks);
    }

    #[test]
    fn a_default_as_long_as_the_limit_is_right() {
        let both = data(&[("maxDuration", "1h"), ("defaultDuration", "60m")]);
        assert!(parse(&both, &open()).is_ok());
    }

    #[test]
    fn triggers_need_credentials_unless_told_otherwise() {
        let error = parse(&data(ORIGINALS), &Options::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("no credentials"), "{error}");
    }

    #[test]
    fn an_unknown_key_is_a_warning() {
        let config = parse(&data(&[("whiteList", "192.0.2.1")]), &open()).unwrap();
        assert!(config.warnings[0].contains("whiteList"));
    }

    #[test]
    fn a_tls_gateway_is_recorded_with_its_scheme() {
        let config = parse(
            &data(&[("engine", "xdp"), ("gatewayHost", "https://gw.example")]),
            &open(),
        )
        .unwrap();
        let recorded = &config.place().unwrap().endpoint;
        assert_eq!(recorded, "https://gw.example:443");
        assert!(
            Endpoint::parse(recorded).is_ok(),
            "a recorded gateway can be called again"
        );
    }

    #[test]
    fn a_change_says_what_it_is_about() {
        let before = parse(&data(ORIGINALS), &open()).unwrap();
        let with = |key: &str, text: &str| {
            let mut all = data(ORIGINALS);
            all.insert(key.into(), text.into());
            parse(&all, &open()).unwrap().changes(&before)
        };
        let blocks = Changes {
            blocks: true,
            ..Changes::default()
        };
        let notify = Changes {
            notify: true,
            ..Changes::default()
        };
        assert_eq!(with("whitelist", "192.0.2.1"), blocks);
        assert_eq!(with("formerGateways", "xdp 192.0.2.1:80"), blocks);
        assert_eq!(with("notifyWebhookURL", "https://other"), notify);
        assert_eq!(with("unknown", "x"), Changes::default());
        assert!(with("engine", "xdp").engine && with("engine", "xdp").blocks);
        assert!(with("trigger", "").triggers && !with("trigger", "").blocks);
        assert!(with("defaultDuration", "5m").triggers);
    }
}
