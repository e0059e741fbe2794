//! `etcd` as envtest needs it: it is healthy, and holds the data directory. The objects themselves are with the API server of
//! this package, which finds the directory under [`DATA_DIRECTORY`]. There is no key-value API.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::ready;
use http::StatusCode;
use reeve_serve::http::{Limits, RouteError, Router, Running, Server, answer, text};
use serde_json::json;

use super::flags::{Given, Line, Program, Syntax};

/// The path under which the data directory is read, as `{"dataDir": PATH, "unsafeNoFsync": false}`.
pub(super) const DATA_DIRECTORY: &str = "/reeve/data-dir";

/// The version of etcd that the flags and answers are of.
const VERSION: &str = "3.6.8";
const DEFAULT_URL: &str = "http://localhost:2379";
const DEFAULT_DIRECTORY: &str = "default.etcd";
const JSON: &str = "application/json";

pub(super) const PROGRAM: Program = Program {
    name: "etcd",
    syntax: Syntax::Go,
    table: include_str!("etcd_flags.txt"),
    honoured: &[
        (
            "data-dir",
            "The directory of the data, created if it is missing. Default: default.etcd.",
        ),
        (
            "listen-client-urls",
            "Where /health, /livez, /readyz and /version are served: http only. Default: http://localhost:2379.",
        ),
        (
            "unsafe-no-fsync",
            "Answer a write before it is synced to the disk, as envtest asks for. Default: false.",
        ),
        ("version", "Print the version and quit."),
    ],
};

/// The command line, understood.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    directory: PathBuf,
    /// Whether writes are answered before they are synced.
    unsynced: bool,
    addresses: Vec<SocketAddr>,
}

/// The reason why it does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("cannot create the data directory {path}: {source}")]
    Directory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error(transparent)]
    Route(#[from] RouteError),
    #[error("cannot listen for signals: {0}")]
    Signal(std::io::Error),
}

/// Runs until a signal.
///
/// # Errors
/// A wrong command line, a directory that cannot be created, and an address that is in use.
pub(super) async fn run(arguments: &[String]) -> Result<(), Error> {
    let given = match PROGRAM.read(arguments).map_err(Error::Usage)? {
        Line::Help => return print(&PROGRAM.help()),
        Line::Run(given) => given,
    };
    if given.is_set("version") == Some(true) {
        return print(&format!(
            "etcd Version: {VERSION}\nGit SHA: reeve-apiserver\n"
        ));
    }
    let settings = Settings::of(&given)?;
    let ignored = PROGRAM.without_effect(&given).join(", --");
    tracing::debug!(%ignored, "flags without an effect");
    // The directory is made before the first answer: a server that reads its path can use it.
    create(&settings.directory)?;
    let router = router(&settings.directory, settings.unsynced)?;
    let mut running: Vec<Running> = Vec::new();
    for address in settings.addresses {
        let refused = |source| Error::Listen { address, source };
        let handler = router.clone().into_handler();
        let server = Server::bind("etcd", address, handler)
            .await
            .map_err(refused)?
            .limits(limits());
        running.push(server.start().map_err(refused)?);
    }
    crate::process::stop_requested()
        .await
        .map_err(Error::Signal)?;
    for server in running {
        server.stop().await;
    }
    Ok(())
}

fn print(text: &str) -> Result<(), Error> {
    #[allow(clippy::print_stdout, reason = "the output of --help and --version")]
    {
        print!("{text}");
    }
    Ok(())
}

fn limits() -> Limits {
    Limits::default()
        .connections(256)
        .drain(Duration::from_millis(200))
}

fn create(path: &Path) -> Result<(), Error> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path).map_err(|source| Error::Directory {
        path: path.to_owned(),
        source,
    })
}

fn router(directory: &Path, unsynced: bool) -> Result<Router, RouteError> {
    // Another process reads the path, with another working directory.
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let documents = [
        ("/health", json!({"health": "true", "reason": ""})),
        (
            "/version",
            json!({"etcdserver": VERSION, "etcdcluster": "3.6.0", "storage": "3.6.0"}),
        ),
        (
            DATA_DIRECTORY,
            json!({"dataDir": absolute.to_string_lossy(), "unsafeNoFsync": unsynced}),
        ),
    ];
    let mut router = Router::new();
    for (path, document) in documents {
        let content = document.to_string();
        router = router.route(path, move |_| {
            ready(answer(StatusCode::OK, JSON, content.clone()))
        })?;
    }
    for path in ["/livez", "/readyz"] {
        router = router.route(path, |_| ready(text(StatusCode::OK, "ok\n")))?;
    }
    Ok(router)
}

// === impl Settings ===

impl Settings {
    fn of(given: &Given) -> Result<Self, Error> {
        let urls: Vec<&str> = given.items("listen-client-urls").collect();
        let urls = if urls.is_empty() {
            vec![DEFAULT_URL]
        } else {
            urls
        };
        let addresses = urls.into_iter().map(address).collect::<Result<_, _>>()?;
        Ok(Self {
            directory: given.value("data-dir").unwrap_or(DEFAULT_DIRECTORY).into(),
            unsynced: given.is_set("unsafe-no-fsync") == Some(true),
            addresses,
        })
    }
}

/// The address in a URL such as `http://127.0.0.1:2379`.
fn address(url: &str) -> Result<SocketAddr, Error> {
    let refused = |why: &str| Error::Usage(format!("--listen-client-urls: {url:?} {why}"));
    let host = url
        .strip_prefix("http://")
        .ok_or_else(|| refused("is not http://HOST:PORT; other schemes are not served"))?;
    let host = host.trim_end_matches('/').replace("localhost", "127.0.0.1");
    host.parse().map_err(|_| refused("has no address and port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Result<Settings, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match PROGRAM.read(&arguments)? {
            Line::Run(given) => Settings::of(&given).map_err(|error| error.to_string()),
            Line::Help => Err("help".to_owned()),
        }
    }

    #[test]
    fn the_flags_of_envtest_give_the_directory_and_the_address() {
        let line = "--advertise-client-urls=http://127.0.0.1:41 --data-dir=/tmp/k8s_test_framework_1 \
            --listen-client-urls=http://127.0.0.1:41 --listen-peer-urls=http://127.0.0.1:42 --unsafe-no-fsync=true";
        let expected = Settings {
            directory: "/tmp/k8s_test_framework_1".into(),
            unsynced: true,
            addresses: vec![([127, 0, 0, 1], 41).into()],
        };
        assert_eq!(settings(line), Ok(expected));
        let defaults = settings("").unwrap();
        assert_eq!(defaults.directory, Path::new(DEFAULT_DIRECTORY));
        assert!(!defaults.unsynced);
        assert_eq!(defaults.addresses, [([127, 0, 0, 1], 2379).into()]);
    }

    #[test]
    fn what_is_not_an_address_of_http_is_refused() {
        for url in ["https://127.0.0.1:1", "unix://a", "http://127.0.0.1", "x"] {
            let error = settings(&format!("--listen-client-urls={url}")).unwrap_err();
            assert!(error.contains(url), "{error}");
        }
    }
}
