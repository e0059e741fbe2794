//! The log: structured, on standard error.

use std::io::IsTerminal as _;
use std::sync::{Arc, OnceLock};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, reload};

use crate::log_levels::{LogLevels, directives};

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

    /// The levels of the log that was made of these options. Clones share them.
    #[arg(skip)]
    levels: Arc<OnceLock<LogLevels>>,
}

// === impl LogOptions ===

impl LogOptions {
    /// Starts the log of this process. A second start keeps the first.
    pub fn start(&self) {
        self.start_with("info");
    }

    /// Starts the log, with the level `default` unless a flag or RUST_LOG sets another.
    pub fn start_with(&self, default: &str) {
        let _ = Registry::default().with(self.layer(default)).try_init();
    }

    /// The log as a layer, for a program that has more layers, such as an exporter of spans; it installs the subscriber
    /// itself:
    ///
    /// ```
    /// # fn example<L>(options: &reeve_controller::options::Options, exporter: L)
    /// # where L: tracing_subscriber::Layer<tracing_subscriber::Registry> + Send + Sync {
    /// use tracing_subscriber::filter::Targets;
    /// use tracing_subscriber::prelude::*;
    ///
    /// // Reconciles have level info, their requests debug.
    /// let spans = Targets::new()
    ///     .with_default(tracing::Level::INFO)
    ///     .with_target("reeve_client", tracing::Level::DEBUG);
    /// tracing_subscriber::registry()
    ///     .with(exporter.with_filter(spans))
    ///     .with(options.log.layer("info"))
    ///     .init();
    /// # }
    /// ```
    ///
    /// The levels of the log filter this layer alone. `default` is that of [`LogOptions::start_with`].
    pub fn layer<S>(&self, default: &str) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.layer_to(default, std::io::stderr().is_terminal(), std::io::stderr)
    }

    fn layer_to<S, W>(
        &self,
        default: &str,
        ansi: bool,
        writer: W,
    ) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let variable = std::env::var(EnvFilter::DEFAULT_ENV).ok();
        let directives = self.directives(variable.as_deref(), default);
        let (filter, handle) = reload::Layer::new(EnvFilter::new(&directives));
        let levels = LogLevels::new(directives, move |filter| handle.reload(filter));
        let _ = self.levels.set(levels);
        let log = fmt::layer().with_writer(writer).with_target(false);
        match self.format() {
            LogFormat::Text => log.with_ansi(ansi).with_filter(filter).boxed(),
            LogFormat::Json => log
                .json()
                .flatten_event(true)
                .with_span_list(false)
                .with_filter(filter)
                .boxed(),
        }
    }

    /// The levels of the log, once [`LogOptions::start`] or [`LogOptions::layer`] was called on these options or a clone.
    #[must_use]
    pub fn levels(&self) -> Option<LogLevels> {
        self.levels.get().cloned()
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

#[cfg(test)]
mod tests {
    use tracing::subscriber::DefaultGuard;
    use tracing_subscriber::filter::LevelFilter;

    use super::*;
    use crate::fake::{Lines, Spans};

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

    /// `options` log this thread to the lines until the guard is dropped. Another layer has all spans.
    fn logging(options: &LogOptions) -> (Lines, DefaultGuard) {
        // Otherwise tracing disables a call site for good when the thread of another test reaches it first.
        let _ = tracing::subscriber::set_global_default(Registry::default());
        let lines = Lines::default();
        let writer = lines.clone();
        let spans = Spans::default().with_filter(LevelFilter::TRACE);
        let subscriber =
            Registry::default()
                .with(spans)
                .with(options.layer_to("info", false, move || writer.clone()));
        (lines, tracing::subscriber::set_default(subscriber))
    }

    #[test]
    fn the_levels_change_what_is_logged_while_the_log_is_in_use() {
        let options = LogOptions {
            log_level: Some("info".into()),
            ..LogOptions::default()
        };
        assert!(options.levels().is_none());
        let (lines, guard) = logging(&options);
        let levels = options.clone().levels().unwrap();
        for (level, expected) in [
            ("info", "info warn"),
            ("1", "debug info warn"),
            ("warn", "warn"),
            ("warn,reeve_controller=info", "info warn"),
            ("off", ""),
        ] {
            levels.set(level).unwrap();
            let before = lines.text().len();
            tracing::debug!("debug");
            tracing::info!("info");
            tracing::warn!("warn");
            let text = lines.text().split_off(before);
            let words: Vec<_> = text
                .lines()
                .filter_map(|line| line.split(' ').next_back())
                .collect();
            assert_eq!(words.join(" "), expected, "{level}");
        }
        drop(guard);
        let error = levels.set("debug").unwrap_err();
        assert_eq!(error, crate::options::LevelError::NotInUse);
        assert_eq!(levels.current(), "off");
    }

    #[test]
    fn a_line_shows_no_span_below_the_level_of_the_log() {
        for (format, expected) in [
            (
                LogFormat::Text,
                r#" WARN reconcile{key="ns/a"}: slow code=1"#.to_owned(),
            ),
            (
                LogFormat::Json,
                r#""level":"WARN","message":"slow","code":1,"span":{"key":"ns/a","name":"reconcile"}}"#
                    .to_owned(),
            ),
        ] {
            let options = LogOptions {
                log_level: Some("info".into()),
                log_format: Some(format),
                ..LogOptions::default()
            };
            let (lines, _guard) = logging(&options);
            tracing::info_span!("reconcile", key = "ns/a").in_scope(|| {
                let request = tracing::debug_span!("request", url.path = "/version");
                request.in_scope(|| tracing::warn!(code = 1, "slow"));
            });
            let text = lines.text();
            assert!(text.trim_end().ends_with(&expected), "{text}");
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
}
