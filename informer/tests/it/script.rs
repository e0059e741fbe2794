//! An API server that says what it is told to say, in order, and notes what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

pub type Answered = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

#[derive(Clone, Default)]
pub struct Script {
    inner: Arc<Mutex<Inner>>,
}

type Otherwise = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

#[derive(Default)]
struct Inner {
    answers: VecDeque<Answer>,
    otherwise: Option<Otherwise>,
    asked: Vec<Asked>,
    open: usize,
}

/// A request, as the server saw it.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at: Instant,
    pub query: BTreeMap<String, String>,
}

impl Asked {
    pub fn new<B>(request: &Request<B>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        Self {
            at: Instant::now(),
            query: form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        }
    }

    pub fn verb(&self) -> &'static str {
        match (
            self.query.contains_key("watch"),
            self.query.contains_key("sendInitialEvents"),
        ) {
            (true, true) => "stream",
            (true, false) => "watch",
            _ => "list",
        }
    }

    pub fn get(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Verb, version, limit and token: what the rules are about.
    pub fn short(&self) -> String {
        let mut text = self.verb().to_owned();
        for (name, short) in [
            ("resourceVersion", "@"),
            ("limit", "limit="),
            ("continue", "continue="),
        ] {
            if let Some(value) = self.query.get(name) {
                text = format!("{text} {short}{value}");
            }
        }
        text
    }
}

/// What the server does with one request.
#[derive(Clone)]
pub enum Answer {
    /// A whole body.
    Whole {
        code: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
    },
    /// A body that comes bit by bit.
    Stream(Vec<Bit>),
    /// A body that comes as the test says it.
    Live(Arc<Mutex<mpsc::UnboundedReceiver<Bit>>>),
    /// No answer ever.
    Hang,
    /// No connection.
    Refuse,
}

#[derive(Clone)]
pub enum Bit {
    Line(String),
    /// Bytes without an end of line.
    Part(String),
    Wait(Duration),
    /// Nothing more, but the connection stays.
    Hang,
    /// The connection breaks.
    Reset,
}

// === impl Script ===

impl Script {
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let script = Self::default();
        script.inner.lock().answers.extend(answers);
        script
    }

    /// What is answered when the script is at its end. Default: nothing, for ever.
    pub fn otherwise(self, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        self.inner.lock().otherwise = Some(Arc::new(answer));
        self
    }

    pub fn client(&self) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move { script.answer(Asked::new(&request)).await }
        });
        Client::new(service, "default")
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.inner.lock().asked.clone()
    }

    /// What was asked, shortened.
    pub fn log(&self) -> Vec<String> {
        self.inner.lock().asked.iter().map(Asked::short).collect()
    }

    pub fn count(&self, verb: &str) -> usize {
        self.inner
            .lock()
            .asked
            .iter()
            .filter(|asked| asked.verb() == verb)
            .count()
    }

    /// How many streams the client holds open.
    pub fn open(&self) -> usize {
        self.inner.lock().open
    }

    async fn answer(&self, asked: Asked) -> Result<Answered, std::io::Error> {
        let answer = {
            let mut inner = self.inner.lock();
            inner.asked.push(asked.clone());
            let otherwise = inner.otherwise.clone();
            inner
                .answers
                .pop_front()
                .unwrap_or_else(|| otherwise.map_or(Answer::Hang, |answer| answer(&asked)))
        };
        match answer {
            Answer::Whole {
                code,
                headers,
                body,
            } => Ok(whole(code, &headers, body)),
            Answer::Hang => std::future::pending().await,
            Answer::Refuse => Err(std::io::ErrorKind::ConnectionRefused.into()),
            Answer::Live(bits) => {
                let (sender, body) = streamed();
                let script = self.clone();
                script.inner.lock().open += 1;
                tokio::spawn(async move {
                    loop {
                        let next = std::future::poll_fn(|context| bits.lock().poll_recv(context));
                        let bit = tokio::select! {
                            biased;
                            () = sender.closed() => break,
                            bit = next => bit,
                        };
                        // After the last word the connection stays.
                        feed(&sender, vec![bit.unwrap_or(Bit::Hang)]).await;
                    }
                    script.inner.lock().open -= 1;
                });
                Ok(body)
            }
            Answer::Stream(bits) => {
                let (sender, body) = streamed();
                self.inner.lock().open += 1;
                let script = self.clone();
                tokio::spawn(async move {
                    feed(&sender, bits).await;
                    script.inner.lock().open -= 1;
                });
                Ok(body)
            }
        }
    }
}

pub fn whole(code: u16, headers: &[(&'static str, String)], body: String) -> Answered {
    let mut response = Response::builder().status(code);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    let body =
        http_body_util::Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {});
    response.body(body.boxed_unsync()).unwrap()
}

pub type Sender = mpsc::Sender<Result<Bytes, std::io::Error>>;

/// A response whose body is what is sent.
pub fn streamed() -> (Sender, Answered) {
    let (sender, receiver) = mpsc::channel(16);
    (sender, Response::new(Receiving(receiver).boxed_unsync()))
}

struct Receiving(mpsc::Receiver<Result<Bytes, std::io::Error>>);

impl http_body::Body for Receiving {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        self.0
            .poll_recv(context)
            .map(|bit| bit.map(|bit| bit.map(http_body::Frame::data)))
    }
}

/// Sends until the end, or until nobody listens.
async fn feed(sender: &Sender, bits: Vec<Bit>) {
    for bit in bits {
        let sent = match bit {
            Bit::Line(line) => sender.send(Ok(format!("{line}\n").into())).await,
            Bit::Part(part) => sender.send(Ok(part.into())).await,
            Bit::Reset => {
                sender
                    .send(Err(std::io::ErrorKind::ConnectionReset.into()))
                    .await
            }
            Bit::Wait(time) => {
                tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    () = tokio::time::sleep(time) => Ok(()),
                }
            }
            Bit::Hang => {
                sender.closed().await;
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

// === What servers say ===

/// A ConfigMap called `name`, in namespace `n`, with a uid made of its name.
pub fn object(name: &str, version: &str) -> String {
    object_of(name, version, &format!("uid-{name}"))
}

pub fn object_of(name: &str, version: &str, uid: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"n","uid":"{uid}","resourceVersion":"{version}","managedFields":[{{"manager":"m","fieldsV1":{{"f:data":{{}}}}}}]}},"data":{{"version":"{version}"}}}}"#
    )
}

/// A ConfigMap that is none.
pub fn broken(name: &str, version: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"n","uid":"uid-{name}","resourceVersion":"{version}"}},"data":"top-secret"}}"#
    )
}

pub fn json(code: u16, body: impl Into<String>) -> Answer {
    Answer::Whole {
        code,
        headers: Vec::new(),
        body: body.into(),
    }
}

pub fn list(version: &str, objects: &[String]) -> Answer {
    page(version, "", objects)
}

pub fn page(version: &str, token: &str, objects: &[String]) -> Answer {
    json(
        200,
        format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#,
            objects.join(",")
        ),
    )
}

pub fn status_object(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    )
}

pub fn status(code: u16, reason: &str) -> Answer {
    json(code, status_object(code, reason, "scripted"))
}

/// The refusal of a server without streaming lists.
pub fn no_streaming() -> Answer {
    status(422, "Invalid")
}

/// A watch that stays open after its bits.
pub fn watch(bits: impl IntoIterator<Item = Bit>) -> Answer {
    let mut bits: Vec<_> = bits.into_iter().collect();
    bits.push(Bit::Hang);
    Answer::Stream(bits)
}

/// A watch that ends after its bits.
pub fn ending(bits: impl IntoIterator<Item = Bit>) -> Answer {
    Answer::Stream(bits.into_iter().collect())
}

pub fn event(kind: &str, object: &str) -> Bit {
    Bit::Line(format!(r#"{{"type":"{kind}","object":{object}}}"#))
}

pub fn added(name: &str, version: &str) -> Bit {
    event("ADDED", &object(name, version))
}

pub fn modified(name: &str, version: &str) -> Bit {
    event("MODIFIED", &object(name, version))
}

pub fn deleted(name: &str, version: &str) -> Bit {
    event("DELETED", &object(name, version))
}

pub fn bookmark(version: &str) -> Bit {
    Bit::Line(format!(
        r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null}}}}}}"#
    ))
}

pub fn initial_end(version: &str) -> Bit {
    Bit::Line(format!(
        r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null,"annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
    ))
}

pub fn error(code: u16, reason: &str) -> Bit {
    event("ERROR", &status_object(code, reason, "scripted"))
}

pub fn wait(seconds: u64) -> Bit {
    Bit::Wait(Duration::from_secs(seconds))
}
