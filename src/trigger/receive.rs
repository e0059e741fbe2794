//! One request: checked, read, carried out, answered.

use std::sync::Arc;

use futures::StreamExt;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;

use super::alerts::{Alerts, Resolved, Verdict, Wanted};
use super::credentials::Refusal;
use super::definition::Definition;
use super::intake::{Intake, Outcome};
use super::listen;
use crate::inbound::{Answer, BodyError, Request, json, text};
use crate::outbound::BoxFuture;
use crate::sampled::Sampled;
use reeve_serve::http::ClientCertificate;

/// Largest body, in bytes.
const LARGEST_BODY: usize = 1024 * 1024;

/// Objects of one request that are written at once.
const AT_ONCE: usize = 16;

/// A path and its trigger.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) definition: Definition,
    pub(super) intake: Intake,
    /// The log of refused requests: an unknown sender may send any number of them.
    pub(super) refusals: Sampled,
    /// The log of alerts that did not arrive.
    pub(super) missed: Sampled,
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
}

// === impl Route ===

impl Route {
    /// Answers a request and counts the answer.
    pub(super) async fn receive(self: Arc<Self>, request: Request) -> Answer {
        let answer = match self.answer(request).await {
            Ok(answer) | Err(answer) => answer,
        };
        let code = answer.status().as_u16();
        let name = &self.definition.name;
        self.intake.shared.metrics.answered(name, code);
        if code >= 400
            && let Some(unlogged) = self.refusals.pass()
        {
            tracing::warn!(trigger = %name, code, unlogged, "trigger refused a webhook request");
        }
        answer
    }

    async fn answer(&self, request: Request) -> Result<Answer, Answer> {
        if !matches!(*request.method(), Method::POST | Method::PUT) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "send POST or PUT");
            let allow = HeaderValue::from_static("POST, PUT");
            answer.headers_mut().insert(http::header::ALLOW, allow);
            return Err(answer);
        }
        let refuse = |refusal| self.refuse(&refusal);
        let names = &self.definition.client_names;
        let certificate = request.extensions().get::<ClientCertificate>();
        if !names.is_empty() && !listen::is_named(certificate, names) {
            let refusal = Refusal::Unauthorized("the certificate has another name");
            return Err(self.refuse(&refusal));
        }
        let check = self
            .definition
            .credentials
            .check_header(request.headers(), self.intake.shared.time.now())
            .await
            .map_err(refuse)?;
        let budget = &self.intake.shared.bodies;
        let body = budget.read(request.into_body(), LARGEST_BODY).await;
        let body = body.map_err(|error| {
            let status = match error {
                BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
                BodyError::Busy => StatusCode::SERVICE_UNAVAILABLE,
                // It ended early.
                _ => StatusCode::BAD_REQUEST,
            };
            text(status, error.to_string())
        })?;
        check.body(&body).map_err(refuse)?;
        let alerts = self.definition.payload.read(&body);
        let alerts = alerts.map_err(|error| text(StatusCode::BAD_REQUEST, error.to_string()))?;
        Ok(self.carry_out(alerts).await)
    }

    fn refuse(&self, refusal: &Refusal) -> Answer {
        match refusal {
            Refusal::Unauthorized(why) => {
                if let Some(unlogged) = self.refusals.pass() {
                    tracing::warn!(trigger = %self.definition.name, why, unlogged, "trigger refused a webhook request");
                }
                let mut answer = text(StatusCode::UNAUTHORIZED, *why);
                let challenge = HeaderValue::from_static("Bearer");
                answer
                    .headers_mut()
                    .insert(http::header::WWW_AUTHENTICATE, challenge);
                answer
            }
            Refusal::NoSecret(why) => {
                // The path and the fault of the file are not for the sender.
                if let Some(unlogged) = self.refusals.pass() {
                    tracing::error!(trigger = %self.definition.name, %why, unlogged, "trigger cannot read its secret and refuses all requests");
                }
                text(StatusCode::SERVICE_UNAVAILABLE, refusal.to_string())
            }
        }
    }

    async fn carry_out(&self, alerts: Alerts) -> Answer {
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
        for remark in wanted.iter().filter_map(|ban| ban.remark.as_deref()) {
            tracing::warn!(%trigger, "{remark}");
        }
        // An alert of the same request that fires keeps the ban of its address.
        self.write(&wanted, &mut tally).await;
        self.lift(&over, &mut tally).await;
        tally.answer(trigger)
    }

    async fn write(&self, wanted: &[Wanted], tally: &mut Tally) {
        let mut writes: Vec<BoxFuture<'_, Outcome>> = Vec::with_capacity(wanted.len());
        for ban in wanted {
            writes.push(Box::pin(self.intake.take(ban)));
        }
        tally.count_all(writes).await;
    }

    async fn lift(&self, over: &[Resolved], tally: &mut Tally) {
        let mut writes: Vec<BoxFuture<'_, Outcome>> = Vec::with_capacity(over.len());
        for resolved in over {
            writes.push(Box::pin(self.intake.resolve(resolved)));
        }
        tally.count_all(writes).await;
    }
}

// === impl Tally ===

impl Tally {
    async fn count_all(&mut self, writes: Vec<BoxFuture<'_, Outcome>>) {
        let tally = self;
        let mut outcomes = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
        while let Some(outcome) = outcomes.next().await {
            match outcome {
                Outcome::Created => tally.created += 1,
                Outcome::Triggered => tally.triggered += 1,
                Outcome::Extended => tally.extended += 1,
                Outcome::Lifted => tally.lifted += 1,
                Outcome::LeftAlone => tally.left_alone += 1,
                Outcome::Stuck => tally.stuck += 1,
                Outcome::Debounced => tally.debounced += 1,
                Outcome::Rejected(why) => tally.rejected.push(why),
                Outcome::Unavailable(why) => tally.unavailable.push(why),
            }
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

    fn answer(&self, trigger: &str) -> Answer {
        for why in self.rejected.iter().take(5) {
            tracing::warn!(%trigger, %why, "could not use an alert");
        }
        if let Some(why) = self.unavailable.first() {
            let alerts = self.unavailable.len();
            tracing::warn!(%trigger, alerts, %why, "could not write objects; the sender has to repeat the request");
        }
        if self.stuck > 0 {
            let blocks = self.stuck;
            tracing::warn!(%trigger, blocks, "alerts changed nothing: their blocks are in deletion and wait for the gateway to lift their bans");
        }
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
            "alerts received"
        );
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
