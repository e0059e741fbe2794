//! A small API server for the tests of clients, electors and controllers: objects by path, one version sequence, watches that can be held
//! back, and a hook that decides the fate of each request. Not a model of Kubernetes: reeve-apiserver is.

mod spans;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use parking_lot::Mutex;
use reeve_clock::Clock;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub use spans::{Span, Spans};

/// The fate of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Refused with this code.
    Refuse(u16),
    /// Neither executed nor answered.
    Hang,
    /// Executed, and the answer is lost.
    Lose,
    /// Executed after this long.
    Slow(Duration),
    /// Executed at once, and answered after this long.
    Late(Duration),
    /// Answered with this code at once, and executed after this long.
    Abandon(u16, Duration),
    /// Refused with this code and `retryAfterSeconds`.
    Busy(u16, u32),
}

type Hook = Box<dyn FnMut(&Method, &str) -> Option<Fate> + Send>;
type Line = Result<Frame<Bytes>, std::io::Error>;

/// The server. Clones are one server.
#[derive(Clone, Default)]
pub struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<Place, Value>,
    watches: Vec<(Place, mpsc::UnboundedSender<Line>)>,
    /// Watch events that wait while the watches are held back.
    held: Option<Vec<(Place, &'static str, Value)>>,
    log: Vec<String>,
    hook: Option<Hook>,
}

/// The path of an object or a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    prefix: String,
    plural: String,
    namespace: String,
    name: String,
    subresource: String,
}

impl Place {
    fn of(path: &str) -> Self {
        let mut parts = path.trim_start_matches('/').split('/').peekable();
        let mut place = Self::default();
        let depth = if parts.peek() == Some(&"api") { 2 } else { 3 };
        place.prefix = parts.by_ref().take(depth).collect::<Vec<_>>().join("/");
        let mut next = || parts.next().unwrap_or_default().to_owned();
        place.plural = next();
        if place.plural == "namespaces" {
            place.namespace = next();
            place.plural = next();
        }
        place.name = next();
        place.subresource = next();
        place
    }

    fn holds(&self, object: &Self) -> bool {
        self.prefix == object.prefix
            && self.plural == object.plural
            && (self.namespace.is_empty() || self.namespace == object.namespace)
            && (self.name.is_empty() || self.name == object.name)
    }

    fn object(&self) -> Self {
        Self {
            subresource: String::new(),
            ..self.clone()
        }
    }
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fake").finish_non_exhaustive()
    }
}

impl Fake {
    /// A kube client of the server.
    #[must_use]
    pub fn client(&self) -> kube_client::Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: Request<kube_client::client::Body>| {
            let fake = fake.clone();
            async move { fake.serve(request).await }
        });
        kube_client::Client::new(service, "default")
    }

    /// Decides the fate of each request from now on.
    pub fn hook(&self, hook: impl FnMut(&Method, &str) -> Option<Fate> + Send + 'static) {
        self.0.lock().hook = Some(Box::new(hook));
    }

    /// Serves each request from now on.
    pub fn no_hook(&self) {
        self.0.lock().hook = None;
    }

    /// `METHOD path` of each request, watches and lists as `WATCH` and `LIST`.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.0.lock().log.clone()
    }

    /// The object at `path`, if there is one.
    #[must_use]
    pub fn object(&self, path: &str) -> Option<Value> {
        self.0.lock().objects.get(&Place::of(path)).cloned()
    }

    /// The objects of the collection at `path`.
    #[must_use]
    pub fn objects(&self, path: &str) -> Vec<Value> {
        let place = Place::of(path);
        let state = self.0.lock();
        let found = state.objects.iter().filter(|(key, _)| place.holds(key));
        found.map(|(_, object)| object.clone()).collect()
    }

    /// Creates or replaces an object, as another client.
    pub fn put(&self, path: &str, object: Value) -> Value {
        let place = Place::of(path);
        let mut state = self.0.lock();
        let kind = if state.objects.contains_key(&place) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        state.store(&place, object, kind)
    }

    /// Deletes the object at `path`.
    pub fn remove(&self, path: &str) {
        let place = Place::of(path);
        self.0.lock().delete(place);
    }

    /// Holds watch events back, or lets them go.
    pub fn hold_watches(&self, hold: bool) {
        let mut state = self.0.lock();
        if hold {
            state.held.get_or_insert_default();
        } else {
            for (place, kind, object) in state.held.take().unwrap_or_default() {
                state.publish(place, kind, object);
            }
        }
    }

    /// Delivers the first watch event that is held back, and keeps the others.
    pub fn let_one_go(&self) {
        let mut state = self.0.lock();
        let mut held = state.held.take().unwrap_or_default();
        let (place, kind, object) = held.remove(0);
        state.publish(place, kind, object);
        state.held = Some(held);
    }

    /// Drops the watch events of one object that are held back, as if it were not selected.
    pub fn drop_held(&self, path: &str) {
        let place = Place::of(path);
        let mut state = self.0.lock();
        if let Some(held) = &mut state.held {
            held.retain(|(of, ..)| *of != place);
        }
    }

    async fn serve(
        &self,
        request: Request<kube_client::client::Body>,
    ) -> Result<Response<StreamBody<BoxStream<'static, Line>>>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let place = Place::of(&path);
        let watch = query.contains("watch=true");
        let verb = match &parts.method {
            &Method::GET if watch => "WATCH",
            &Method::GET if place.name.is_empty() => "LIST",
            method => method.as_str(),
        };
        let fate = {
            let mut state = self.0.lock();
            state.log.push(format!("{verb} {path}"));
            let mut hook = state.hook.take();
            let fate = hook.as_mut().and_then(|hook| hook(&parts.method, &path));
            state.hook = hook;
            fate
        };
        match fate {
            Some(Fate::Hang) => std::future::pending::<()>().await,
            Some(Fate::Refuse(code)) => return Ok(status(code, "refused")),
            Some(Fate::Busy(code, seconds)) => return Ok(busy(code, seconds)),
            Some(Fate::Slow(delay)) => tokio::time::sleep(delay).await,
            Some(Fate::Lose | Fate::Late(_) | Fate::Abandon(..)) | None => {}
        }
        let body = body.collect().await.expect("a body").to_bytes();
        if let Some(Fate::Abandon(code, delay)) = fate {
            let fake = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let sent = serde_json::from_slice(&body).unwrap_or(Value::Null);
                fake.0.lock().answer(&parts.method, &place, sent);
            });
            return Ok(status(code, "timed out"));
        }
        let answer = if watch {
            self.watch(&place, &query)
        } else {
            let sent = serde_json::from_slice(&body).unwrap_or(Value::Null);
            self.0.lock().answer(&parts.method, &place, sent)
        };
        if let Some(Fate::Late(delay)) = fate {
            tokio::time::sleep(delay).await;
        }
        if fate == Some(Fate::Lose) {
            return Err(std::io::Error::other("connection reset"));
        }
        Ok(answer)
    }

    fn watch(&self, place: &Place, query: &str) -> Response<StreamBody<BoxStream<'static, Line>>> {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut state = self.0.lock();
        if query.contains("sendInitialEvents=true") {
            for (key, object) in &state.objects {
                if place.holds(key) {
                    let _ = sender.send(line("ADDED", object));
                }
            }
            let mark = json!({"kind": kind_of(place), "apiVersion": version_of(place), "metadata": {
                "resourceVersion": state.version.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"}}});
            let _ = sender.send(line("BOOKMARK", &mark));
        }
        state.watches.push((place.object(), sender));
        let lines = stream::poll_fn(move |context| receiver.poll_recv(context)).boxed();
        Response::new(StreamBody::new(lines))
    }
}

impl State {
    fn store(&mut self, place: &Place, mut object: Value, kind: &'static str) -> Value {
        self.version += 1;
        let version = self.version;
        let old = self.objects.get(place);
        let uid = old.map_or(json!(format!("uid-{version}")), |old| {
            old["metadata"]["uid"].clone()
        });
        object["apiVersion"] = json!(version_of(place));
        object["kind"] = json!(kind_of(place));
        let meta = &mut object["metadata"];
        meta["name"] = json!(place.name);
        if !place.namespace.is_empty() {
            meta["namespace"] = json!(place.namespace);
        }
        meta["uid"] = uid;
        meta["resourceVersion"] = json!(version.to_string());
        self.objects.insert(place.clone(), object.clone());
        self.publish(place.clone(), kind, object.clone());
        object
    }

    /// Removes an object, and returns its last state.
    fn delete(&mut self, place: Place) -> Option<Value> {
        let old = self.objects.remove(&place)?;
        self.version += 1;
        let mut last = old.clone();
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.publish(place, "DELETED", last);
        Some(old)
    }

    fn publish(&mut self, place: Place, kind: &'static str, object: Value) {
        if let Some(held) = &mut self.held {
            held.push((place, kind, object));
            return;
        }
        self.watches.retain(|(watched, sender)| {
            !watched.holds(&place) || sender.send(line(kind, &object)).is_ok()
        });
    }

    fn answer(
        &mut self,
        method: &Method,
        place: &Place,
        sent: Value,
    ) -> Response<StreamBody<BoxStream<'static, Line>>> {
        let mut target = place.object();
        if *method == Method::POST {
            target.name = sent["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if self.objects.contains_key(&target) {
                return status(409, "AlreadyExists");
            }
            return json_answer(201, &self.store(&target, sent, "ADDED"));
        }
        if *method == Method::GET && place.name.is_empty() {
            let found = self.objects.iter().filter(|(key, _)| place.holds(key));
            let items: Vec<&Value> = found.map(|(_, object)| object).collect();
            let list = json!({"kind": format!("{}List", kind_of(place)), "apiVersion": version_of(place),
                "metadata": {"resourceVersion": self.version.to_string()}, "items": items});
            return json_answer(200, &list);
        }
        if *method == Method::DELETE && place.name.is_empty() {
            let found = self.objects.keys().filter(|key| place.holds(key));
            let found: Vec<Place> = found.cloned().collect();
            let items: Vec<_> = found.into_iter().map(|key| self.delete(key)).collect();
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
            return json_answer(200, &list);
        }
        let Some(old) = self.objects.get(&target).cloned() else {
            return status(404, "NotFound");
        };
        let stale = {
            let version = &sent["metadata"]["resourceVersion"];
            version.is_string() && *version != old["metadata"]["resourceVersion"]
        };
        match *method {
            Method::GET => json_answer(200, &old),
            Method::DELETE => {
                let uid = old["metadata"]["uid"].clone();
                self.delete(target);
                json_answer(
                    200,
                    &json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Success", "details": {"uid": uid}}),
                )
            }
            _ if stale => status(409, "Conflict"),
            Method::PUT => json_answer(200, &self.store(&target, sent, "MODIFIED")),
            Method::PATCH => {
                let mut new = old.clone();
                merge(&mut new, &sent);
                if new == old {
                    return json_answer(200, &old);
                }
                json_answer(200, &self.store(&target, new, "MODIFIED"))
            }
            _ => status(405, "MethodNotAllowed"),
        }
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let (Some(target), Some(patch)) = (target.as_object_mut(), patch.as_object()) else {
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(_) if target.get(key).is_some_and(Value::is_object) => {
                merge(&mut target[key], value);
            }
            _ => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
}

fn line(kind: &str, object: &Value) -> Line {
    let text = format!("{}\n", json!({"type": kind, "object": object}));
    Ok(Frame::data(Bytes::from(text)))
}

fn json_answer(code: u16, body: &Value) -> Response<StreamBody<BoxStream<'static, Line>>> {
    let frame: Line = Ok(Frame::data(Bytes::from(body.to_string())));
    let body = StreamBody::new(stream::iter([frame]).boxed());
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("a status code");
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    response
}

fn status(code: u16, reason: &str) -> Response<StreamBody<BoxStream<'static, Line>>> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("test: {reason}"), "reason": reason, "code": code});
    json_answer(code, &body)
}

fn busy(code: u16, seconds: u32) -> Response<StreamBody<BoxStream<'static, Line>>> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "test: busy", "reason": "TooManyRequests", "code": code,
        "details": {"retryAfterSeconds": seconds}});
    json_answer(code, &body)
}

fn version_of(place: &Place) -> String {
    let prefix = &place.prefix;
    let prefix = prefix
        .strip_prefix("apis/")
        .or_else(|| prefix.strip_prefix("api/"));
    prefix.unwrap_or_default().to_owned()
}

fn kind_of(place: &Place) -> &'static str {
    match place.plural.as_str() {
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        "leases" => "Lease",
        "events" => "Event",
        "pods" => "Pod",
        other => panic!("teach the fake the kind of {other}"),
    }
}

/// A clock that follows paused time.
pub fn clock() -> Clock {
    Clock::simulated("2026-01-01T00:00:00Z".parse().expect("a date"), 1)
}

/// Advances time until `condition` holds; fails the test after five virtual seconds: enough for tasks and a first pause,
/// not for a poll, a second list or a slow retry.
pub async fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(5), what, condition).await;
}

/// As [`eventually`], with a limit of virtual time.
pub async fn eventually_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The log lines of the thread that captures them.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Captures the log of this thread until the guard is dropped.
    pub fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        // Otherwise tracing disables a call site for good when the thread of another test reaches it first.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// The captured text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("text")
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
