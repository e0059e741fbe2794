//! The credential plugin of a kubeconfig (`exec`).
//!
//! The rules are client-go's, from `plugin/pkg/client/auth/exec`: a plugin runs at the first request, again when its
//! credentials end, and again after an answer of 401. Differences:
//! * a run that asks nothing ends after three minutes, and what it prints is bounded;
//! * all requests share one run, which does not end with the request that began it;
//! * credentials are renewed a minute before their end, or in the last tenth of their life if that is shorter. Requests
//!   go on with the old ones meanwhile, also when the plugin fails;
//! * the next run begins 10 s after one that succeeded, at the end of its credentials if that comes first, or 1 s after
//!   one that failed. Meanwhile all requests get its result.

mod error;
mod output;
mod run;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use kube_client::config::ExecConfig;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(super) use error::{Failed, PluginError};
#[cfg(all(test, unix))]
pub(super) use run::has_terminal;

use self::output::Output;
use self::run::run;
use super::pair::Pair;

/// Credentials are renewed this long before their end.
const MARGIN: SignedDuration = SignedDuration::from_secs(60);

/// The pause after a run that succeeded. Credentials that have ended, or that the server does not accept, would
/// otherwise start a process for each request.
const PAUSE: Duration = Duration::from_secs(10);

/// The pause after a run that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The plugin of a client, with its last credentials.
pub(super) struct Plugin {
    exec: ExecConfig,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    credential: Option<Credential>,
    run: Option<Run>,
    /// The last run, until the pause after it is over.
    pause: Option<Pause>,
    /// The number of the last credentials.
    number: u64,
}

/// A run under way. It ends when this is dropped.
struct Run {
    result: watch::Receiver<Option<Done>>,
    _task: JoinSet<()>,
}

/// The result of a run.
struct Done {
    outcome: Mutex<Option<Result<Output, PluginError>>>,
    ended: Instant,
    now: Timestamp,
}

struct Pause {
    until: Instant,
    failure: Option<Failed>,
}

/// Credentials of a plugin.
#[derive(Clone)]
pub(super) struct Credential {
    /// Later credentials have a higher number.
    pub(super) number: u64,
    pub(super) token: Option<HeaderValue>,
    /// The same as that of the credentials before, if the certificate is the same.
    pub(super) pair: Option<Arc<Pair>>,
    expires: Option<Timestamp>,
    /// They are renewed this long before `expires`.
    margin: SignedDuration,
    /// The server did not accept them.
    rejected: bool,
}

/// What a request does about its credentials.
enum Step {
    Use(Credential),
    Fail(Failed),
    /// The run is awaited, and then this is asked again.
    Wait(watch::Receiver<Option<Done>>),
}

// === impl Plugin ===

impl Plugin {
    pub(super) fn new(exec: ExecConfig, clock: Clock) -> Self {
        Self {
            exec,
            clock,
            state: Mutex::default(),
        }
    }

    /// The credentials of the next request.
    pub(super) async fn credential(&self) -> Result<Credential, Failed> {
        loop {
            let start = || self.start();
            let step = self.state.lock().step(self.clock.now(), start);
            match step {
                Step::Use(credential) => return Ok(credential),
                Step::Fail(failed) => return Err(failed),
                Step::Wait(mut result) => {
                    // An error is a run that ended without a result, which the next step sees.
                    let _ = result.wait_for(Option::is_some).await;
                }
            }
        }
    }

    /// The server answered 401 to a request with the credentials `number`.
    pub(super) fn rejected(&self, number: u64) {
        let mut state = self.state.lock();
        if let Some(credential) = &mut state.credential
            && credential.number == number
        {
            credential.rejected = true;
        }
    }

    /// Waits for the end of the run under way.
    #[cfg(all(test, unix))]
    pub(super) async fn idle(&self) {
        let result = self.state.lock().run.as_ref().map(|run| run.result.clone());
        if let Some(mut result) = result {
            let _ = result.wait_for(Option::is_some).await;
        }
    }

    fn start(&self) -> Run {
        let (sender, result) = watch::channel(None);
        let (exec, clock) = (self.exec.clone(), self.clock.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let outcome = match run(&exec).await {
                Ok(text) => Output::read(&text, exec.api_version.as_deref()),
                Err(error) => Err(error),
            };
            sender.send_replace(Some(Done {
                outcome: Mutex::new(Some(outcome)),
                ended: Instant::now(),
                now: clock.now(),
            }));
        });
        Run {
            result,
            _task: task,
        }
    }
}

// === impl State ===

impl State {
    fn step(&mut self, now: Timestamp, start: impl Fn() -> Run) -> Step {
        self.settle(now);
        let pause = self.pause.take();
        self.pause = pause.filter(|pause| Instant::now() < pause.until);
        if let Some(credential) = &self.credential {
            let usable = !credential.rejected && !credential.is_over(now);
            let due = !usable || credential.is_due(now);
            if due && self.pause.is_none() && self.run.is_none() {
                self.run = Some(start());
            }
            if usable {
                return Step::Use(credential.clone());
            }
        } else if self.pause.is_none() && self.run.is_none() {
            self.run = Some(start());
        }
        if let Some(run) = &self.run {
            return Step::Wait(run.result.clone());
        }
        let failure = self.pause.as_ref().and_then(|pause| pause.failure.clone());
        match (&self.credential, failure) {
            (_, Some(failure)) => Step::Fail(failure),
            (Some(credential), None) => Step::Use(credential.clone()),
            (None, None) => Step::Fail(Arc::new(PluginError::Lost).into()),
        }
    }

    /// Takes over the result of a run that has ended.
    fn settle(&mut self, now: Timestamp) {
        let Some(run) = &self.run else { return };
        let done = run.result.borrow();
        let (outcome, ended, then) = match &*done {
            Some(done) => (done.outcome.lock().take(), done.ended, done.now),
            None if run.result.has_changed().is_err() => (None, Instant::now(), now),
            None => return,
        };
        drop(done);
        self.run = None;
        let outcome = outcome.unwrap_or(Err(PluginError::Lost));
        let (pause, failure) = match outcome {
            Ok(output) => {
                self.number += 1;
                let credential = self.next(output, then);
                let pause = credential.pause(then);
                self.credential = Some(credential);
                (pause, None)
            }
            Err(error) => {
                tracing::warn!(%error, "no new credentials");
                if let Some(former) = &mut self.credential {
                    // There are no better ones. The next 401 starts the plugin again.
                    former.rejected = false;
                }
                (PAUSE_AFTER_FAILURE, Some(Arc::new(error).into()))
            }
        };
        self.pause = Some(Pause {
            until: ended + pause,
            failure,
        });
    }

    fn next(&self, output: Output, now: Timestamp) -> Credential {
        let former = self
            .credential
            .as_ref()
            .and_then(|former| former.pair.clone());
        let pair = output.pair.map(|pair| match former {
            Some(former) if *former == pair => former,
            _ => Arc::new(pair),
        });
        let life = output.expires.map(|expires| expires.duration_since(now));
        Credential {
            number: self.number,
            token: output.token,
            pair,
            expires: output.expires,
            margin: life.map_or(MARGIN, |life| (life / 10).min(MARGIN)),
            rejected: false,
        }
    }
}

// === impl Credential ===

impl Credential {
    fn is_over(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }

    /// The time until the next run may begin, from `now` on, when they were returned.
    fn pause(&self, now: Timestamp) -> Duration {
        let left = self.expires.map(|expires| expires.duration_since(now));
        let left = left.filter(SignedDuration::is_positive);
        let left = left.map(SignedDuration::unsigned_abs);
        left.map_or(PAUSE, |left| left.clamp(PAUSE_AFTER_FAILURE, PAUSE))
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let left = self.expires.map(|expires| expires.duration_since(now));
        left.is_some_and(|left| left <= self.margin)
    }
}
