//! The log: structured, on standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The format of log lines.
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
    /// The levels of the log: error, warn, info, debug or trace, also by module as in info,reeve_informer=debug; or
    /// zap's numbers, 1 for debug and more for trace. Unset: the environment variable RUST_LOG, or info.
    #[arg(long, alias = "zap-log-level", value_name = "LEVEL", value_parser = directives)]
    pub log_level: Option<String>,

    /// The format of log lines: text for people, json for collectors. Unset: text, or the one of --zap-devel.
    #[arg(long, value_enum, alias = "zap-encoder", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// For development, as in zap: level debug and text; =false: level info and json. The flags for the level and
    /// the format win, and so does RUST_LOG.
    #[arg(
        long,
        action = clap::ArgAction::Set,
        value_parser = clap::builder::BoolishValueParser::new(),
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        value_name = "BOOL"
    )]
    pub zap_devel: Option<bool>,

    /// Accepted for Deployments that set it, without effect: the log has no stack traces.
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = ["debug", "info", "warn", "error", "dpanic", "panic", "fatal"],
        ignore_case = true
    )]
    pub zap_stacktrace_level: Option<String>,

    /// Accepted for Deployments that set it, without effect: times are RFC 3339.
    #[arg(
        long,
        value_name = "ENCODING",
        value_parser = ["epoch", "millis", "nano", "iso8601", "rfc3339", "rfc3339nano"],
        ignore_case = true
    )]
    pub zap_time_encoding: Option<String>,
}

// === impl LogOptions ===

impl LogOptions {
    /// Starts the log of this process. A second start keeps the first.
    pub fn start(&self) {
        self.start_with("info");
    }

    /// Starts the log, with the level `default` unless a flag or RUST_LOG sets another.
    pub fn start_with(&self, default: &str) {
        let variable = std::env::var(EnvFilter::DEFAULT_ENV).ok();
        let directives = self.directives(variable.as_deref(), default);
        let builder = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(&directives))
            .with_writer(std::io::stderr)
            .with_target(false);
        let _ = match self.format() {
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
        let said = said.and_then(|said| directives(said).ok());
        let default = match self.zap_devel {
            None => default,
            Some(true) => "debug",
            Some(false) => "info",
        };
        said.unwrap_or_else(|| default.to_owned())
    }

    fn format(&self) -> LogFormat {
        let of_zap = match self.zap_devel {
            None | Some(true) => LogFormat::Text,
            Some(false) => LogFormat::Json,
        };
        self.log_format.unwrap_or(of_zap)
    }
}

/// Converts zap's directives to those of tracing, and keeps the latter.
fn directives(text: &str) -> Result<String, String> {
    let all: Result<Vec<String>, String> = text.split(',').map(directive).collect();
    let problem = match all.map(|all| all.join(",")) {
        Ok(all) => match EnvFilter::try_new(&all) {
            Ok(_) => return Ok(all),
            Err(error) => error.to_string(),
        },
        Err(problem) => problem,
    };
    Err(format!(
        "{problem}; use for example debug, or info,reeve_informer=debug"
    ))
}

/// Converts one directive. A word alone is a level: tracing would take any other for a module, log it in full, and
/// nothing else. A number is zap's verbosity, which counts in the opposite direction of tracing's.
fn directive(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.contains(['=', '[']) || text.contains("::") {
        return Ok(text.to_owned());
    }
    if let Ok(verbosity) = text.parse::<u32>() {
        let level = ["info", "debug"].get(verbosity as usize);
        return Ok((*level.unwrap_or(&"trace")).to_owned());
    }
    let level = match text.to_lowercase().as_str() {
        "dpanic" | "panic" | "fatal" => "error".to_owned(),
        level => level.to_owned(),
    };
    match level.parse::<LevelFilter>() {
        Ok(_) if !level.is_empty() => Ok(level),
        _ => Err(format!("{text:?} is not a level")),
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
            (None, Some("verbose"), "info"),
            (None, Some("reeve_informer::store"), "reeve_informer::store"),
            (Some("2"), None, "trace"),
        ] {
            let options = LogOptions {
                log_level: flag.map(str::to_owned),
                ..LogOptions::default()
            };
            assert_eq!(options.directives(variable, "info"), expected);
        }
    }

    #[test]
    fn what_is_not_said_is_as_zaps_mode_has_it() {
        for (devel, level, format, expected) in [
            (None, None, None, ("warn", LogFormat::Text)),
            (Some(true), None, None, ("debug", LogFormat::Text)),
            (Some(false), None, None, ("info", LogFormat::Json)),
            (
                Some(true),
                Some("error"),
                Some(LogFormat::Json),
                ("error", LogFormat::Json),
            ),
            (
                Some(false),
                Some("error"),
                Some(LogFormat::Text),
                ("error", LogFormat::Text),
            ),
        ] {
            let options = LogOptions {
                log_level: level.map(str::to_owned),
                log_format: format,
                zap_devel: devel,
                ..LogOptions::default()
            };
            let found = (options.directives(None, "warn"), options.format());
            assert_eq!((found.0.as_str(), found.1), expected, "{devel:?}");
            let variable = options.directives(Some("trace"), "warn");
            assert_eq!(variable, level.unwrap_or("trace"));
        }
    }

    #[test]
    fn a_level_is_tracings_or_zaps_and_anything_else_is_refused() {
        for (said, expected) in [
            ("trace", Some("trace")),
            ("WARN", Some("warn")),
            ("off", Some("off")),
            ("0", Some("info")),
            ("1", Some("debug")),
            ("2", Some("trace")),
            ("10", Some("trace")),
            ("panic", Some("error")),
            ("fatal", Some("error")),
            ("warn, hyper=info", Some("warn,hyper=info")),
            ("inof", None),
            ("info,verbose", None),
            ("-1", None),
            ("", None),
            ("info,", None),
            ("hyper=loud", None),
        ] {
            assert_eq!(directives(said).ok().as_deref(), expected, "{said}");
        }
    }
}
