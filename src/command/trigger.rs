//! `ipblock-operator trigger test`.

use std::fmt::Write as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::config::keys;
use crate::trigger::{DefinitionError, RawTrigger, Tried};

/// Bodies larger than a trigger reads.
const LARGEST: u64 = 1024 * 1024;

/// Try triggers without a cluster.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// Print what a trigger makes of a payload: the bans, and why the other alerts ban nothing.
    ///
    /// Reads no cluster and no secret. The exit status is 1 when the payload bans and resolves nothing. Whether an address
    /// is allowed or protected, and whether a ban exists, is decided later, in the cluster.
    Test(Test),
}

#[derive(Clone, Debug, clap::Args)]
struct Test {
    /// The payload; - is the standard input.
    #[arg(long, value_name = "PAYLOAD")]
    file: PathBuf,

    /// The triggers: a manifest of the ConfigMap, or the YAML list of its key `trigger` alone.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "kind",
        conflicts_with = "kind"
    )]
    config: Option<PathBuf>,

    /// The name of the trigger in --config; not needed where there is one.
    #[arg(long, value_name = "NAME", conflicts_with = "kind")]
    name: Option<String>,

    /// A type with its defaults, in place of --config: grafana or alertmanager.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
}

/// Why nothing can be tried.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The payload is too large for a trigger.
    #[error("the payload is larger than 1 MiB, which a trigger refuses")]
    TooLarge,
    /// The triggers cannot be read.
    #[error("{path}: {problem}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The trigger is wrong.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The payload is not one of the trigger's type.
    #[error("{0}")]
    Payload(String),
    /// The payload makes no ban.
    #[error("the payload bans and resolves nothing")]
    Nothing,
}

/// Runs the command, and returns what to print with the outcome.
pub(super) fn run(arguments: &Arguments) -> (String, Result<(), Error>) {
    let Command::Test(test) = &arguments.command;
    match test.tried() {
        Ok(tried) => (tried.0, if tried.1 { Ok(()) } else { Err(Error::Nothing) }),
        Err(error) => (String::new(), Err(error)),
    }
}

// === impl Test ===

impl Test {
    fn tried(&self) -> Result<(String, bool), Error> {
        let trigger = self.trigger()?;
        let payload = trigger.payload()?;
        let body = read(&self.file)?;
        let tried = payload.tried(&body).map_err(Error::Payload)?;
        Ok(report(&tried))
    }

    fn trigger(&self) -> Result<RawTrigger, Error> {
        let Some(path) = &self.config else {
            let name = self.kind.clone().unwrap_or_default();
            return Ok(RawTrigger {
                name,
                ..RawTrigger::default()
            });
        };
        let wrong = |problem: String| Error::Config {
            path: path.clone(),
            problem,
        };
        let text = String::from_utf8(read(path)?).map_err(|error| wrong(error.to_string()))?;
        let mut triggers = triggers(&text).map_err(&wrong)?;
        let names: Vec<String> = triggers.iter().map(|it| it.name.clone()).collect();
        let at = match &self.name {
            Some(name) => triggers.iter().position(|it| it.name == *name),
            None if triggers.len() == 1 => Some(0),
            None => {
                let names = names.join(", ");
                return Err(wrong(format!(
                    "choose one of its triggers by --name: {names}"
                )));
            }
        };
        match at {
            Some(at) => Ok(triggers.swap_remove(at)),
            None => Err(wrong(format!(
                "it has no such trigger, only {}",
                names.join(", ")
            ))),
        }
    }
}

/// The triggers in a manifest of the ConfigMap, or in a list of triggers.
fn triggers(text: &str) -> Result<Vec<RawTrigger>, String> {
    let problem = |error: serde_saphyr::Error| error.without_snippet().to_string();
    let document: Value = serde_saphyr::from_str(text).map_err(problem)?;
    let pointer = format!("/data/{}", keys::TRIGGER);
    match document.pointer(&pointer).and_then(Value::as_str) {
        Some(list) => serde_saphyr::from_str(list).map_err(problem),
        None if document.is_array() => serde_saphyr::from_str(text).map_err(problem),
        None => Err("it is neither a ConfigMap with the key trigger nor a list of triggers".into()),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut content = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin()
            .lock()
            .take(LARGEST + 1)
            .read_to_end(&mut content)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut content))
    };
    let path = path.to_owned();
    read.map_err(|source| Error::Read { path, source })?;
    if content.len() as u64 > LARGEST {
        return Err(Error::TooLarge);
    }
    Ok(content)
}

/// The text, and whether an alert counts.
fn report(tried: &Tried) -> (String, bool) {
    let mut text = String::new();
    let mut counts = false;
    for (position, line) in &tried.lines {
        counts |= line.counts();
        let _ = writeln!(text, "alert {}: {line}", position + 1);
    }
    if tried.left_out > 0 {
        let _ = writeln!(
            text,
            "{} alerts were left out by the sender",
            tried.left_out
        );
    }
    if tried.not_read > 0 {
        let _ = writeln!(
            text,
            "{} addresses are too many and are not used",
            tried.not_read
        );
    }
    if tried.lines.is_empty() {
        text.push_str("the payload has no alert\n");
    }
    (text, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is removed at the end.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("trigger-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn test(file: PathBuf, config: Option<PathBuf>, name: Option<&str>) -> Arguments {
        let kind = config.is_none().then(|| "alertmanager".to_owned());
        Arguments {
            command: Command::Test(Test {
                file,
                config,
                name: name.map(String::from),
                kind,
            }),
        }
    }

    const PAYLOAD: &str = r#"{"version": "4", "truncatedAlerts": 3, "alerts": [
        {"status": "firing", "labels": {"alertname": "Scan", "ip": "192.0.2.7", "duration": "5m"}},
        {"status": "firing", "labels": {"alertname": "Scan", "ip": "192.0.2.8", "duration": "soon"}},
        {"status": "resolved", "labels": {"ip": "192.0.2.9"}},
        {"status": "firing", "labels": {"alertname": "Watchdog"}},
        {"status": "firing", "labels": {"ip": "example.com"}}]}"#;

    #[test]
    fn each_alert_is_reported_with_its_ban_or_the_reason_against_it() {
        let files = Files::new("report");
        let payload = files.file("payload.json", PAYLOAD);
        let (text, outcome) = run(&test(payload, None, None));
        outcome.unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "alert 1: bans 192.0.2.7 for 5m: Alertmanager alert: Scan"
        );
        assert!(
            lines[1].starts_with("alert 2: bans 192.0.2.8 for the default duration: "),
            "{text}"
        );
        assert!(lines[1].contains("soon"), "{text}");
        assert!(
            lines[2].starts_with("alert 3: resolved 192.0.2.9"),
            "{text}"
        );
        assert_eq!(lines[3], "alert 4: ignored: it has no label ip");
        assert!(lines[4].starts_with("alert 5: cannot be used: "), "{text}");
        assert_eq!(lines[5], "3 alerts were left out by the sender");
    }

    #[test]
    fn a_trigger_is_taken_from_a_configmap_or_from_a_list() {
        let files = Files::new("config");
        let list = "
- {name: graf, type: grafana, addr: ':1', path: /g, hmacSecretFile: /nowhere/key}
- name: waf
  type: generic
  addr: ':1'
  path: /w
  mapping: {ip: /src, reason: /msg}
";
        let indented: String = list.lines().map(|line| format!("    {line}\n")).collect();
        let map = format!("apiVersion: v1\nkind: ConfigMap\ndata:\n  trigger: |\n{indented}");
        let payload = files.file("payload.json", r#"{"src": "192.0.2.7", "msg": "x"}"#);
        for config in [list, &map] {
            let config = files.file("config.yaml", config);
            let (text, outcome) = run(&test(payload.clone(), Some(config.clone()), Some("waf")));
            outcome.unwrap();
            assert_eq!(
                text,
                "alert 1: bans 192.0.2.7 for the default duration: x\n"
            );
            let error = run(&test(payload.clone(), Some(config.clone()), None))
                .1
                .unwrap_err();
            assert!(error.to_string().contains("--name: graf, waf"), "{error}");
            let error = run(&test(payload.clone(), Some(config), Some("x")))
                .1
                .unwrap_err();
            assert!(error.to_string().contains("only graf, waf"), "{error}");
        }
        let other = files.file("config.yaml", "kind: Secret\n");
        let error = run(&test(payload, Some(other), None)).1.unwrap_err();
        assert!(error.to_string().contains("neither a ConfigMap"), "{error}");
    }

    #[test]
    fn a_payload_without_a_ban_is_a_failure() {
        let files = Files::new("nothing");
        for (payload, part) in [
            (
                r#"{"version": "4", "alerts": []}"#,
                "bans and resolves nothing",
            ),
            (
                r#"{"version": "4", "alerts": [{"status": "firing"}]}"#,
                "bans and resolves nothing",
            ),
            (r#"{"version": "3", "alerts": []}"#, "version"),
            ("x", "not an expected Alertmanager webhook payload"),
            (&" ".repeat(1024 * 1024 + 1), "1 MiB"),
        ] {
            let payload = files.file("payload.json", payload);
            let error = run(&test(payload, None, None)).1.unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = run(&test(files.0.join("none"), None, None)).1.unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
    }
}
