//! One call: the checks before the handler, its deadline, its panic, and the answer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, StatusCode};
use reeve_serve::http::{Answer, BodyError, Budget, Handler, Request, answer, text};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::{Metrics, deadline};
use crate::admission::{Failure, Webhook};
use crate::conversion::Conversion;

/// The content type of reviews.
const JSON: &str = "application/json";

/// The longest text of a failure, in characters.
const LONGEST_TEXT: usize = 512;

/// What answers the calls of one path.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Admission(Webhook),
    Conversion(Conversion),
}

/// What the calls of a server share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(super) metrics: Metrics,
    /// One permit a call in work.
    pub(super) places: Arc<Semaphore>,
    pub(super) budget: Budget,
}

/// An answer in place of one of the handler.
struct Refusal {
    status: StatusCode,
    text: String,
    retry: bool,
}

// === impl Target ===

impl Target {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Admission(webhook) => webhook.path(),
            Self::Conversion(conversion) => conversion.path(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Admission(webhook) => webhook.name(),
            Self::Conversion(conversion) => conversion.kind(),
        }
    }

    fn answer<'a>(
        &'a self,
        body: &'a [u8],
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        match self {
            Self::Admission(webhook) => async move {
                let response = webhook.call(body, deadline).await?;
                Ok(response.to_json())
            }
            .boxed(),
            Self::Conversion(conversion) => conversion.answer(body).boxed(),
        }
    }

    /// The handler of its path. Bodies of more than `limit` bytes are refused.
    pub(super) fn handler(self, shared: Shared, limit: usize) -> Handler {
        let target = Arc::new(self);
        shared.metrics.begin_with(target.path());
        Arc::new(move |request| {
            let (target, shared) = (Arc::clone(&target), shared.clone());
            Box::pin(async move {
                let begun = Instant::now();
                let performed = perform(&target, &shared, request, limit, begun);
                measured(&target, &shared, begun, performed).await
            })
        })
    }

    /// The answer to a call that did not come over a connection: this body, with the query of its URI.
    #[cfg(feature = "testing")]
    pub(crate) async fn answer_to(
        &self,
        shared: &Shared,
        query: Option<&str>,
        body: &[u8],
    ) -> Answer {
        let begun = Instant::now();
        let time = deadline::of_query(query);
        let performed = decide(self, shared, body, begun + time, time);
        measured(self, shared, begun, performed).await
    }
}

/// Counts a call.
async fn measured(
    target: &Target,
    shared: &Shared,
    begun: Instant,
    performed: impl Future<Output = Result<Answer, Refusal>>,
) -> Answer {
    let in_flight = shared.metrics.begin(target.path());
    let answer = performed.await.unwrap_or_else(Refusal::into_answer);
    drop(in_flight);
    let (path, code) = (target.path(), answer.status());
    shared.metrics.answered(path, code, begun.elapsed());
    answer
}

async fn perform(
    target: &Target,
    shared: &Shared,
    request: Request,
    limit: usize,
    begun: Instant,
) -> Result<Answer, Refusal> {
    check(&request)?;
    let time = deadline::of_query(request.uri().query());
    let deadline = begun + time;
    let read = shared.budget.read(request.into_body(), limit);
    let body = timeout_at(deadline, read).await;
    let body = body.map_err(|_| Refusal::of(target, &late(target, time)))??;
    decide(target, shared, &body, deadline, time).await
}

/// Answers a call whose body was read.
async fn decide(
    target: &Target,
    shared: &Shared,
    body: &[u8],
    deadline: Instant,
    time: Duration,
) -> Result<Answer, Refusal> {
    let late = |_| Refusal::of(target, &late(target, time));
    if body.is_empty() {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "the body is empty"));
    }
    // Only a whole body takes a place: slow senders keep no call of the API server out.
    let _place = shared.places.try_acquire().map_err(|_| Refusal::busy())?;
    // The handler may panic before its first await, so it is called inside of the future.
    let answered = async { target.answer(body, deadline).await };
    let answered = timeout_at(deadline, AssertUnwindSafe(answered).catch_unwind());
    let bytes = match answered.await.map_err(late)? {
        Ok(result) => result.map_err(|failure| Refusal::of(target, &failure))?,
        Err(_) => {
            match target {
                Target::Admission(_) => shared.metrics.panics.inc(),
                Target::Conversion(_) => shared.metrics.conversion_panics.inc(),
            };
            let failure = Failure::Panicked(target.name().to_owned());
            return Err(Refusal::of(target, &failure));
        }
    };
    Ok(answer(StatusCode::OK, JSON, bytes))
}

/// Checks what the header says.
fn check(request: &Request) -> Result<(), Refusal> {
    if request.method() != Method::POST {
        let text = "reviews are sent by POST";
        return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text));
    }
    let content_type = request.headers().get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(JSON) {
        let text = format!("the content type is {content_type:?}, and reviews are {JSON}");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    Ok(())
}

/// The beginning of a text that may hold what a client sent.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn late(target: &Target, after: Duration) -> Failure {
    Failure::Late {
        webhook: target.name().to_owned(),
        after,
    }
}

// === impl Refusal ===

impl Refusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            retry: false,
        }
    }

    /// kube-apiserver sends a call again after 429 with `Retry-After`, as long as the webhook's time lasts.
    fn busy() -> Self {
        Self {
            retry: true,
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many calls at once; send it again",
            )
        }
    }

    fn of(target: &Target, failure: &Failure) -> Self {
        let (path, webhook) = (target.path(), target.name());
        let text = cut(failure.to_string());
        tracing::warn!(path, webhook, error = text, "could not answer a call");
        Self::new(failure.status(), text)
    }

    fn into_answer(self) -> Answer {
        let mut answer = text(self.status, format!("{}\n", self.text));
        let headers = answer.headers_mut();
        if self.retry {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        answer
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Busy => Self::busy(),
            BodyError::TooLarge(limit) => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body is longer than {limit} bytes, the limit of this server"),
            ),
            error => Self::new(StatusCode::BAD_REQUEST, error.to_string()),
        }
    }
}
