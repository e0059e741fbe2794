//! One request: checked, read, carried out, answered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::{HeaderValue, Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::alerts::{Alerts, Resolved, Unreadable, Verdict, Wanted};
use super::credentials::Refusal;
use super::definition::Definition;
use super::intake::{Intake, Outcome};
use super::listen;
use crate::inbound::{Answer, BodyError, Budget, Request, WholeBody, json, text};
use crate::outbound::BoxFuture;
use crate::sampled::Sampled;
use crate::target::Target;
use reeve_serve::http::ClientCertificate;

/// Largest body, in bytes.
const LARGEST_BODY: usize = 1024 * 1024;

/// Time for a request. The server cuts it off two seconds later, without an answer that counts what was done.
const DEADLINE: Duration = Duration::from_secs(8);

/// A body up to this size, in bytes, is read at once.
const SMALL_BODY: usize = 32 * 1024;

/// Objects of one request that are written at once.
const AT_ONCE: usize = 16;

/// A path and its trigger.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) definition: Definition,
    pub(super) intake: Intake,
    /// The bodies that are read at once.
    pub(super) bodies: Budget,
    /// The log of refused requests: an unknown sender may send any number of them.
    pub(super) refusals: Sampled,
    /// The log of alerts that did not arrive.
    pub(super) missed: Sampled,
    /// The log of requests that were carried out.
    pub(super) accepted: Sampled,
    /// The log of alerts that could not be used or written.
    pub(super) faults: Sampled,
}

/// The outcomes of a request's alerts.
#[derive(Debug, Default)]
struct Tally {
    created: usize,
    triggered: usize,
    extended: usize,
    lifted: usize,
    left_alone: usize,
    stuck: usize,
    debounced: usize,
    ignored: usize,
    rejected: Vec<String>,
    unavailable: Vec<String>,
    not_read: u64,
    /// A fault of an alert that did not prevent its ban.
    remark: Option<String>,
}

/// A write with the target that it is about.
type Write<'a> = BoxFuture<'a, (Target, Outcome)>;

/// How many writes of a target are open.
type Counts = HashMap<Target, usize>;

/// A request that is refused.
#[derive(Debug)]
struct Refused {
    answer: Answer,
    /// For the log.
    why: String,
    /// The operator is at fault, and not the sender.
    fault: bool,
}

/// Counts the answer to a request, also of one that is dropped before it has an answer.
struct Counted<'a> {
    route: &'a Route,
    code: Option<u16>,
}

// === impl Route ===

impl Route {
    /// Answers a request and counts the answer.
    pub(super) async fn receive(self: Arc<Self>, request: Request) -> Answer {
        let mut counted = Counted {
            route: &self,
            code: None,
        };
        let deadline = Instant::now() + DEADLINE;
        let answer = match self.answer(request, deadline).await {
            Ok(answer) => answer,
            Err(refused) => {
                self.log(&refused);
                refused.answer
            }
        };
        counted.code = Some(answer.status().as_u16());
        answer
    }

    /// The one line about a refused request.
    fn log(&self, refused: &Refused) {
        let Some(unlogged) = self.refusals.pass() else {
            return;
        };
        let trigger = &self.definition.name;
        let code = refused.answer.status().as_u16();
        let why = &refused.why;
        if refused.fault {
            tracing::error!(%trigger, code, %why, unlogged, "trigger cannot read its secret and refuses all requests");
        } else {
            tracing::warn!(%trigger, code, %why, unlogged, "trigger refused a webhook request");
        }
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request,
        deadline: Instant,
    ) -> Result<Answer, Refused> {
        if !matches!(*request.method(), Method::POST | Method::PUT) {
            let mut refused = Refused::new(StatusCode::METHOD_NOT_ALLOWED, "send POST or PUT");
            let allow = HeaderValue::from_static("POST, PUT");
            let headers = refused.answer.headers_mut();
            headers.insert(http::header::ALLOW, allow);
            return Err(refused);
        }
        let names = &self.definition.client_names;
        let certificate = request.extensions().get::<ClientCertificate>();
        if !names.is_empty() && !listen::is_named(certificate, names) {
            return Err(Refusal::Unauthorized("the certificate has another name").into());
        }
        let check = self
            .definition
            .credentials
            .check_header(request.headers(), self.intake.shared.time.now())
            .await?;
        let body = self.bodies.read(request.into_body(), LARGEST_BODY).await;
        let body = body.map_err(|error| {
            let status = match error {
                BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
                BodyError::Busy => StatusCode::SERVICE_UNAVAILABLE,
                // It ended early.
                _ => StatusCode::BAD_REQUEST,
            };
            Refused::new(status, error.to_string())
        })?;
        check.body(&body)?;
        let alerts = self.read(body).await;
        let alerts =
            alerts.map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        Ok(self.carry_out(alerts, deadline).await)
    }

    /// Reads a body, a large one on a thread where it may take its time: a pattern searches all of its texts.
    async fn read(self: &Arc<Self>, body: WholeBody) -> Result<Alerts, Unreadable> {
        if body.len() <= SMALL_BODY {
            return self.definition.payload.read(&body);
        }
        let route = Arc::clone(self);
        let read = move || route.definition.payload.read(&body);
        let read = tokio::task::spawn_blocking(read).await;
        // Only a panic of the reader, or the end of the runtime.
        read.unwrap_or_else(|error| {
            Err(Unreadable::Malformed {
                payload: "body",
                problem: error.to_string(),
            })
        })
    }

    /// Writes what the alerts request, as far as that can be done until `deadline`.
    async fn carry_out(&self, alerts: Alerts, deadline: Instant) -> Answer {
        let trigger = &self.definition.name;
        let (left_out, not_read) = (alerts.left_out, alerts.not_read);
        if left_out > 0 || not_read > 0 {
            self.intake
                .shared
                .metrics
                .missed(trigger, left_out, not_read);
            if let Some(unlogged) = self.missed.pass() {
                tracing::warn!(%trigger, left_out, not_read, unlogged, "some alerts were left out by the sender or are past the limit of a request; group alerts by their address");
            }
        }
        let mut tally = Tally {
            not_read,
            ..Tally::default()
        };
        let mut wanted = Vec::new();
        let mut over = Vec::new();
        for judged in alerts.judged {
            match judged.verdict {
                Verdict::Ban(ban) => wanted.push(ban),
                Verdict::Resolved(resolved) if self.intake.lifts => over.push(resolved),
                Verdict::Resolved(_) | Verdict::Ignored(_) => tally.ignored += 1,
                Verdict::Invalid(why) => tally.rejected.push(why),
            }
        }
        tally.remark = wanted.iter().find_map(|ban| ban.remark.clone());
        // An alert of the same request that fires keeps the ban of its address, also when it could not be recorded: the
        // sender repeats the request.
        let unwritten = self.write(&wanted, &mut tally, deadline).await;
        over.retain(|resolved| !unwritten.contains(&resolved.target));
        self.lift(&over, &mut tally, deadline).await;
        tally.log(trigger, &self.accepted, &self.faults);
        tally.answer()
    }

    /// Returns the targets of bans that were not written.
    async fn write(
        &self,
        wanted: &[Wanted],
        tally: &mut Tally,
        deadline: Instant,
    ) -> HashSet<Target> {
        let done = Mutex::new(Vec::new());
        let mut writes: Vec<Write<'_>> = Vec::with_capacity(wanted.len());
        for ban in wanted {
            let done = &done;
            writes.push(Box::pin(async move {
                let outcome = self.intake.take(ban).await;
                if outcome.is_carried_out() {
                    done.lock().push(ban);
                }
                (ban.target, outcome)
            }));
        }
        let mut open: Counts = Counts::new();
        for ban in wanted {
            *open.entry(ban.target).or_default() += 1;
        }
        tally.count_all(writes, &mut open, deadline).await;
        if !open.is_empty() {
            // The sender repeats the whole request: it goes on where this one ended.
            let done = std::mem::take(&mut *done.lock());
            self.intake.unfinished.remember(done.into_iter());
        }
        open.into_keys().collect()
    }

    async fn lift(&self, over: &[Resolved], tally: &mut Tally, deadline: Instant) {
        let mut writes: Vec<Write<'_>> = Vec::with_capacity(over.len());
        for resolved in over {
            let write = async { (resolved.target, self.intake.resolve(resolved).await) };
            writes.push(Box::pin(write));
        }
        tally.count_all(writes, &mut Counts::new(), deadline).await;
    }
}

// === impl Counted ===

impl Drop for Counted<'_> {
    /// The server drops a request that takes longer than it allows, and answers it with 503.
    fn drop(&mut self) {
        let (name, code) = (&self.route.definition.name, self.code.unwrap_or(503));
        self.route.intake.shared.metrics.answered(name, code);
        if self.code.is_none() {
            let why = "the request was cut off, by its sender or after the time of an answer";
            self.route
                .log(&Refused::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
    }
}

// === impl Refused ===

impl Refused {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        let why = why.into();
        Self {
            answer: text(status, why.clone()),
            why,
            fault: false,
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unauthorized(why) => {
                let mut refused = Self::new(StatusCode::UNAUTHORIZED, why);
                let challenge = HeaderValue::from_static("Bearer");
                let headers = refused.answer.headers_mut();
                headers.insert(http::header::WWW_AUTHENTICATE, challenge);
                refused
            }
            // The path and the fault of the file are not for the sender.
            Refusal::NoSecret(ref why) => Self {
                answer: text(StatusCode::SERVICE_UNAVAILABLE, refusal.to_string()),
                why: why.to_string(),
                fault: true,
            },
        }
    }
}

// === impl Tally ===

impl Tally {
    /// Counts the outcomes until `deadline`, and takes the targets of those that are written from `open`.
    async fn count_all(&mut self, writes: Vec<Write<'_>>, open: &mut Counts, deadline: Instant) {
        let mut left = writes.len();
        let mut outcomes = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
        while left > 0 {
            let Ok(Some((target, outcome))) = timeout_at(deadline, outcomes.next()).await else {
                let why = || format!("not written within {DEADLINE:?}");
                self.unavailable
                    .extend(std::iter::repeat_with(why).take(left));
                return;
            };
            left -= 1;
            if !matches!(outcome, Outcome::Unavailable(_))
                && let Some(count) = open.get_mut(&target)
            {
                *count -= 1;
                if *count == 0 {
                    open.remove(&target);
                }
            }
            self.count(outcome);
        }
    }

    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Created => self.created += 1,
            Outcome::Triggered => self.triggered += 1,
            Outcome::Extended => self.extended += 1,
            Outcome::Lifted => self.lifted += 1,
            Outcome::LeftAlone => self.left_alone += 1,
            Outcome::Stuck => self.stuck += 1,
            Outcome::Debounced => self.debounced += 1,
            Outcome::Rejected(why) => self.rejected.push(why),
            Outcome::Unavailable(why) => self.unavailable.push(why),
        }
    }

    fn status(&self) -> StatusCode {
        let good = self.created
            + self.triggered
            + self.extended
            + self.lifted
            + self.left_alone
            + self.stuck
            + self.debounced;
        if !self.unavailable.is_empty() {
            StatusCode::SERVICE_UNAVAILABLE
        } else if !self.rejected.is_empty() && good == 0 {
            // No alert of it can be used: an error code makes the sender show that.
            StatusCode::BAD_REQUEST
        } else {
            StatusCode::OK
        }
    }

    /// At most one line about requests that were carried out, and one about alerts that were not, a period.
    fn log(&self, trigger: &str, accepted: &Sampled, faults: &Sampled) {
        let remark = self.remark.as_deref();
        let faulty = self.stuck > 0 || !(self.rejected.is_empty() && self.unavailable.is_empty());
        if !faulty
            && remark.is_some()
            && let Some(unlogged) = faults.pass()
        {
            tracing::warn!(
                %trigger,
                remark,
                unlogged,
                "a duration of a request is wrong; the default duration is used"
            );
        }
        if faulty && let Some(unlogged) = faults.pass() {
            tracing::warn!(
                %trigger,
                rejected = self.rejected.len(),
                why_rejected = self.rejected.first(),
                not_written = self.unavailable.len(),
                why_not_written = self.unavailable.first(),
                deleting = self.stuck,
                remark,
                unlogged,
                "could not use all alerts of a request; the sender has to repeat those that were not written, and blocks in deletion wait for the gateway to lift their bans"
            );
        }
        if let Some(unlogged) = accepted.pass() {
            tracing::info!(
                %trigger,
                created = self.created,
                triggered = self.triggered,
                extended = self.extended,
                lifted = self.lifted,
                left_alone = self.left_alone,
                debounced = self.debounced,
                ignored = self.ignored,
                rejected = self.rejected.len(),
                unlogged,
                "alerts received"
            );
        }
    }

    fn answer(&self) -> Answer {
        let document = json!({
            "created": self.created,
            "triggered": self.triggered,
            "extended": self.extended,
            "lifted": self.lifted,
            "leftAlone": self.left_alone,
            "deleting": self.stuck,
            "debounced": self.debounced,
            "ignored": self.ignored,
            "rejected": self.rejected.iter().take(20).collect::<Vec<_>>(),
            "notWritten": self.unavailable.len(),
            "notRead": self.not_read,
        });
        let mut answer = json(self.status(), &document);
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            let after = HeaderValue::from_static("5");
            answer
                .headers_mut()
                .insert(http::header::RETRY_AFTER, after);
        }
        answer
    }
}

#[cfg(test)]
mod tests;
