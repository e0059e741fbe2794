//! The log: structured, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    #[value(alias = "console")]
    Text,
    /// One JSON object a line.
    Json,
}

/// The flags about the log.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
#[non_exhaustive]
pub struct LogOptions {
    /// What is logged: error, warn, info, debug or trace, also by module as in info,reeve_informer=debug. Unset: what
    /// the environment variable RUST_LOG says, or info.
    #[arg(long, alias = "zap-log-level", value_name = "LEVEL", value_parser = directives)]
    pub log_level: Option<String>,

    /// How log lines look: text for people, json for collectors.
    #[arg(
        long,
        value_enum,
        alias = "zap-encoder",
        default_value = "text",
        value_name = "FORMAT"
    )]
    pub log_format: LogFormat,
}

// === impl LogOptions ===

impl LogOptions {
    /// Starts the log of this process. A second start keeps the first.
    pub fn start(&self) {
        self.start_with("info");
    }

    /// Starts the log, with the level `default` unless the flag or RUST_LOG says otherwise.
    pub fn start_with(&self, default: &str) {
        let variable = std::env::var(EnvFilter::DEFAULT_ENV).ok();
        let directives = self.directives(variable.as_deref(), default);
        let builder = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(&directives))
            .with_writer(std::io::stderr)
            .with_target(false);
        let _ = match self.log_format {
            LogFormat::Text => builder
                .with_ansi(std::io::stderr().is_terminal())
                .try_init(),
            LogFormat::Json => builder
                .json()
                .flatten_event(true)
                .with_span_list(false)
                .try_init(),
        };
    }

    fn directives(&self, variable: Option<&str>, default: &str) -> String {
        let said = self.log_level.as_deref().or(variable);
        let said = said.filter(|said| EnvFilter::try_new(said).is_ok_and(|_| !said.is_empty()));
        said.unwrap_or(default).to_owned()
    }
}

/// What tracing understands.
fn directives(text: &str) -> Result<String, String> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!(
            "{error}; use for example debug, or info,reeve_informer=debug"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_variable_and_what_is_no_level_over_nothing() {
        for (flag, variable, expected) in [
            (None, None, "info"),
            (None, Some("debug"), "debug"),
            (Some("warn"), Some("debug"), "warn"),
            (
                Some("info,reeve_informer=debug"),
                None,
                "info,reeve_informer=debug",
            ),
            (None, Some(""), "info"),
            (None, Some("a=b=c"), "info"),
        ] {
            let options = LogOptions {
                log_level: flag.map(str::to_owned),
                log_format: LogFormat::Text,
            };
            assert_eq!(options.directives(variable, "info"), expected);
        }
    }
}
