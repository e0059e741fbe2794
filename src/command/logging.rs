//! The log: structured, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The flags about the log.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Arguments {
    /// How log lines look: text for people, json for collectors. RUST_LOG chooses what is logged, for
    /// example RUST_LOG=info,ipblock_operator=debug.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub(super) log_format: Format,
}

/// Starts the log, with level info unless RUST_LOG says otherwise.
pub(super) fn start(format: Format) {
    start_at(format, "info");
}

/// Starts the log, with the level `default` unless RUST_LOG says otherwise.
pub(super) fn start_at(format: Format, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    // A second start, in tests, keeps the first.
    let _ = match format {
        Format::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        Format::Json => builder
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .try_init(),
    };
}
