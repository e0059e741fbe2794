//! A scripted API server: it sends prepared answers in order, and records its requests.

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

/// A response whose body arrives frame by frame.
pub type Answered = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// The server: its answers in order, and the requests that it received.
#[derive(Clone, Default)]
pub struct Script {
    inner: Arc<Mutex<Inner>>,
}

type Otherwise = Arc<dyn Fn(&Asked) -> Answer + Send + Sync>;

#[derive(Default)]
struct Inner {
    answers: VecDeque<Answer>,
    otherwise: Option<Otherwise>,
    /// After so many requests no more are answered.
    most: Option<usize>,
    asked: Vec<Asked>,
    open: usize,
}

/// A request as the server received it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The time of the request.
    pub at: Instant,
    /// The query, decoded.
    pub query: BTreeMap<String, String>,
}

impl Asked {
    /// Records `request`, received now.
    #[must_use]
    pub fn new<B>(request: &Request<B>) -> Self {
        let query = request.uri().query().unwrap_or_default();
        Self {
            at: Instant::now(),
            query: form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        }
    }

    /// `list`, `watch`, or `stream` for a streaming list.
    #[must_use]
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

    /// A parameter; empty if it is missing.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Verb, version, limit, token and the match of the version: the parts that the rules are about.
    #[must_use]
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
        // Every streaming list has it.
        if let Some(how) = self.query.get("resourceVersionMatch")
            && self.verb() == "list"
        {
            text = format!("{text} {how}");
        }
        text
    }
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A whole body.
    Whole {
        /// The status.
        code: u16,
        /// Headers besides those of the body.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: String,
    },
    /// A body that arrives bit by bit.
    Stream(Vec<Bit>),
    /// A body that the test sends.
    Live(Arc<Mutex<mpsc::UnboundedReceiver<Bit>>>),
    /// No answer.
    Hang,
    /// No connection.
    Refuse,
}

/// A piece of a body.
#[derive(Clone, Debug)]
pub enum Bit {
    /// A line, with its end.
    Line(String),
    /// Bytes without an end of line.
    Part(String),
    /// A pause.
    Wait(Duration),
    /// Nothing more, but the connection stays.
    Hang,
    /// The connection breaks.
    Reset,
}

// === impl Script ===

impl Script {
    /// Answers one request after the other.
    #[must_use]
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let script = Self::default();
        script.inner.lock().answers.extend(answers);
        script
    }

    /// The answers after the end of the script. Default: none.
    #[must_use]
    pub fn otherwise(self, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        self.inner.lock().otherwise = Some(Arc::new(answer));
        self
    }

    /// After `most` requests no more are answered: for clients that repeat requests without a pause, under
    /// paused time.
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        self.inner.lock().most = Some(most);
        self
    }

    /// A client of this server.
    #[must_use]
    pub fn client(&self) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move { script.answer(Asked::new(&request)).await }
        });
        Client::new(service, "default")
    }

    /// The requests.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.inner.lock().asked.clone()
    }

    /// The requests, shortened.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.inner.lock().asked.iter().map(Asked::short).collect()
    }

    /// The number of requests of this verb.
    #[must_use]
    pub fn count(&self, verb: &str) -> usize {
        self.inner
            .lock()
            .asked
            .iter()
            .filter(|asked| asked.verb() == verb)
            .count()
    }

    /// The number of streams that the client holds open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.inner.lock().open
    }

    async fn answer(&self, asked: Asked) -> Result<Answered, std::io::Error> {
        let answer = {
            let mut inner = self.inner.lock();
            inner.asked.push(asked.clone());
            let otherwise = inner.otherwise.clone();
            if inner.most.is_some_and(|most| inner.asked.len() > most) {
                Answer::Hang
            } else {
                inner
                    .answers
                    .pop_front()
                    .unwrap_or_else(|| otherwise.map_or(Answer::Hang, |answer| answer(&asked)))
            }
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
                        // After the last bit the connection stays.
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

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script")
            .field("asked", &self.log())
            .finish_non_exhaustive()
    }
}

/// A response with a whole body.
///
/// # Panics
/// If `code` or a header is not valid in HTTP.
#[must_use]
pub fn whole(code: u16, headers: &[(&'static str, String)], body: String) -> Answered {
    let mut response = Response::builder().status(code);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    let body =
        http_body_util::Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {});
    response
        .body(body.boxed_unsync())
        .expect("a status and headers of HTTP")
}

/// Sends a body.
pub type Sender = mpsc::Sender<Result<Bytes, std::io::Error>>;

/// A response, and the sender of its body.
#[must_use]
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

/// Sends until the end, or until the client is gone.
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

// === Answers ===

/// A ConfigMap called `name`, in namespace `n`, with a uid made of its name.
#[must_use]
pub fn object(name: &str, version: &str) -> String {
    object_of(name, version, &format!("uid-{name}"))
}

/// A ConfigMap called `name`, in namespace `n`.
#[must_use]
pub fn object_of(name: &str, version: &str, uid: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"n","uid":"{uid}","resourceVersion":"{version}","managedFields":[{{"manager":"m","fieldsV1":{{"f:data":{{}}}}}}]}},"data":{{"version":"{version}"}}}}"#
    )
}

/// An object that is not a ConfigMap.
#[must_use]
pub fn broken(name: &str, version: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"n","uid":"uid-{name}","resourceVersion":"{version}"}},"data":"top-secret"}}"#
    )
}

/// A whole body.
#[must_use]
pub fn json(code: u16, body: impl Into<String>) -> Answer {
    Answer::Whole {
        code,
        headers: Vec::new(),
        body: body.into(),
    }
}

/// A list of ConfigMaps.
#[must_use]
pub fn list(version: &str, objects: &[String]) -> Answer {
    page(version, "", objects)
}

/// A page of a list; the token of the last is empty.
#[must_use]
pub fn page(version: &str, token: &str, objects: &[String]) -> Answer {
    json(
        200,
        format!(
            r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{}]}}"#,
            objects.join(",")
        ),
    )
}

/// The JSON of a Status.
#[must_use]
pub fn status_object(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    )
}

/// A refusal.
#[must_use]
pub fn status(code: u16, reason: &str) -> Answer {
    json(code, status_object(code, reason, "scripted"))
}

/// The refusal of a server without streaming lists.
#[must_use]
pub fn no_streaming() -> Answer {
    status(422, "Invalid")
}

/// A watch that stays open after its bits.
#[must_use]
pub fn watch(bits: impl IntoIterator<Item = Bit>) -> Answer {
    let mut bits: Vec<_> = bits.into_iter().collect();
    bits.push(Bit::Hang);
    Answer::Stream(bits)
}

/// A watch that ends after its bits.
#[must_use]
pub fn ending(bits: impl IntoIterator<Item = Bit>) -> Answer {
    Answer::Stream(bits.into_iter().collect())
}

/// An event of a watch.
#[must_use]
pub fn event(kind: &str, object: &str) -> Bit {
    Bit::Line(format!(r#"{{"type":"{kind}","object":{object}}}"#))
}

/// `ADDED`, with an [`object`].
#[must_use]
pub fn added(name: &str, version: &str) -> Bit {
    event("ADDED", &object(name, version))
}

/// `MODIFIED`, with an [`object`].
#[must_use]
pub fn modified(name: &str, version: &str) -> Bit {
    event("MODIFIED", &object(name, version))
}

/// `DELETED`, with an [`object`].
#[must_use]
pub fn deleted(name: &str, version: &str) -> Bit {
    event("DELETED", &object(name, version))
}

/// A bookmark.
#[must_use]
pub fn bookmark(version: &str) -> Bit {
    Bit::Line(format!(
        r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null}}}}}}"#
    ))
}

/// The bookmark that ends a streaming list.
#[must_use]
pub fn initial_end(version: &str) -> Bit {
    Bit::Line(format!(
        r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null,"annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
    ))
}

/// An error in a watch.
#[must_use]
pub fn error(code: u16, reason: &str) -> Bit {
    event("ERROR", &status_object(code, reason, "scripted"))
}

/// A pause of so many seconds.
#[must_use]
pub fn wait(seconds: u64) -> Bit {
    Bit::Wait(Duration::from_secs(seconds))
}
