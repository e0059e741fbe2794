//! The command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::error::Error;

/// Shows what a running program on Reeve is doing: problems first, then controllers, queues, informers, leader election
/// and own writes.
///
/// It forwards the port of the metrics server of each Pod with kubectl, and reads the debug page there. With --address it
/// reads that of a program on this machine. Exit status 1: a report could not be read.
#[derive(Debug, Parser)]
#[command(name = "kubectl-reeve", bin_name = "kubectl reeve", version)]
#[command(after_help = "Examples:
  kubectl reeve deploy/website -n website-system
  kubectl reeve queues deploy/website --name website --limit 1000
  kubectl reeve -l app=website --watch
  kubectl reeve log deploy/website --set info,reeve_informer=debug --for 10m
  kubectl reeve --address http://127.0.0.1:8080 -o json")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) view: Option<ViewOf>,

    /// The program: deploy/NAME, sts/NAME, ds/NAME, svc/NAME, pod/NAME, or the name of a Pod
    #[arg(value_name = "TARGET")]
    target: Option<String>,

    #[command(flatten)]
    pub(crate) source: Source,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// One part of the report, in full.
#[derive(Debug, Subcommand)]
pub(crate) enum ViewOf {
    /// Show each controller: its state, workers, results, and the state of its watches
    Controllers(Target),
    /// Show each queue with its keys: in flight, ready or waiting, failures and last errors
    Queues(Target),
    /// Show each informer: its state, objects, handlers, and the objects that cannot be read
    Informers(Target),
    /// Show each leader election: the state of this candidate, and the holder
    Election(Target),
    /// Show the own writes that the caches do not show yet
    Writes(Target),
    /// Show the levels of the log, or change them while the program runs
    Log(Log),
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The program, as in `kubectl reeve TARGET`
    target: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    #[command(flatten)]
    of: Target,

    #[command(flatten)]
    change: Option<Change>,
}

/// A change of the levels of the log.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct Change {
    /// The new levels of each program: debug, or info,reeve_informer=debug
    #[arg(long = "set", value_name = "LEVELS", required = false)]
    pub(crate) levels: String,

    /// The time after which the earlier levels come back, at most 24h: 10m, 1h30m. Default: the levels stay
    #[arg(long = "for", value_name = "TIME", requires = "levels", value_parser = time)]
    pub(crate) lasts: Option<String>,
}

/// Where the program is.
#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// Namespace of the program. Default: that of the kubeconfig's context
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,

    /// The kubeconfig
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Labels of the Pods, in place of a target
    #[arg(short = 'l', long, global = true, value_name = "LABELS")]
    pub(crate) selector: Option<String>,

    /// URL of a program that this machine reaches without kubectl: http://127.0.0.1:8080
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) address: Option<String>,

    /// Port of the metrics server in the Pod, a number or the name of a container port. Default: the container port named
    /// metrics, or 8080
    #[arg(long, global = true, value_name = "PORT")]
    pub(crate) port: Option<String>,

    #[command(flatten)]
    pub(crate) access: Access,
}

/// How the metrics server is accessed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Access {
    /// The metrics server of the Pod serves HTTPS. Default: HTTPS where the server does not answer HTTP
    #[arg(long, global = true)]
    pub(crate) https: bool,

    /// Bearer token for a protected metrics server: --token "$(kubectl create token NAME)"
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "REEVE_TOKEN",
        hide_env_values = true
    )]
    pub(crate) token: Option<String>,

    /// PEM file with the authorities of the metrics server's certificate. Default: those of the system
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) certificate_authority: Option<PathBuf>,

    /// Name in the metrics server's certificate, when its port is forwarded
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,

    /// Accept any certificate: a self-signed one through a forwarded port
    #[arg(long, global = true)]
    pub(crate) insecure_skip_tls_verify: bool,
}

/// What is printed.
#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// The format
    #[arg(short, long, global = true, value_enum, default_value = "text")]
    pub(crate) output: Format,

    /// Refresh every 2 seconds
    #[arg(short, long, global = true)]
    pub(crate) watch: bool,

    /// The most keys of a queue and objects of an informer, at most 1000. Default: 10, or 100 for one part
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) limit: Option<u16>,

    /// Only the controller, queue, informer or lease of this name
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Colours: auto uses them on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value = "auto")]
    pub(crate) color: Color,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned tables
    Text,
    /// The reports as the programs serve them
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// The part of the report that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Summary,
    Controllers,
    Queues,
    Informers,
    Election,
    Writes,
}

/// What each program is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Its report, with at most so many keys of a queue and objects of an informer.
    Report(u16),
    /// The levels of its log, after the change.
    Log(Option<Change>),
}

/// The place of the programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A program at this URL, without a slash at its end.
    Address(String),
    /// One Pod.
    Pod(String),
    /// The Pods that the selector of this object matches: `deployment`, `website`.
    Object(String, String),
    /// The Pods with these labels.
    Selector(String),
}

/// The command line of the program, for completions and the manual page.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

// === impl Arguments ===

impl Arguments {
    pub(crate) fn shown(&self) -> View {
        match self.view {
            None | Some(ViewOf::Log(_)) => View::Summary,
            Some(ViewOf::Controllers(_)) => View::Controllers,
            Some(ViewOf::Queues(_)) => View::Queues,
            Some(ViewOf::Informers(_)) => View::Informers,
            Some(ViewOf::Election(_)) => View::Election,
            Some(ViewOf::Writes(_)) => View::Writes,
        }
    }

    pub(crate) fn asked(&self) -> Asked {
        match &self.view {
            Some(ViewOf::Log(log)) => Asked::Log(log.change.clone()),
            _ => Asked::Report(self.limit()),
        }
    }

    /// The place of the programs.
    ///
    /// # Errors
    /// When there are none or several, or the target is of an unknown kind.
    pub(crate) fn place(&self) -> Result<Place, Error> {
        let of_view = self.view.as_ref().and_then(|view| match view {
            ViewOf::Controllers(of)
            | ViewOf::Queues(of)
            | ViewOf::Informers(of)
            | ViewOf::Election(of)
            | ViewOf::Writes(of)
            | ViewOf::Log(Log { of, .. }) => of.target.as_deref(),
        });
        let targets = [self.target.as_deref(), of_view].into_iter().flatten();
        let targets = targets.map(target);
        let Source {
            address, selector, ..
        } = &self.source;
        let address = address.as_deref().map(|url| Ok(Place::Address(base(url))));
        let selector = selector.clone().map(|labels| Ok(Place::Selector(labels)));
        let mut places = targets.chain(address).chain(selector);
        let place = places.next().ok_or(Error::NoTarget)??;
        match places.next() {
            None => Ok(place),
            Some(_) => Err(Error::ManyTargets),
        }
    }

    /// The most keys of a queue.
    fn limit(&self) -> u16 {
        let by_view = if self.shown() == View::Summary {
            // It shows those that fail, which come last.
            1000
        } else {
            100
        };
        self.output.limit.unwrap_or(by_view)
    }
}

/// The place of a target: `deploy/website`, or the name of a Pod.
fn target(text: &str) -> Result<Place, Error> {
    let Some((kind, name)) = text.split_once('/') else {
        return Ok(Place::Pod(text.to_owned()));
    };
    let kind = match kind {
        "po" | "pod" | "pods" => return Ok(Place::Pod(name.to_owned())),
        "deploy" | "deployment" | "deployments" | "deployments.apps" | "deployment.apps" => {
            "deployment"
        }
        "sts" | "statefulset" | "statefulsets" => "statefulset",
        "ds" | "daemonset" | "daemonsets" => "daemonset",
        "rs" | "replicaset" | "replicasets" => "replicaset",
        "svc" | "service" | "services" => "service",
        _ => return Err(Error::UnknownKind(text.to_owned())),
    };
    Ok(Place::Object(kind.to_owned(), name.to_owned()))
}

/// A time such as 10m, which the program reads. It is part of a URL.
fn time(text: &str) -> Result<String, String> {
    if text.chars().all(|each| each.is_ascii_alphanumeric()) {
        Ok(text.to_owned())
    } else {
        Err("a time such as 10m or 1h30m".to_owned())
    }
}

fn base(url: &str) -> String {
    let url = url.trim_end_matches('/');
    if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: &str) -> Result<(View, Place), Error> {
        let arguments = Arguments::try_parse_from(line.split(' ')).expect(line);
        Ok((arguments.shown(), arguments.place()?))
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_line_names_a_view_and_one_place() {
        let object = |kind: &str| Place::Object(kind.into(), "web".into());
        for (line, view, wanted) in [
            ("reeve deploy/web", View::Summary, object("deployment")),
            (
                "reeve queues sts/web -n a",
                View::Queues,
                object("statefulset"),
            ),
            ("reeve -n a queues svc/web", View::Queues, object("service")),
            ("reeve web-0", View::Summary, Place::Pod("web-0".into())),
            (
                "reeve writes pod/web-0",
                View::Writes,
                Place::Pod("web-0".into()),
            ),
            (
                "reeve election -l app=web",
                View::Election,
                Place::Selector("app=web".into()),
            ),
            (
                "reeve --address localhost:8080/",
                View::Summary,
                Place::Address("http://localhost:8080".into()),
            ),
        ] {
            assert_eq!(place(line).unwrap(), (view, wanted), "{line}");
        }
    }

    #[test]
    fn a_line_asks_for_a_report_or_for_the_levels_of_the_log() {
        let asked = |line: &str| Arguments::try_parse_from(line.split(' ')).map(|of| of.asked());
        let change = |lasts: Option<&str>| {
            Asked::Log(Some(Change {
                levels: "debug".into(),
                lasts: lasts.map(Into::into),
            }))
        };
        for (line, wanted) in [
            ("reeve web-0", Asked::Report(1000)),
            ("reeve queues web-0", Asked::Report(100)),
            ("reeve queues web-0 --limit 7", Asked::Report(7)),
            ("reeve log web-0", Asked::Log(None)),
            ("reeve log web-0 --set debug", change(None)),
            (
                "reeve log --set debug --for 10m -l a=b",
                change(Some("10m")),
            ),
        ] {
            assert_eq!(asked(line).unwrap(), wanted, "{line}");
        }
        assert!(asked("reeve log web-0 --for 10m").is_err());
    }

    #[test]
    fn a_line_without_a_place_with_two_or_of_an_unknown_kind_is_refused() {
        assert!(matches!(place("reeve"), Err(Error::NoTarget)));
        assert!(matches!(place("reeve job/a"), Err(Error::UnknownKind(_))));
        for line in ["reeve deploy/a -l app=a", "reeve a --address http://b"] {
            assert!(matches!(place(line), Err(Error::ManyTargets)), "{line}");
        }
    }
}
