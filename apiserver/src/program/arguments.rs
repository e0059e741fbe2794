//! The command line of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};

use crate::store::History;

/// A Kubernetes API server for development and tests: no etcd, no containers, one process.
///
/// It keeps objects, serves watches, validates custom resources against their definitions, and collects
/// what deleted owners leave behind. Nothing runs behind it: a Deployment makes no Pods. NOT for production.
///
/// Try it:
///
///   reeve-apiserver --listen 127.0.0.1:8001 --kubeconfig /tmp/kubeconfig &
///   export KUBECONFIG=/tmp/kubeconfig
///   kubectl get namespaces
#[derive(Debug, Parser)]
#[command(
    name = "reeve-apiserver",
    version,
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) task: Option<Task>,

    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    pub(super) listen: SocketAddr,

    /// Serve HTTPS with a certificate of a fresh authority; the kubeconfig carries the authority.
    #[arg(long)]
    pub(super) tls: bool,

    /// A further DNS name or address in the certificate, besides `localhost`, loopback and the address of --listen. It
    /// may be repeated. Needs --tls.
    #[arg(long, value_name = "NAME")]
    pub(super) tls_san: Vec<String>,

    /// Keep objects in this directory. Without it they are gone when the program ends. Each write is synced to the disk;
    /// tests are faster with --unsafe-no-fsync.
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,

    /// Answer a write before it is synced to the disk. A killed program still loses nothing; a power failure may lose the
    /// last writes. Needs --data-dir.
    #[arg(long, requires = "data_dir")]
    pub(super) unsafe_no_fsync: bool,

    /// Write a kubeconfig to this file (mode 0600), with the rights of an administrator.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// Bearer tokens and their users: lines of `token,user,uid,"group1,group2"`, the groups optional, as in
    /// kube-apiserver's --token-auth-file.
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,

    /// `AlwaysAllow`: everyone may everything. `RBAC`: requests are checked against the stored roles and
    /// bindings; requests without credentials are system:anonymous. It implies --tls, because clients such as
    /// kubectl send credentials over HTTPS only.
    #[arg(long, value_enum, default_value = "AlwaysAllow", value_name = "MODE")]
    pub(super) authorization_mode: AuthorizationMode,

    /// Allow listening on an address that other machines can reach.
    #[arg(long)]
    pub(super) allow_remote: bool,

    /// Serve the control API below /reeve/v1, at the same address: faults, the log of requests, snapshots and reset, time
    /// and history over HTTP. A user needs the rights of an administrator for it, or a role for these paths.
    #[arg(long)]
    pub(super) control: bool,

    #[command(flatten)]
    pub(super) content: Content,

    #[command(flatten)]
    pub(super) behaviour: Behaviour,

    #[command(flatten)]
    pub(super) process: Process,
}

/// What the program does instead of serving.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Task {
    /// Write kube-apiserver and etcd for envtest into a directory, and print the line that makes tests use them.
    ///
    /// Both are this program under another name: they take the flags of the real ones. kubectl of PATH is linked beside them.
    ///
    ///   eval "$(reeve-apiserver envtest ./assets)" && go test ./...
    #[command(verbatim_doc_comment)]
    Envtest {
        /// The directory; it is created if it is missing.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// The objects at the start.
#[derive(Debug, Args)]
#[command(next_help_heading = "Objects at the start")]
pub(super) struct Content {
    /// Install the CustomResourceDefinitions of this file, or of the .yaml, .yml and .json files of this folder, before the
    /// server is ready. Other objects of a folder are skipped. One that exists is replaced. It may be repeated.
    #[arg(long, value_name = "PATH")]
    pub(super) crd_dir: Vec<PathBuf>,

    /// Create the objects of this file, or of the .yaml, .yml and .json files of this folder, before the server is ready, in
    /// an order that works: namespaces and definitions first, webhooks and policies last. A `status` is written too. One
    /// that exists stays as it is. It may be repeated.
    #[arg(long, value_name = "PATH", visible_alias = "seed")]
    pub(super) manifests: Vec<PathBuf>,
}

/// Differences between servers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Behaviour")]
pub(super) struct Behaviour {
    /// Minor version of Kubernetes 1 in /version.
    #[arg(long, value_name = "N", default_value_t = crate::builder::MINOR)]
    pub(super) minor: u32,

    /// Delete the dependents of deleted owners. `false`, as in envtest: keep them.
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(super) gc: bool,

    /// Offer watches that begin with a list (`sendInitialEvents`). `false`, as in servers before 1.32: refuse them.
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(super) streaming_lists: bool,

    /// Delete Events this long after their last write, such as `30m`; `0`: keep them.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub(super) event_ttl: Duration,

    /// Keep the history of each resource, for watches and pages, this long, such as `5m`.
    #[arg(long, value_name = "DURATION", default_value = "75s", value_parser = duration)]
    pub(super) history_age: Duration,

    /// Keep at least this many events of each resource, whatever their age.
    #[arg(long, value_name = "N", default_value_t = History::default().min_events)]
    pub(super) history_min_events: usize,

    /// Keep at most this many events of each resource. A small number gives watches 410 early.
    #[arg(long, value_name = "N", default_value_t = History::default().max_events)]
    pub(super) history_max_events: usize,

    /// Keep at most about this many bytes of history of each resource.
    #[arg(long, value_name = "BYTES", default_value_t = History::default().max_bytes)]
    pub(super) history_max_bytes: usize,
}

/// The process and the program that started it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Process")]
pub(super) struct Process {
    /// Write the port to this file when the server is ready. The file appears complete or not at all, and goes when the server
    /// stops. One of an earlier run is removed at the start.
    #[arg(long, value_name = "FILE")]
    pub(super) port_file: Option<PathBuf>,

    /// Form of the one line on standard output when the server is ready. `text`: `ready URL`. `json`: an object with `url`,
    /// `host`, `port`, `pid`, `version`, `control` (whether its API is served), `kubeconfig` (its text), and
    /// `certificateAuthority` and `token` where there are any.
    #[arg(long, value_enum, default_value = "text", value_name = "FORM")]
    pub(super) output: Output,

    /// Stop when the process that started this one ends, however it ends.
    #[arg(long)]
    pub(super) exit_with_parent: bool,

    /// Stop when standard input ends. A program that holds the other end of a pipe takes the server with it, however it
    /// ends, also through wrappers such as `cargo run`.
    #[arg(long)]
    pub(super) exit_with_stdin: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum AuthorizationMode {
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    #[value(name = "RBAC")]
    Rbac,
}

// === impl Arguments ===

impl Arguments {
    pub(super) fn serves_tls(&self) -> bool {
        self.tls || self.authorization_mode == AuthorizationMode::Rbac
    }
}

// === impl Behaviour ===

impl Behaviour {
    pub(super) fn history(&self) -> History {
        History {
            min_events: self.history_min_events,
            max_events: self.history_max_events,
            max_bytes: self.history_max_bytes,
            age: self.history_age,
        }
    }
}

/// A duration in Go's syntax.
fn duration(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    crate::http::duration::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = ["reeve-apiserver"]
            .into_iter()
            .chain(line.split_whitespace());
        Arguments::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn without_flags_the_server_is_that_of_the_library() {
        let behaviour = parse("").unwrap().behaviour;
        assert_eq!(behaviour.history(), History::default());
        assert_eq!(behaviour.event_ttl, Duration::from_secs(3600));
        assert!(behaviour.gc && behaviour.streaming_lists);
    }

    #[test]
    fn flags_that_are_on_are_turned_off_with_false() {
        let off = parse("--gc=false --streaming-lists=false").unwrap();
        assert!(!off.behaviour.gc && !off.behaviour.streaming_lists);
        let on = parse("--gc --streaming-lists=true").unwrap();
        assert!(on.behaviour.gc && on.behaviour.streaming_lists);
        assert!(parse("--gc=perhaps").unwrap_err().contains("--gc"));
    }

    #[test]
    fn durations_are_those_of_go() {
        let behaviour = parse("--event-ttl 1h30m --history-age=250ms").unwrap();
        assert_eq!(behaviour.behaviour.event_ttl, Duration::from_secs(5400));
        assert_eq!(behaviour.behaviour.history_age, Duration::from_millis(250));
        for wrong in ["--event-ttl 5", "--event-ttl=-5s", "--history-age x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn roles_are_checked_over_https_only() {
        for (line, expected) in [
            ("", false),
            ("--tls", true),
            ("--authorization-mode RBAC", true),
            ("--authorization-mode AlwaysAllow", false),
        ] {
            assert_eq!(parse(line).unwrap().serves_tls(), expected, "{line}");
        }
    }
}
