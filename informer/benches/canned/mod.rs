//! A server of canned bytes in the same process, so that the informer's own work is measured.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube_client::Client;
use kube_client::client::Body;
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// The number of objects in a page (client-go's and the reflector's).
const PAGE: usize = 500;
/// The number of changes in one piece, as from a busy server.
const PIECE: usize = 64;

/// ConfigMaps of about 360 bytes in 100 namespaces.
pub(crate) fn object(number: usize, version: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"object-{number:010}","namespace":"ns-{:04}","uid":"00000000-0000-0000-0000-{number:012}","resourceVersion":"{version}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"web"}},"managedFields":[{{"manager":"bench","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{".":{{}},"f:key":{{}}}}}}}}]}},"data":{{"key":"value-{version}"}}}}"#,
        number % 100
    )
}

/// `count` changes of the first `among` objects, from `version` on, as pieces of a watch.
pub(crate) fn changes(count: usize, among: usize, version: usize) -> Vec<Bytes> {
    let numbers: Vec<usize> = (0..count).collect();
    let piece = |numbers: &[usize]| {
        let line = |number: &usize| {
            let object = object(number % among, version + number);
            format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n")
        };
        Bytes::from(numbers.iter().map(line).collect::<String>())
    };
    numbers.chunks(PIECE).map(piece).collect()
}

/// The error after which everything has to be listed again.
pub(crate) fn expired() -> Bytes {
    Bytes::from_static(
        b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}}\n",
    )
}

/// A server of one kind.
pub(crate) struct Server {
    pages: Arc<Mutex<Vec<Bytes>>>,
    lists: Arc<AtomicUsize>,
    watch: Arc<Mutex<Option<mpsc::Sender<Bytes>>>>,
}

// === impl Server ===

impl Server {
    /// One with `count` objects, the last of which has the version `count`.
    pub(crate) fn new(count: usize) -> Self {
        let server = Self {
            pages: Arc::default(),
            lists: Arc::default(),
            watch: Arc::default(),
        };
        server.set(count, None);
        server
    }

    /// From now on lists have `count` objects, of which the first has `first` as its version.
    pub(crate) fn set(&self, count: usize, first: Option<usize>) {
        let newest = first.unwrap_or(count);
        let items: Vec<String> = (0..count)
            .map(|number| match first {
                Some(first) if number == 0 => object(number, first),
                _ => object(number, number + 1),
            })
            .collect();
        let pages = items.chunks(PAGE).enumerate().map(|(page, items)| {
            let token = match (page + 1) * PAGE < count {
                true => (page + 1).to_string(),
                false => String::new(),
            };
            Bytes::from(format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{newest}","continue":"{token}"}},"items":[{}]}}"#,
                items.join(",")
            ))
        });
        *self.pages.lock() = pages.collect();
    }

    pub(crate) fn client(&self) -> Client {
        let (pages, watch) = (Arc::clone(&self.pages), Arc::clone(&self.watch));
        let lists = Arc::clone(&self.lists);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let answer = if query.contains("watch=true") {
                let (sender, receiver) = mpsc::channel(64);
                // This ends the former watch.
                *watch.lock() = Some(sender);
                Response::new(Receiving(receiver).boxed_unsync())
            } else {
                let page = query
                    .split("continue=")
                    .nth(1)
                    .and_then(|page| page.parse().ok());
                lists.fetch_add(usize::from(page.is_none()), Ordering::Relaxed);
                let bytes = pages.lock()[page.unwrap_or(0)].clone();
                Response::new(http_body_util::Full::new(bytes).boxed_unsync())
            };
            std::future::ready(Ok::<Answered, Infallible>(answer))
        });
        Client::new(service, "default")
    }

    /// Sends to the open watch, once there is one.
    pub(crate) async fn send(&self, piece: Bytes) {
        let mut piece = piece;
        loop {
            let watch = self.watch.lock().clone();
            if let Some(watch) = watch {
                match watch.send(piece).await {
                    Ok(()) => return,
                    Err(closed) => piece = closed.0,
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

type Answered = Response<UnsyncBoxBody<Bytes, Infallible>>;

struct Receiving(mpsc::Receiver<Bytes>);

impl http_body::Body for Receiving {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}
