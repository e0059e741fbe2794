//! The path of one request: faults, access, routing, verbs.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, Uri};
use tokio::time::sleep;

use crate::access;
use crate::control::{self, Control};
use crate::core::Core;
use crate::dispatch::resource;
use crate::faults::{Instead, Plan, StreamEnd};
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::http::media::{self, Encoding};
use crate::http::query::Parameters;
use crate::http::route::Target;
use crate::rbac::User;
use crate::record::RequestRecord;
use crate::status::Status;

/// The server as a `tower::Service`; clones are cheap and share everything.
#[derive(Clone, Debug)]
pub struct Service {
    core: Arc<Core>,
    control: Option<Arc<Control>>,
}

/// A request before it is routed.
pub(crate) struct Call<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) query: Parameters,
    pub(crate) body: Bytes,
    pub(crate) agent: String,
    pub(crate) user: User,
    pub(crate) stale: Option<u64>,
}

// === impl Service ===

impl Service {
    /// A service with the control API, if there is one.
    pub(crate) fn new(core: Arc<Core>, control: Option<Arc<Control>>) -> Self {
        Self { core, control }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Answers one request.
    ///
    /// # Errors
    /// When the connection must break: the server is down, or a fault rule applies.
    pub(crate) async fn answer<B>(self, request: Request<B>) -> io::Result<Response<Body>>
    where
        B: http_body::Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let core = self.core;
        if !*core.up.borrow() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "the server is down",
            ));
        }
        if let Some(control) = &self.control
            && control::is_path(request.uri().path())
        {
            let query = Parameters::parse(request.uri().query().unwrap_or_default());
            let pretty = is_pretty(&query, &agent_of(request.headers()));
            return Ok(control::answer(&core, control, request, query, pretty).await);
        }
        let (head, body) = request.into_parts();
        let query = Parameters::parse(head.uri.query().unwrap_or_default());
        let target = Target::of(&head.method, head.uri.path(), &query);
        let attributes = target.attributes(&head.method);
        let agent = agent_of(&head.headers);
        let plan = core.faults.plan(&attributes, &agent);
        if !plan.delay_before.is_zero() {
            sleep(plan.delay_before).await;
        }
        let mut record = RequestRecord::of(&head, &attributes, agent.clone(), core.clock.now());
        let pretty = is_pretty(&query, &agent);
        let encoding = media::negotiate_errors(accept(&head.headers).as_deref());
        let mut call = Call {
            method: &head.method,
            uri: &head.uri,
            headers: &head.headers,
            query,
            body: Bytes::new(),
            agent,
            user: User::default(),
            stale: plan.stale,
        };
        let answered = match &plan.instead {
            Some(Instead::Status(status)) => Ok(answer::failure(status, encoding, false)),
            Some(Instead::CloseEmpty) => Ok(answer::bytes(
                200,
                Encoding::Json.content_type(),
                Bytes::new(),
            )),
            Some(Instead::Reset) => Err(broken()),
            Some(Instead::Stall) => {
                core.record.push(record.clone());
                until_down(core.clone()).await;
                Err(broken())
            }
            None => {
                let result =
                    match access::check(&core, &head.headers, head.extensions.get(), &attributes) {
                        Ok(user) => {
                            record.user.clone_from(&user.name);
                            call.user = user;
                            match body::read(body).await {
                                Ok(bytes) => {
                                    record.body = bytes.clone();
                                    call.body = bytes;
                                    respond(&core, &target, &call).await
                                }
                                Err(status) => Err(status),
                            }
                        }
                        Err(status) => Err(status),
                    };
                Ok(result.unwrap_or_else(|status| answer::failure(&status, encoding, pretty)))
            }
        };
        if plan.lose_answer {
            core.record.push(record);
            return Err(broken());
        }
        if let Ok(response) = &answered {
            record.code = response.status().as_u16();
        }
        tracing::debug!(
            verb = record.verb,
            path = record.path,
            query = record.query,
            code = record.code,
            user = record.user,
            "request"
        );
        core.record.push(record);
        if !plan.delay_after.is_zero() {
            sleep(plan.delay_after).await;
        }
        Ok(faulty(&core, answered?, &plan))
    }
}

impl<B> tower::Service<Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Response<Body>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}

pub(crate) fn broken() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionReset,
        "the connection was broken by a fault rule",
    )
}

async fn until_down(core: Arc<Core>) {
    let mut up = core.up.subscribe();
    // An error means that the server was dropped.
    let _ = up.wait_for(|up| !up).await;
}

/// The answer, cut short if a fault rule applies.
fn faulty(core: &Arc<Core>, response: Response<Body>, plan: &Plan) -> Response<Body> {
    let Some((after, end)) = plan.stream else {
        return response;
    };
    let core = core.clone();
    response.map(|body| cut_short(body, after, end, move || until_down(core.clone())))
}

/// A body that ends with `end` after `pieces`; a stalled one breaks when `over` is ready.
pub(crate) fn cut_short<F>(
    body: Body,
    after: usize,
    end: StreamEnd,
    over: impl Fn() -> F + Send + 'static,
) -> Body
where
    F: Future<Output = ()> + Send + 'static,
{
    let pieces = http_body_util::BodyDataStream::new(body).enumerate();
    body::stream(
        pieces
            .flat_map(move |(at, piece)| cut(over(), at, piece, after, end))
            .scan(false, |broken, piece| {
                // Nothing follows a break.
                let go_on = !*broken;
                *broken |= piece.as_ref().is_none_or(io::Result::is_err);
                std::future::ready(if go_on { piece } else { None })
            }),
    )
}

/// One piece of an answer, or the end of the answer there.
fn cut(
    over: impl Future<Output = ()> + Send,
    at: usize,
    piece: io::Result<Bytes>,
    after: usize,
    end: StreamEnd,
) -> impl Stream<Item = Option<io::Result<Bytes>>> + Send {
    futures::stream::once(async move {
        if at < after {
            return vec![Some(piece)];
        }
        match end {
            StreamEnd::Close => vec![None],
            StreamEnd::Reset => vec![Some(Err(broken()))],
            StreamEnd::Truncate => {
                // The last frame lacks its end.
                let half = piece.map(|piece| piece.slice(..piece.len() - piece.len().min(16)));
                vec![Some(half), None]
            }
            StreamEnd::Stall => {
                over.await;
                vec![Some(Err(broken()))]
            }
        }
    })
    .flat_map(futures::stream::iter)
}

/// The `User-Agent`, empty for none.
pub(crate) fn agent_of(headers: &HeaderMap) -> String {
    header(headers, USER_AGENT.as_str())
        .unwrap_or_default()
        .to_owned()
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// All values of `Accept` as one.
pub(crate) fn accept(headers: &HeaderMap) -> Option<String> {
    let values: Vec<&str> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// Whether JSON is indented: for browsers and command lines, as from a real server.
pub(crate) fn is_pretty(query: &Parameters, agent: &str) -> bool {
    query.optional_flag("pretty").unwrap_or_else(|| {
        ["curl", "Wget", "Mozilla"]
            .iter()
            .any(|name| agent.starts_with(name))
    })
}

async fn respond(
    core: &Arc<Core>,
    target: &Target,
    call: &Call<'_>,
) -> Result<Response<Body>, Status> {
    match target {
        Target::Other(path) => Ok(crate::documents::answer(
            core,
            path,
            call.method,
            call.headers,
        )),
        Target::Resource(path) => resource(core, path, call).await,
    }
}
