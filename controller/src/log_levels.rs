//! The levels of the log, changed while the program runs.

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reeve_serve::debug::{Change, Control, Format, Query, Shown};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::reload;

/// The levels of a log. Clones are one. [`LogOptions::levels`](crate::options::LogOptions::levels) returns those of a log that was
/// started.
///
/// A manager with them serves `/debug/log` on its metrics server
/// ([`log_levels`](crate::manager::Builder::log_levels); [`Manager::from_options`](crate::Manager::from_options) passes them):
/// GET shows the levels, and PUT changes them, with `?for=10m` for that long.
#[derive(Clone)]
pub struct LogLevels(Arc<Shared>);

struct Shared {
    apply: Apply,
    state: Mutex<State>,
    changed: Notify,
}

type Apply = Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>;

/// The levels that are in force.
#[derive(Clone, Debug)]
struct State {
    base: String,
    /// Levels that replace the base until a time.
    temporary: Option<(String, Instant)>,
}

/// The reason why the levels were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LevelError {
    /// The text does not name levels.
    #[error("{0}")]
    Invalid(String),
    /// The log is not in use: the process has another one.
    #[error(
        "the levels cannot be changed: the process uses another log than the one of these options"
    )]
    NotInUse,
}

// === impl State ===

impl State {
    fn in_force(&self) -> &str {
        self.temporary
            .as_ref()
            .map_or(&self.base, |(levels, _)| levels)
    }

    fn end(&self) -> Option<Instant> {
        self.temporary.as_ref().map(|(_, end)| *end)
    }
}

// === impl LogLevels ===

impl LogLevels {
    pub(crate) fn new(
        base: String,
        apply: impl Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            base,
            temporary: None,
        };
        Self(Arc::new(Shared {
            apply: Box::new(apply),
            state: Mutex::new(state),
            changed: Notify::new(),
        }))
    }

    /// The levels in force, as directives: `info,reeve_informer=debug`.
    #[must_use]
    pub fn current(&self) -> String {
        self.0.state.lock().in_force().to_owned()
    }

    /// Changes the levels to `levels`, which is read as `--log-level` is.
    ///
    /// # Errors
    /// When `levels` is invalid, or the log is not in use.
    pub fn set(&self, levels: &str) -> Result<(), LevelError> {
        self.change(levels, None)
    }

    /// As [`LogLevels::set`], for the time `lasts`. The levels that were set without a time come back then. A manager or
    /// [`LogLevels::fall_back`] must run for that.
    ///
    /// # Errors
    /// As [`LogLevels::set`].
    pub fn set_for(&self, levels: &str, lasts: Duration) -> Result<(), LevelError> {
        self.change(levels, Some(lasts))
    }

    fn change(&self, levels: &str, lasts: Option<Duration>) -> Result<(), LevelError> {
        let levels = directives(levels).map_err(LevelError::Invalid)?;
        let end = lasts.and_then(|lasts| Instant::now().checked_add(lasts));
        let mut state = self.0.state.lock();
        self.apply(&levels)?;
        match end {
            Some(end) => state.temporary = Some((levels, end)),
            None => {
                *state = State {
                    base: levels,
                    temporary: None,
                }
            }
        }
        drop(state);
        self.0.changed.notify_waiters();
        Ok(())
    }

    fn apply(&self, levels: &str) -> Result<(), LevelError> {
        (self.0.apply)(EnvFilter::new(levels)).map_err(|_| LevelError::NotInUse)
    }

    /// Ends temporary levels at their time, until it is dropped.
    pub async fn fall_back(&self) -> Infallible {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // Before the state is read, so that no change is missed.
            changed.as_mut().enable();
            let end = self.0.state.lock().end();
            let ended = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = ended => self.end_temporary(),
            }
        }
    }

    fn end_temporary(&self) {
        let shown = self.current();
        let mut state = self.0.state.lock();
        // It may have been replaced meanwhile.
        if state.end().is_none_or(|end| end > Instant::now()) {
            return;
        }
        state.temporary = None;
        let base = state.base.clone();
        let applied = self.apply(&base);
        drop(state);
        match applied {
            Ok(()) => tracing::info!(from = shown, to = base, "log levels fell back"),
            Err(error) => tracing::warn!(%error, "log levels did not fall back"),
        }
    }

    /// The levels as a setting of the metrics server.
    pub(crate) fn control(&self) -> Control {
        let (shown, changed) = (self.clone(), self.clone());
        let show = move |query: &Query| shown.show(query.format);
        let change = move |change: Change| {
            let (from, user) = (changed.current(), change.user.as_deref());
            let result = changed.change(&change.value, change.lasts);
            result.map_err(|error| error.to_string())?;
            let to = changed.current();
            tracing::info!(from, to, lasts = ?change.lasts, user, "log levels changed");
            Ok(changed.text())
        };
        Control::new("log", show, change)
    }

    fn show(&self, format: Format) -> Shown {
        let Format::Json = format else {
            return Shown::Text(self.text());
        };
        let state = self.0.state.lock().clone();
        Shown::Json(json!({
            "levels": state.in_force(),
            "base": state.base,
            "secondsLeft": state.end().map(seconds_until),
        }))
    }

    /// The levels on the first line, and their end on the second.
    fn text(&self) -> String {
        let state = self.0.state.lock().clone();
        match &state.temporary {
            None => format!("{}\n", state.base),
            Some((levels, end)) => {
                let (left, base) = (seconds_until(*end), &state.base);
                format!("{levels}\nfor another {left} s, then {base}\n")
            }
        }
    }
}

impl fmt::Debug for LogLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogLevels").field(&self.current()).finish()
    }
}

/// The seconds until `end`, rounded up.
fn seconds_until(end: Instant) -> u64 {
    let left = end.saturating_duration_since(Instant::now());
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

/// Converts zap's directives to those of tracing, and keeps the latter.
pub(crate) fn directives(text: &str) -> Result<String, String> {
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
    use tokio::time::sleep;

    use super::*;

    /// Levels that begin with `info`, and the filters that were applied.
    fn levels() -> (LogLevels, Arc<Mutex<Vec<String>>>) {
        let applied: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&applied);
        let levels = LogLevels::new("info".to_owned(), move |filter| {
            noted.lock().push(filter.to_string());
            Ok(())
        });
        (levels, applied)
    }

    #[tokio::test(start_paused = true)]
    async fn temporary_levels_fall_back_to_the_last_that_were_set_without_a_time() {
        let (levels, applied) = levels();
        let running = levels.clone();
        let falling = tokio::spawn(async move { running.fall_back().await });
        levels.set("warn").unwrap();
        levels.set_for("debug", Duration::from_secs(600)).unwrap();
        sleep(Duration::from_secs(599)).await;
        assert_eq!(levels.text(), "debug\nfor another 1 s, then warn\n");
        sleep(Duration::from_millis(1001)).await;
        assert_eq!(levels.text(), "warn\n");
        assert_eq!(*applied.lock(), ["warn", "debug", "warn"]);
        falling.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_change_replaces_the_time_of_an_earlier_one() {
        let (levels, applied) = levels();
        let running = levels.clone();
        let falling = tokio::spawn(async move { running.fall_back().await });
        levels.set_for("debug", Duration::from_secs(60)).unwrap();
        sleep(Duration::from_secs(30)).await;
        levels.set_for("trace", Duration::from_secs(60)).unwrap();
        sleep(Duration::from_secs(59)).await;
        assert_eq!(levels.current(), "trace");
        sleep(Duration::from_millis(1001)).await;
        assert_eq!(levels.current(), "info");
        levels.set_for("debug", Duration::from_secs(60)).unwrap();
        levels.set("error").unwrap();
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(levels.current(), "error");
        assert_eq!(
            *applied.lock(),
            ["debug", "trace", "info", "debug", "error"]
        );
        falling.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_levels_change_nothing_and_have_the_message_of_the_flag() {
        let (levels, applied) = levels();
        for wrong in ["loud", "", "hyper=loud"] {
            let error = levels.set_for(wrong, Duration::from_secs(1)).unwrap_err();
            assert_eq!(error.to_string(), directives(wrong).unwrap_err());
        }
        assert_eq!(levels.text(), "info\n");
        assert!(applied.lock().is_empty());
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
