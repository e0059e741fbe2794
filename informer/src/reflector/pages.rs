//! The pages of a list, in order: [`Pages`].
//!
//! A page is fetched while those before it are decoded. Other threads decode large pages, as many at once as there are
//! permits ([`Permit`]). What is fetched and not decoded yet is bounded in bytes too.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::Request;
use kube_client::client::Body;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::chunk::{Handed, joined};
use super::history::History;
use super::offers::Paging;
use super::run::{Reflector, held};
use super::threads::Permit;
use crate::decode::{Budget, DecodeError, Identity, ListPage, continue_token, read_list};
use crate::fifo::KnownObjects;
use crate::object::{EntryReader, Stored};
use reeve_client::transport::{self, Encoded, Encoding, ListRequest, Transport};

/// A page of fewer bytes is decoded by the task that lists: to hand it over would cost more.
const LARGE: usize = 64 * 1024;

/// While pages of so many bytes are being decoded, no further one is begun.
const AHEAD: usize = 32 * 1024 * 1024;

/// The pages of a list, in order. Dropping this ends their tasks.
pub(super) struct Pages<'a, S: Stored + ?Sized> {
    reflector: &'a Reflector<S>,
    limit: u32,
    reader: Arc<PageReader<S>>,
    /// The most pages that other threads decode at once; 0 to decode in this task.
    most: usize,
    /// The page after those in `reading`.
    fetching: Option<AbortOnDropHandle<Fetched>>,
    /// The reason why the page after those in `reading` cannot be fetched.
    failed: Option<transport::Error>,
    reading: VecDeque<Reading<S>>,
    budget: Budget,
}

/// A page that was fetched.
struct Reading<S: ?Sized> {
    request: ListRequest,
    encoding: Encoding,
    /// The length of its body.
    bytes: usize,
    /// The token with which the page after it was requested.
    token: Option<String>,
    work: Work<S>,
}

/// The answer to a request.
type Fetched = (ListRequest, Result<Encoded, transport::Error>);

enum Work<S: ?Sized> {
    /// The body, to be decoded by this task.
    Here(Encoded),
    Elsewhere(Elsewhere<S>),
}

/// A page that another thread decodes.
struct Elsewhere<S: ?Sized> {
    page: Handed<Encoded, Result<ListPage<S>, DecodeError>>,
    /// Ends the work that a thread has begun.
    _stop: DropGuard,
}

/// Decodes pages.
struct PageReader<S: ?Sized> {
    entries: EntryReader<S>,
    /// False for the first list: the consumer holds nothing yet.
    again: bool,
    /// The objects that the consumer holds.
    known: Option<Arc<dyn KnownObjects<S>>>,
}

/// Fetches a page in a task. Not in the generic caller: see [`tasks`](crate::tasks).
fn spawn_fetch(
    transport: Transport,
    request: ListRequest,
    built: Request<Body>,
) -> AbortOnDropHandle<Fetched> {
    let fetch = async move { (request, transport.fetch_encoded(built).await) };
    AbortOnDropHandle::new(tokio::spawn(fetch))
}

// === impl PageReader ===

impl<S: Stored + ?Sized> PageReader<S> {
    async fn read(&self, body: &Encoded, budget: &mut Budget) -> Result<ListPage<S>, DecodeError> {
        if !self.again {
            return read_list(body, &self.entries, None, budget).await;
        }
        let held = |identity: &Identity<'_>| held(&**self.known.as_ref()?, identity);
        read_list(body, &self.entries, Some(&held), budget).await
    }

    /// The same, by a thread for blocking work, until `stopped`.
    fn read_at_once(
        &self,
        body: &Encoded,
        stopped: &CancellationToken,
    ) -> Result<ListPage<S>, DecodeError> {
        let mut budget = Budget::new();
        let mut page = pin!(self.read(body, &mut budget));
        // It waits for nothing but its turn.
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(page) = page.as_mut().poll(&mut context) {
                return page;
            }
            if stopped.is_cancelled() {
                return Err(DecodeError::given_up());
            }
        }
    }
}

// === impl Pages ===

impl<'a, S: Stored + ?Sized> Pages<'a, S> {
    /// The pages of a list that `reflector` requests as `paging` says.
    pub(super) fn new(reflector: &'a Reflector<S>, history: &History, paging: &Paging) -> Self {
        Self {
            limit: paging.limit,
            reader: Arc::new(PageReader {
                entries: reflector.entries.clone(),
                again: history.has_begun(),
                known: reflector.holding(history),
            }),
            reflector,
            most: Permit::most(),
            fetching: None,
            failed: None,
            reading: VecDeque::new(),
            budget: Budget::new(),
        }
    }

    /// The first page: the answer to `request`.
    pub(super) async fn first(
        &mut self,
        request: ListRequest,
    ) -> Result<ListPage<S>, transport::Error> {
        let body = self.reflector.body(&request).await?;
        self.begin(request, body);
        self.read().await
    }

    /// The page of `token`, which is that of the page before.
    pub(super) async fn next(&mut self, token: String) -> Result<ListPage<S>, transport::Error> {
        let begun = self.fetching.is_some() || self.failed.is_some() || !self.reading.is_empty();
        if !begun {
            let request = self.request(token);
            let body = self.reflector.body(&request).await?;
            self.begin(request, body);
        }
        self.read().await
    }

    /// The first page of `reading`. One that cannot be read as protobuf is requested once more, as JSON.
    async fn read(&mut self) -> Result<ListPage<S>, transport::Error> {
        loop {
            let page = self.decoded().await?;
            // `decoded` has just read the first one.
            let Some(read) = self.reading.pop_front() else {
                return pending().await;
            };
            match page.map_err(transport::Error::from) {
                Ok(page) => {
                    if read.token != page.continue_token {
                        // The pages that follow are not those of its token.
                        self.abandon();
                    }
                    return Ok(page);
                }
                Err(error) => {
                    if !self.reflector.fall_back_after(read.encoding, &error) {
                        return Err(error);
                    }
                    self.abandon();
                    let body = self.reflector.body(&read.request).await?;
                    self.begin(read.request, body);
                }
            }
        }
    }

    /// Gives up the pages that were begun.
    fn abandon(&mut self) {
        self.reading.clear();
        self.fetching = None;
        self.failed = None;
    }

    /// The content of the first page of `reading`. Meanwhile others are fetched.
    ///
    /// # Errors
    /// The reason why it cannot be fetched.
    async fn decoded(&mut self) -> Result<Result<ListPage<S>, DecodeError>, transport::Error> {
        loop {
            let has_room = self.has_room();
            let Some(reading) = self.reading.front_mut() else {
                match &mut self.fetching {
                    Some(body) => {
                        let body = body.await;
                        self.fetched(joined(body).await);
                        continue;
                    }
                    None => match self.failed.take() {
                        Some(error) => return Err(error),
                        // `begin` was called before, so there is one.
                        None => return pending().await,
                    },
                }
            };
            let elsewhere = match &mut reading.work {
                Work::Here(body) => return Ok(self.reader.read(body, &mut self.budget).await),
                Work::Elsewhere(elsewhere) => elsewhere,
            };
            let fetching = self.fetching.as_mut().filter(|_| has_room);
            let fetched = async {
                match fetching {
                    Some(body) => joined(body.await).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                body = fetched => self.fetched(body),
                page = elsewhere.page.output_or_input() => match page {
                    Ok(page) => return Ok(page),
                    Err(body) => reading.work = Work::Here(body),
                },
            }
        }
    }

    fn has_room(&self) -> bool {
        let bytes: usize = self.reading.iter().map(|page| page.bytes).sum();
        self.reading.len() < self.most.max(1) && bytes < AHEAD
    }

    fn fetched(&mut self, (request, body): Fetched) {
        self.fetching = None;
        match body {
            Ok(body) => self.begin(request, body),
            Err(error) => self.failed = Some(error),
        }
    }

    /// Begins to read a page, and to fetch the next one if there is one.
    fn begin(&mut self, request: ListRequest, body: Encoded) {
        let (bytes, encoding) = (body.bytes.len(), body.encoding);
        let token = continue_token(&body);
        if let Some(token) = token.clone() {
            self.fetch(self.request(token));
        }
        let is_large = bytes >= LARGE;
        let work = match is_large.then(|| Permit::take(self.most)).flatten() {
            None => Work::Here(body),
            Some(permit) => {
                let (reader, stop) = (Arc::clone(&self.reader), CancellationToken::new());
                let stopped = stop.clone();
                let page = Handed::begin(body, permit, move |body| {
                    reader.read_at_once(&body, &stopped)
                });
                Work::Elsewhere(Elsewhere {
                    page,
                    _stop: stop.drop_guard(),
                })
            }
        };
        self.reading.push_back(Reading {
            request,
            encoding,
            bytes,
            token,
            work,
        });
    }

    /// Begins to fetch a page.
    fn fetch(&mut self, request: ListRequest) {
        let reflector = self.reflector;
        let encoding = reflector.encoding();
        match request.build_as(&reflector.endpoint, &reflector.selection, encoding) {
            Ok(built) => {
                let transport = reflector.transport.clone();
                self.fetching = Some(spawn_fetch(transport, request, built));
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn request(&self, token: String) -> ListRequest {
        ListRequest {
            resource_version: None,
            limit: self.limit,
            continue_token: Some(token),
        }
    }
}
