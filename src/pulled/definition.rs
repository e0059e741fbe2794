//! A source as configured.

use std::time::Duration;

use serde::Deserialize;

use super::objects::{self, Objects};
use crate::config::Options;
use crate::duration;
use crate::mounted::{MountedFile, Outside};
use crate::trigger::Pointers;

/// One entry of the ConfigMap's `sources` list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RawSource {
    /// A name for logs, metrics and `spec.source`.
    pub name: String,
    /// `crowdsec` or `feed`. Default: the name.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Where the list is; of CrowdSec, the local API without a path.
    pub url: String,
    /// How often it is pulled. Default `10s` for CrowdSec, `1h` for a feed.
    #[serde(default)]
    pub interval: Option<String>,
    /// `feed`: how long an entry is banned, renewed while it is listed. Default `24h`.
    #[serde(default)]
    pub duration: Option<String>,
    /// `feed`: `plain`, one entry a line, or `json`. Default `plain`.
    #[serde(default)]
    pub format: Option<String>,
    /// `feed` in JSON: the pointer to the array. Default: the document.
    #[serde(default)]
    pub items: Option<String>,
    /// `feed` in JSON: the pointer to the address in an element. Default: the element is the address.
    #[serde(default)]
    pub ip: Option<Pointers>,
    /// `crowdsec`: a mounted file with the key of a bouncer.
    #[serde(default)]
    pub api_key_file: Option<String>,
    /// `feed`: a mounted file with a bearer token.
    #[serde(default)]
    pub bearer_token_file: Option<String>,
    /// A mounted file with the certificate authorities of the server. Default: the system's.
    #[serde(default, rename = "caFile")]
    pub ca_file: Option<String>,
    /// `crowdsec`: the origins whose decisions are taken. Default `crowdsec`, `cscli`: not the lists of others.
    #[serde(default)]
    pub origins: Option<Vec<String>>,
    /// `crowdsec`: the texts of which a scenario must contain one. Default: any scenario.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// `IPBlock`, one object an entry, or `BlockList`, up to 5,000 entries an object. Default `IPBlock`.
    #[serde(default)]
    pub objects: Option<String>,
    /// Entries past this number are left out. Default 1000; of BlockLists 100,000.
    #[serde(default)]
    pub max_entries: Option<usize>,
    /// A larger answer is an error; in bytes. Default 1 MiB; of BlockLists 32 MiB.
    #[serde(default)]
    pub max_bytes: Option<usize>,
    /// Bans ranges too.
    #[serde(default)]
    pub allow_ranges: bool,
    /// The namespace of the objects. Default: the operator's.
    #[serde(default)]
    pub namespace: Option<String>,
}

/// A source that can be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name, for logs, metrics and `spec.source`.
    pub name: String,
    /// What it is.
    pub flavour: Flavour,
    /// Where it is, without a slash at the end.
    pub url: String,
    /// How often it is pulled.
    pub interval: Duration,
    /// The key of CrowdSec, or the token of a feed.
    pub secret: Option<MountedFile>,
    /// The authorities of the server.
    pub authorities: Option<MountedFile>,
    /// What it is kept as.
    pub objects: Objects,
    /// Entries past this number are left out.
    pub max_entries: usize,
    /// A larger answer is an error; in bytes.
    pub max_bytes: usize,
    /// Whether ranges are banned.
    pub allow_ranges: bool,
    /// The namespace of the objects; `None`: the operator's.
    pub namespace: Option<String>,
}

/// What a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// The local API of CrowdSec.
    CrowdSec {
        /// The origins that are taken.
        origins: Vec<String>,
        /// The texts of which a scenario must contain one; empty: any.
        scenarios: Vec<String>,
    },
    /// A list by HTTP.
    Feed {
        /// How long an entry is banned.
        duration: Duration,
        /// The pointers to the array and to the address of an element; `None`: one entry a line.
        json: Option<(String, Pointers)>,
    },
}

/// Why an entry of the list cannot be pulled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The name is empty, or has other characters than a label may have.
    #[error("a source has no name, or one with other characters than letters, digits, - _ and .")]
    Name,
    /// Two have one name.
    #[error("two sources have the name {0}")]
    Same(String),
    /// A field is wrong.
    #[error("source {name}: {field}: {problem}")]
    Field {
        /// The source.
        name: String,
        /// The field.
        field: &'static str,
        /// What is wrong, and what to write.
        problem: String,
    },
    /// A file that may not be read.
    #[error("source {name}: {source}")]
    File {
        /// The source.
        name: String,
        /// The fault of its path.
        source: Outside,
    },
}

// === impl RawSource ===

impl RawSource {
    /// Checks the entry.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub fn define(&self, options: &Options) -> Result<Source, SourceError> {
        let name = self.name.trim().to_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
            return Err(SourceError::Name);
        }
        let wrong = |field, problem: String| SourceError::Field {
            name: name.clone(),
            field,
            problem,
        };
        let file = |path: &Option<String>| {
            let file = path.as_ref().map(|path| options.secrets.file(path));
            let name = name.clone();
            file.transpose()
                .map_err(|source| SourceError::File { name, source })
        };
        let time = |field, text: &Option<String>, default: u64, least: u64| {
            let parsed = text.as_deref().map(duration::parse).transpose();
            let parsed = parsed.map_err(|error| wrong(field, error.to_string()))?;
            let parsed = parsed.unwrap_or(Duration::from_secs(default));
            if parsed < Duration::from_secs(least) {
                return Err(wrong(field, format!("the minimum is {least}s")));
            }
            Ok(parsed)
        };
        let crowdsec = match self.kind.as_deref().unwrap_or(&name) {
            "crowdsec" => true,
            "feed" => false,
            other => {
                let problem = format!("unknown type {other:?}; use type: crowdsec or feed");
                return Err(wrong("type", problem));
            }
        };
        self.check_fields(crowdsec, &wrong)?;
        let secret = if crowdsec {
            file(&self.api_key_file)?
        } else {
            file(&self.bearer_token_file)?
        };
        let url = self
            .url(secret.is_some(), options)
            .map_err(|why| wrong("url", why))?;
        let flavour = if crowdsec {
            let default = || vec!["crowdsec".to_owned(), "cscli".to_owned()];
            Flavour::CrowdSec {
                origins: self.origins.clone().unwrap_or_else(default),
                scenarios: self.scenarios.clone(),
            }
        } else {
            Flavour::Feed {
                duration: time("duration", &self.duration, 24 * 3600, 60)?,
                json: self.json().map_err(|(field, why)| wrong(field, why))?,
            }
        };
        let interval = if crowdsec {
            time("interval", &self.interval, 10, 1)?
        } else {
            time("interval", &self.interval, 3600, 30)?
        };
        if let Flavour::Feed { duration, .. } = &flavour
            && *duration < interval * 2
        {
            let problem = "it is shorter than twice the interval, so that bans would end while they are listed";
            return Err(wrong("duration", problem.into()));
        }
        let objects = self
            .objects
            .as_deref()
            .map_or(Ok(Objects::default()), |it| {
                Objects::named(it).map_err(|why| wrong("objects", why))
            })?;
        if objects == Objects::Lists && !objects::is_label(&name) {
            let problem = format!(
                "the names of BlockLists begin with the name of the source, and {name:?} has other characters than small letters, digits and - inside"
            );
            return Err(wrong("objects", problem));
        }
        let bounds = objects.bounds(crowdsec);
        let (default, most) = bounds.entries;
        let max_entries = self.max_entries.unwrap_or(default);
        if !(1..=most).contains(&max_entries) {
            let more = match objects {
                Objects::Blocks => "; with objects: BlockList more are possible",
                Objects::Lists => "",
            };
            return Err(wrong("maxEntries", format!("it is from 1 to {most}{more}")));
        }
        let (default, most) = bounds.bytes;
        let max_bytes = self.max_bytes.unwrap_or(default);
        if !(1024..=most).contains(&max_bytes) {
            return Err(wrong("maxBytes", format!("it is from 1024 to {most}")));
        }
        let namespace = self.namespace.as_deref().unwrap_or(&options.namespace);
        if let Some(watched) = &options.watch_namespace
            && watched != namespace
        {
            let problem = format!("only {watched} is watched (--watch-namespace)");
            return Err(wrong("namespace", problem));
        }
        let authorities = file(&self.ca_file)?;
        Ok(Source {
            name,
            flavour,
            url,
            interval,
            secret,
            authorities,
            objects,
            max_entries,
            max_bytes,
            allow_ranges: self.allow_ranges,
            namespace: self.namespace.clone(),
        })
    }

    /// Checks a whole list.
    ///
    /// # Errors
    /// The first error.
    pub fn define_all(list: &[Self], options: &Options) -> Result<Vec<Source>, SourceError> {
        let mut sources: Vec<Source> = Vec::with_capacity(list.len());
        for raw in list {
            let source = raw.define(options)?;
            if sources.iter().any(|it| it.name == source.name) {
                return Err(SourceError::Same(source.name));
            }
            sources.push(source);
        }
        Ok(sources)
    }

    /// Refuses the fields of the other type, and asks for those of its own.
    fn check_fields(
        &self,
        crowdsec: bool,
        wrong: &impl Fn(&'static str, String) -> SourceError,
    ) -> Result<(), SourceError> {
        let of_feed = [
            ("duration", self.duration.is_some()),
            ("format", self.format.is_some()),
            ("items", self.items.is_some()),
            ("ip", self.ip.is_some()),
            ("bearerTokenFile", self.bearer_token_file.is_some()),
        ];
        let of_crowdsec = [
            ("apiKeyFile", self.api_key_file.is_some()),
            ("origins", self.origins.is_some()),
            ("scenarios", !self.scenarios.is_empty()),
        ];
        let (others, other) = if crowdsec {
            (&of_feed[..], "feed")
        } else {
            (&of_crowdsec[..], "crowdsec")
        };
        if let Some((field, _)) = others.iter().find(|(_, given)| *given) {
            return Err(wrong(field, format!("it is for the type {other}")));
        }
        if crowdsec && self.api_key_file.is_none() {
            let problem = "it is missing; cscli bouncers add makes a key";
            return Err(wrong("apiKeyFile", problem.into()));
        }
        Ok(())
    }

    fn url(&self, secret: bool, options: &Options) -> Result<String, String> {
        let text = self.url.trim().trim_end_matches('/');
        let parsed = url::Url::parse(text).map_err(|error| error.to_string())?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none() {
            return Err("a URL that begins with https:// or http:// is expected".into());
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err("a password belongs into a mounted file, not into the URL".into());
        }
        let local = match parsed.host() {
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            _ => false,
        };
        if secret && parsed.scheme() == "http" && !local && !options.bearer_over_http {
            return Err("the key would go over plain HTTP, readable on the way; use https://, or run with --allow-bearer-over-http".into());
        }
        Ok(text.to_owned())
    }

    fn json(&self) -> Result<Option<(String, Pointers)>, (&'static str, String)> {
        let json = match self.format.as_deref() {
            None | Some("plain") => false,
            Some("json") => true,
            Some(other) => {
                let problem = format!("{other:?} is neither plain nor json");
                return Err(("format", problem));
            }
        };
        let items = self.items.clone().unwrap_or_default();
        let ip = self.ip.clone().unwrap_or(Pointers::One(String::new()));
        if !json {
            let given = self.items.is_some() || self.ip.is_some();
            let problem = "items and ip are for format: json".to_owned();
            return if given {
                Err(("format", problem))
            } else {
                Ok(None)
            };
        }
        let wrong = |pointer: &&String| !pointer.is_empty() && !pointer.starts_with('/');
        let mut pointers = std::iter::once(&items).chain(ip.all());
        if let Some(pointer) = pointers.find(wrong) {
            let problem = format!("{pointer:?} is not a JSON pointer; it begins with /");
            return Err(("ip", problem));
        }
        Ok(Some((items, ip)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounted::Directory;

    fn define(yaml: &str) -> Result<Source, String> {
        let raw: RawSource = serde_saphyr::from_str(yaml).unwrap();
        let options = Options {
            secrets: Directory::new("/s"),
            ..Options::default()
        };
        raw.define(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn each_type_has_its_defaults() {
        let feed = define("{name: feed, url: 'https://lists.example/bad.txt'}").unwrap();
        assert_eq!(feed.interval, Duration::from_secs(3600));
        assert_eq!((feed.max_entries, feed.max_bytes), (1000, 1024 * 1024));
        let Flavour::Feed {
            duration,
            json: None,
        } = feed.flavour
        else {
            panic!("{feed:?}");
        };
        assert_eq!(duration, Duration::from_secs(24 * 3600));
        let yaml =
            "{name: a, type: crowdsec, url: 'https://lapi.example:8080/', apiKeyFile: /s/key}";
        let crowdsec = define(yaml).unwrap();
        assert_eq!(crowdsec.url, "https://lapi.example:8080");
        assert_eq!(crowdsec.interval, Duration::from_secs(10));
        let Flavour::CrowdSec { origins, .. } = crowdsec.flavour else {
            panic!("{crowdsec:?}");
        };
        assert_eq!(origins, ["crowdsec", "cscli"], "not the lists of others");
    }

    #[test]
    fn block_lists_have_larger_bounds() {
        let yaml = "{name: feed, url: 'https://lists.example/bad.txt', objects: BlockList}";
        let feed = define(yaml).unwrap();
        assert_eq!(feed.objects, Objects::Lists);
        assert_eq!((feed.max_entries, feed.max_bytes), (100_000, 32 << 20));
        let yaml = yaml.replace('}', ", maxEntries: 1000000, maxBytes: 67108864}");
        assert_eq!(define(&yaml).unwrap().max_entries, 1_000_000);
    }

    #[test]
    fn each_wrong_field_is_named_with_its_remedy() {
        let base = "name: x, url: 'https://a.example'";
        for (extra, word) in [
            ("", "type: unknown type \"x\""),
            ("type: crowdsec", "apiKeyFile: it is missing"),
            (
                "type: crowdsec, apiKeyFile: /etc/passwd",
                "not a file below /s",
            ),
            (
                "type: crowdsec, apiKeyFile: /s/k, duration: 1h",
                "duration: it is for the type feed",
            ),
            (
                "type: feed, origins: [a]",
                "origins: it is for the type crowdsec",
            ),
            ("type: feed, interval: 5s", "interval: the minimum is 30s"),
            ("type: feed, interval: soon", "interval: "),
            (
                "type: feed, duration: 1h",
                "duration: it is shorter than twice the interval",
            ),
            ("type: feed, format: xml", "neither plain nor json"),
            ("type: feed, ip: /a", "items and ip are for format: json"),
            ("type: feed, format: json, ip: a", "not a JSON pointer"),
            (
                "type: feed, maxEntries: 0",
                "maxEntries: it is from 1 to 5000",
            ),
            (
                "type: feed, maxEntries: 5001",
                "maxEntries: it is from 1 to 5000",
            ),
            (
                "type: feed, maxEntries: 5001",
                "with objects: BlockList more are possible",
            ),
            (
                "type: feed, objects: BlockList, maxEntries: 1000001",
                "maxEntries: it is from 1 to 1000000",
            ),
            (
                "type: crowdsec, apiKeyFile: /s/k, objects: BlockList, maxEntries: 100001",
                "maxEntries: it is from 1 to 100000",
            ),
            (
                "type: feed, objects: IPSet",
                "objects: \"IPSet\" is neither IPBlock nor BlockList",
            ),
            ("type: feed, maxBytes: 1", "maxBytes: "),
        ] {
            let error = define(&format!("{{{base}, {extra}}}")).expect_err(extra);
            assert!(error.contains(word), "{extra}: {error}");
        }
        for (yaml, word) in [
            ("{name: feed, url: 'ftp://a'}", "begins with https://"),
            ("{name: feed, url: 'lists'}", "url: "),
            (
                "{name: feed, url: 'https://u:p@a.example'}",
                "a password belongs",
            ),
            (
                "{name: Bad_Hosts, type: feed, url: 'https://a', objects: BlockList}",
                "objects: the names of BlockLists begin",
            ),
            ("{name: 'a b', type: feed, url: 'https://a'}", "no name"),
            (
                "{name: crowdsec, url: 'http://lapi:8080', apiKeyFile: /s/k}",
                "--allow-bearer-over-http",
            ),
        ] {
            let error = define(yaml).expect_err(yaml);
            assert!(error.contains(word), "{yaml}: {error}");
        }
        assert!(define("{name: crowdsec, url: 'http://127.0.0.1:8080', apiKeyFile: /s/k}").is_ok());
    }
}
