//! The errors of the program, written for the user at the terminal.

/// The reason why a report cannot be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "no program named: deploy/NAME, pod/NAME, -l app=NAME, or --address http://127.0.0.1:8080"
    )]
    NoTarget,
    #[error("several programs named: use one of TARGET, --selector and --address")]
    ManyTargets,
    #[error("{0}: the kinds are deploy, sts, ds, rs, svc and pod; or use -l LABELS")]
    UnknownKind(String),
    #[error("kubectl is not in PATH: install it, or use --address for a program on this machine")]
    NoKubectl,
    #[error("kubectl could not be started: {0}")]
    Start(std::io::Error),
    #[error("kubectl {command} failed: {message}")]
    Kubectl { command: String, message: String },
    #[error("kubectl {command} printed no JSON: {source}")]
    KubectlJson {
        command: String,
        source: serde_json::Error,
    },
    #[error("{0} has no selector, so its Pods are unknown: use -l LABELS")]
    NoSelector(String),
    #[error("{0} has no Pods: is the namespace right (-n)?")]
    NoPods(String),
    #[error("the Pod is {0}")]
    NotRunning(String),
    #[error("kubectl forwarded no port within {0:?}")]
    ForwardTimeout(std::time::Duration),
    #[error("the port of the Pod cannot be reached: {0}; is --port that of the metrics server?")]
    Forward(String),
    #[error(
        "nothing listens at {0}: --address, or --port for a Pod, is that of the metrics server"
    )]
    Refused(String),
    #[error("the request failed: {0}")]
    Request(String),
    #[error("the output cannot be written: {0}")]
    Output(std::io::Error),
    #[error(
        "the page needs credentials (401): add --token \"$(kubectl create token SERVICEACCOUNT)\""
    )]
    Unauthorized,
    #[error(
        "the page is refused (403): {0}; on a protected server the user of --token needs the right to get the path /debug"
    )]
    Forbidden(String),
    #[error(
        "no debug pages there (404): the pages are off, --port is another server's, or it is not a program on Reeve"
    )]
    NoPages,
    #[error(
        "the levels of the log are not served there (404): the program has to pass them to its manager (log_levels)"
    )]
    NoLog,
    #[error("--watch repeats, and --set changes the levels once: use one of the two")]
    WatchedChange,
    #[error("the page answered with status {code}: {text}")]
    Status { code: u16, text: String },
    #[error(
        "the server answers HTTP where HTTPS was expected, or HTTPS where HTTP was: {0}; see --https and the scheme of --address"
    )]
    Scheme(String),
    #[error("the answer is not a report: {0}; --port is perhaps another server's")]
    NotReport(String),
    #[error("{file}: {message}")]
    Authority { file: String, message: String },
}
