//! The client of a process: each of its requests passes here.

use std::io;

use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use kube_client::client::Body;
use serde::Deserialize;
use serde_json::Value;
use tower::service_fn;

use super::core::{Core, Fate, Incarnation};
use super::plan::Point;
use super::target::Target;
use super::watched::watched;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the client reads.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The `User-Agent` of an incarnation, which faults of the server select.
pub(super) fn agent(incarnation: Incarnation) -> String {
    format!("explore-{}.{}", incarnation.process, incarnation.number)
}

/// A client of `kube` for one incarnation of a process.
pub(super) fn client(
    kube: &kube_client::Client,
    core: Core,
    incarnation: Incarnation,
) -> kube_client::Client {
    let namespace = kube.default_namespace().to_owned();
    let kube = kube.clone();
    let service = service_fn(move |request: Request<Body>| {
        let tap = Tap {
            kube: kube.clone(),
            core: core.clone(),
            incarnation,
        };
        tap.pass(request)
    });
    kube_client::Client::new(service, namespace)
}

struct Tap {
    kube: kube_client::Client,
    core: Core,
    incarnation: Incarnation,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Name,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Name {
    name: Option<String>,
    generate_name: Option<String>,
}

// === impl Tap ===

impl Tap {
    async fn pass(self, mut request: Request<Body>) -> Result<Answer, BoxError> {
        self.core.alive(self.incarnation).await;
        if let Ok(agent) = HeaderValue::from_str(&agent(self.incarnation)) {
            request.headers_mut().insert(USER_AGENT, agent);
        }
        let Some(target) = Target::of(request.uri().path()) else {
            return Ok(whole(self.send(request).await?));
        };
        if let Some(verb) = target.effect(request.method()) {
            return self.effect(request, &target, verb).await;
        }
        let query = request.uri().query().unwrap_or_default();
        let watches = query
            .split('&')
            .any(|one| one == "watch=true" || one == "watch=1");
        let is_followed = watches && self.incarnation.process > 0;
        if is_followed {
            accept_json(request.headers_mut());
        }
        let answer = self.send(request).await?;
        if is_followed && answer.status() == StatusCode::OK {
            return Ok(watched(answer, self.core, self.incarnation, target));
        }
        Ok(whole(answer))
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let answer = self.kube.send(request).await.map_err(BoxError::from);
        // What a dead process asked is not answered.
        self.core.alive(self.incarnation).await;
        answer
    }

    async fn effect(
        self,
        request: Request<Body>,
        target: &Target,
        verb: &str,
    ) -> Result<Answer, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let name = target.name.clone().or_else(|| named(&body));
        let object = target.object(name.as_deref().unwrap_or("*"));
        let what = format!("{verb} {} {object}", target.resource);
        self.core.touches(&target.collection);
        let process = self.incarnation.process;
        let (point, fate) = self.core.effect(process, &what);
        if head.method == Method::DELETE && process > 0 && !is_guarded(&body) {
            self.core.is_unguarded(&what);
        }
        let deleted = (head.method == Method::DELETE).then(|| head.uri.path().to_owned());
        let request = Request::from_parts(head, Body::from(body.to_vec()));
        match fate {
            Fate::CrashBefore => {
                self.core.crash(process, None);
                self.never().await
            }
            Fate::Refused => {
                self.core.done(point, "500, refused by the plan".to_owned());
                Ok(refused())
            }
            Fate::Stuck => std::future::pending().await,
            Fate::Late(rests) => {
                self.core.delay(&point, rests);
                let late = Self {
                    kube: self.kube.clone(),
                    core: self.core.clone(),
                    incarnation: self.incarnation,
                };
                let arrival = tokio::spawn(async move {
                    late.core.arrives(&point).await;
                    late.deletes(deleted.as_deref(), &point).await;
                    let answer = late.kube.send(request).await;
                    let outcome = outcome_of(&answer);
                    late.core.done(point, format!("{outcome}, late"));
                    answer
                });
                let answer = arrival.await?;
                self.core.alive(self.incarnation).await;
                Ok(whole(answer?))
            }
            Fate::Passes => {
                self.deletes(deleted.as_deref(), &point).await;
                let answer = self.kube.send(request).await;
                self.core.done(point, outcome_of(&answer));
                Ok(whole(answer?))
            }
            Fate::CrashAfter | Fate::Stale(_) | Fate::Lost => {
                self.deletes(deleted.as_deref(), &point).await;
                let answer = self.kube.send(request).await;
                self.unanswered(&fate, point, outcome_of(&answer)).await
            }
        }
    }

    /// Keeps what a deletion finds at `path`.
    async fn deletes(&self, path: Option<&str>, point: &Point) {
        let get = path.map(|path| Request::get(path).body(Vec::new()));
        if let Some(Ok(get)) = get
            && let Ok(object) = self.kube.request(get).await
        {
            self.core.deletes(point, object);
        }
    }

    async fn unanswered(
        &self,
        fate: &Fate,
        point: Point,
        outcome: String,
    ) -> Result<Answer, BoxError> {
        self.core.done(point, outcome);
        let frozen = match fate {
            Fate::Lost => {
                let lost =
                    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer");
                return Err(lost.into());
            }
            Fate::Stale(version) => Some(*version),
            _ => None,
        };
        self.core.crash(self.incarnation.process, frozen);
        self.never().await
    }

    async fn never<T>(&self) -> Result<T, BoxError> {
        self.core.alive(self.incarnation).await;
        std::future::pending().await
    }
}

/// Leaves protobuf out of the accepted forms: the events of a watch are followed as JSON.
fn accept_json(headers: &mut HeaderMap) {
    let Some(accepted) = headers.get(ACCEPT).and_then(|forms| forms.to_str().ok()) else {
        return;
    };
    let forms = accepted.split(',').map(str::trim);
    let kept: Vec<&str> = forms.filter(|form| !form.contains("protobuf")).collect();
    if let Ok(kept) = HeaderValue::from_str(&kept.join(", ")) {
        headers.insert(ACCEPT, kept);
    }
}

fn named(body: &Bytes) -> Option<String> {
    let named: Named = serde_json::from_slice(body).ok()?;
    let generated = named
        .metadata
        .generate_name
        .map(|prefix| format!("{prefix}*"));
    named.metadata.name.or(generated)
}

/// Whether a deletion names the object that it means by more than its name.
fn is_guarded(options: &Bytes) -> bool {
    let options: Value = serde_json::from_slice(options).unwrap_or_default();
    let of = |name: &str| options["preconditions"][name].is_string();
    of("uid") || of("resourceVersion")
}

fn outcome_of<E: std::fmt::Display>(answer: &Result<Response<Body>, E>) -> String {
    match answer {
        Ok(answer) => answer.status().as_u16().to_string(),
        Err(error) => error.to_string(),
    }
}

fn refused() -> Answer {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError", "code": 500,
        "message": "Internal error occurred: refused by the plan",
    });
    let mut answer = Response::new(Body::from(status.to_string().into_bytes()));
    *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    let json = HeaderValue::from_static("application/json");
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    whole(answer)
}

fn whole(answer: Response<Body>) -> Answer {
    answer.map(|body| body.map_err(BoxError::from).boxed_unsync())
}

/// A body of these chunks.
pub(super) fn body_of(
    chunks: impl futures::Stream<Item = Result<Bytes, kube_client::Error>> + Send + 'static,
) -> UnsyncBoxBody<Bytes, BoxError> {
    let frames = chunks
        .map_ok(http_body::Frame::data)
        .map_err(BoxError::from);
    http_body_util::StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_is_left_out_of_the_accepted_forms() {
        let cases = [
            (
                "application/vnd.kubernetes.protobuf;stream=watch, application/json",
                "application/json",
            ),
            (
                "application/vnd.kubernetes.protobuf;as=A, application/json;as=A",
                "application/json;as=A",
            ),
            ("application/json", "application/json"),
        ];
        for (forms, kept) in cases {
            let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(forms))]);
            accept_json(&mut headers);
            assert_eq!(headers[ACCEPT], kept);
        }
        let mut headers = HeaderMap::new();
        accept_json(&mut headers);
        assert!(headers.is_empty());
    }
}
