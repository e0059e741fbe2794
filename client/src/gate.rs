//! The gate of writes, checked when a write is made and again when it is sent.
//!
//! A write may wait in between, for a connection or because the process is paused. A check only when the write is made
//! would let it pass after the process lost the right to write. So a gated write carries its [`Gate`] along
//! ([`Ticket`]), and a connection of [`connect`](crate::connect) checks it again before each part of the body.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tower::BoxError;

/// Decides whether this process may write. A leader-election fence is one.
pub trait Gate: fmt::Debug + Send + Sync + 'static {
    /// Whether a write may go out now.
    fn is_open(&self) -> bool;

    /// A write is about to be sent. One call of [`Gate::ended`] follows.
    fn sent(&self);

    /// A sent write has ended: answered by other than a server error, or never sent (`settled`); else it may still arrive.
    /// Called once for each [`Gate::sent`].
    fn ended(&self, settled: bool);

    /// A write was answered, and its connection did not check the gate: the kube client underneath was not made with
    /// [`connect`](crate::connect).
    fn unasked(&self);
}

/// The write was not sent: the gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent, this process is not the leader")]
pub struct Closed;

/// Two gates that must both be open.
#[derive(Debug)]
struct Both(Arc<dyn Gate>, Arc<dyn Gate>);

/// Carries the gate of one write to the connection, as an extension of the request.
#[derive(Clone, Debug)]
struct Ticket {
    gate: Arc<dyn Gate>,
    passed: Arc<Passed>,
}

/// The checks of a write at its connection.
#[derive(Debug, Default)]
struct Passed {
    /// Whether the gate was checked there.
    checked: AtomicBool,
    refused: AtomicBool,
}

/// A write in flight, for its sender. Dropped without an answer, the write may still arrive.
#[derive(Debug)]
pub(crate) struct Passage {
    ticket: Ticket,
    settled: bool,
}

// === impl Both ===

/// `gate`, and the gate that was there before.
pub(crate) fn and(before: Option<&Arc<dyn Gate>>, gate: Arc<dyn Gate>) -> Arc<dyn Gate> {
    match before {
        None => gate,
        Some(before) => Arc::new(Both(Arc::clone(before), gate)),
    }
}

impl Gate for Both {
    fn is_open(&self) -> bool {
        self.0.is_open() && self.1.is_open()
    }

    fn sent(&self) {
        self.0.sent();
        self.1.sent();
    }

    fn ended(&self, settled: bool) {
        self.0.ended(settled);
        self.1.ended(settled);
    }

    fn unasked(&self) {
        self.0.unasked();
        self.1.unasked();
    }
}

// === impl Ticket ===

impl Ticket {
    fn check(&self) -> Result<(), Closed> {
        if self.gate.is_open() {
            return Ok(());
        }
        self.passed.refused.store(true, Ordering::Release);
        Err(Closed)
    }
}

// === impl Passage ===

impl Passage {
    /// Attaches `gate` to `request`, if it is a write, to be checked when it is sent.
    pub(crate) fn begin<B>(gate: &Arc<dyn Gate>, request: &mut Request<B>) -> Option<Self> {
        if matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS
        ) {
            return None;
        }
        let ticket = Ticket {
            gate: Arc::clone(gate),
            passed: Arc::default(),
        };
        request.extensions_mut().insert(ticket.clone());
        gate.sent();
        Some(Self {
            ticket,
            settled: false,
        })
    }

    /// Checks the gate before the write is handed to the connection.
    pub(crate) fn check(&self) -> Result<(), Closed> {
        self.ticket.check()
    }

    /// Whether the request was refused.
    pub(crate) fn refused(&self) -> bool {
        self.ticket.passed.refused.load(Ordering::Acquire)
    }

    /// Records the status of the answer. A server error settles nothing: a proxy or the server's own time-out filter
    /// answers 504 while the write is still in flight.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        if status.is_server_error() {
            return;
        }
        self.settle();
        if !self.ticket.passed.checked.load(Ordering::Acquire) {
            self.ticket.gate.unasked();
        }
    }

    /// Records that the write was answered, or certainly not sent.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.ticket.gate.ended(self.settled || self.refused());
    }
}

/// A `client` that refuses writes while `gate` is closed.
pub(crate) fn guard(gate: &Arc<dyn Gate>, client: &kube_client::Client) -> kube_client::Client {
    let (gate, inner) = (Arc::clone(gate), client.clone());
    let service = tower::service_fn(move |mut request: Request<kube_client::client::Body>| {
        let passage = Passage::begin(&gate, &mut request);
        let inner = inner.clone();
        async move {
            let Some(mut passage) = passage else {
                return inner.send(request).await.map_err(BoxError::from);
            };
            passage.check()?;
            let answer = inner.send(request).await;
            if passage.refused() {
                return Err(Closed.into());
            }
            if let Ok(answer) = &answer {
                passage.answered(answer.status());
            }
            answer.map_err(BoxError::from)
        }
    });
    kube_client::Client::new(service, client.default_namespace())
}

/// A request body that ends in [`Closed`] if the gate is closed when the body is polled: the connection was made and the
/// head is written, or about to be. A server does not act on a request with an incomplete body.
#[derive(Debug)]
pub struct Gated<B> {
    body: B,
    ticket: Option<Ticket>,
}

// === impl Gated ===

impl<B> Gated<B> {
    /// Moves the gate of a gated `request` before its body. A service with a connection of its own must call this when
    /// the request is authenticated and about to be sent.
    ///
    /// # Errors
    /// [`Closed`] when the gate is closed already.
    pub fn request(mut request: Request<B>) -> Result<Request<Self>, Closed> {
        let ticket = request.extensions_mut().remove::<Ticket>();
        if let Some(ticket) = &ticket {
            ticket.passed.checked.store(true, Ordering::Release);
            ticket.check()?;
        }
        Ok(request.map(|body| Self { body, ticket }))
    }
}

impl<B: Body + Unpin> Body for Gated<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        if let Some(Err(closed)) = self.ticket.as_ref().map(Ticket::check) {
            return Poll::Ready(Some(Err(closed.into())));
        }
        Pin::new(&mut self.body)
            .poll_frame(context)
            .map_err(Into::into)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_core::params::DeleteParams;

    use super::*;

    /// Open until closed.
    #[derive(Debug, Default)]
    struct Door {
        closed: AtomicBool,
        /// The results of the writes.
        ended: parking_lot::Mutex<Vec<bool>>,
    }

    impl Gate for Door {
        fn is_open(&self) -> bool {
            !self.closed.load(Ordering::Acquire)
        }

        fn sent(&self) {}

        fn ended(&self, settled: bool) {
            self.ended.lock().push(settled);
        }

        fn unasked(&self) {}
    }

    #[tokio::test]
    async fn a_body_breaks_off_when_the_gate_closes_between_the_head_and_it() {
        let door = Arc::new(Door::default());
        let gate: Arc<dyn Gate> = door.clone();
        let request = || {
            let mut request = Request::post("/")
                .body(Full::from(b"{}".as_slice()))
                .unwrap();
            let passage = Passage::begin(&gate, &mut request).unwrap();
            (passage, Gated::request(request))
        };
        let ((passage, before), (mut sent_passage, sent)) = (request(), request());
        let collect = async |request: Request<Gated<Full<&'static [u8]>>>| {
            request.into_body().collect().await
        };
        assert!(collect(sent.unwrap()).await.is_ok());
        sent_passage.settle();
        drop(sent_passage);
        door.closed.store(true, Ordering::Release);
        assert!(collect(before.unwrap()).await.is_err() && passage.refused());
        let (late, refused) = request();
        assert!(refused.is_err(), "and none begins");
        drop((passage, late));
        assert_eq!(
            *door.ended.lock(),
            [true, true, true],
            "nothing is on its way"
        );
    }

    #[tokio::test]
    async fn a_gate_stays_when_another_is_added() {
        let server = tower::service_fn(|_: Request<kube_client::client::Body>| async {
            let body = kube_client::client::Body::from(b"{\"metadata\": {}}".to_vec());
            Ok::<_, BoxError>(http::Response::new(body))
        });
        let kube = kube_client::Client::new(server, "ns");
        let key = crate::ObjectKey::namespaced("ns", "work");
        for (first, second) in [(true, true), (true, false), (false, true)] {
            let doors = [first, second].map(|open| {
                let door = Door::default();
                door.closed.store(!open, Ordering::Release);
                Arc::new(door)
            });
            let [one, two] = doors.each_ref().map(|door| door.clone() as Arc<dyn Gate>);
            let client = crate::Client::new(kube.clone()).gated(one).gated(two);
            let client = crate::Client::unbound(&client);
            let params = DeleteParams::default();
            let deleted = client.delete::<ConfigMap>(&key, &params).await;
            let refused = matches!(deleted, Err(crate::Error::NotLeader { .. }));
            assert_eq!(!refused, first && second, "{first} {second}");
            let raw = kube_core::Request::new("/api/v1/namespaces/ns/configmaps");
            let raw = raw.delete("work", &params).unwrap();
            let deleted = client.kube().request_text(raw).await;
            assert_eq!(deleted.is_ok(), first && second, "{first} {second}");
            let ended = doors.map(|door| door.ended.lock().clone());
            assert_eq!(ended[0], ended[1], "each is notified of each write");
            assert_eq!(client.check_gate(String::new).is_ok(), first && second);
        }
    }

    #[test]
    fn a_write_that_is_dropped_without_an_answer_may_still_arrive() {
        let door = Arc::new(Door::default());
        let gate: Arc<dyn Gate> = door.clone();
        let mut read = Request::get("/").body(()).unwrap();
        assert!(
            Passage::begin(&gate, &mut read).is_none(),
            "reads need no gate"
        );
        for status in [None, Some(504), Some(403)] {
            let mut request = Request::post("/").body(()).unwrap();
            let mut passage = Passage::begin(&gate, &mut request).unwrap();
            if let Some(status) = status {
                passage.answered(StatusCode::from_u16(status).unwrap());
            }
        }
        assert_eq!(*door.ended.lock(), [false, false, true]);
    }
}
