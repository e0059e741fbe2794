//! The pages of a list, in order: [`Pages`].
//!
//! A page is fetched while those before it are decoded. Large pages are decoded by several threads of the runtime, as
//! many at once as [`threads`] allows. What is fetched and not decoded yet is bounded in bytes too.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::history::History;
use super::offers::Paging;
use super::run::{Reflector, held};
use super::threads::threads;
use crate::decode::{Budget, DecodeError, Identity, ListPage, continue_token, read_list};
use crate::fifo::KnownObjects;
use crate::object::{EntryReader, Stored};
use reeve_client::transport::{self, Encoded, ListRequest};

/// A page of fewer bytes is decoded by the task that lists: to hand it over would cost more.
const LARGE: usize = 64 * 1024;

/// While pages of so many bytes are being decoded, no further one is begun.
const AHEAD: usize = 32 * 1024 * 1024;

/// The pages of a list, in order. Dropping this ends their tasks.
pub(super) struct Pages<'a, S: Stored + ?Sized> {
    reflector: &'a Reflector<S>,
    limit: u32,
    reader: Arc<PageReader<S>>,
    /// The most pages that are decoded at once by other tasks; 0 to decode in this one.
    threads: usize,
    /// The page after those in `reading`.
    fetching: Option<AbortOnDropHandle<Result<Encoded, transport::Error>>>,
    /// The reason why the page after those in `reading` cannot be fetched.
    failed: Option<transport::Error>,
    reading: VecDeque<Reading<S>>,
    budget: Budget,
}

/// A page that was fetched.
struct Reading<S: ?Sized> {
    /// The length of its body.
    bytes: usize,
    /// The token with which the page after it was requested.
    token: Option<String>,
    work: Work<S>,
}

enum Work<S: ?Sized> {
    /// The body, to be decoded by this task.
    Here(Encoded),
    Elsewhere(AbortOnDropHandle<Result<ListPage<S>, DecodeError>>),
}

/// Decodes pages.
struct PageReader<S: ?Sized> {
    entries: EntryReader<S>,
    /// False for the first list: the consumer holds nothing yet.
    again: bool,
    /// The objects that the consumer holds.
    known: Option<Arc<dyn KnownObjects<S>>>,
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
            threads: threads(),
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
        let body = self.reflector.body(request).await?;
        self.begin(body);
        self.read().await
    }

    /// The page of `token`, which is that of the page before.
    pub(super) async fn next(&mut self, token: String) -> Result<ListPage<S>, transport::Error> {
        let begun = self.fetching.is_some() || self.failed.is_some() || !self.reading.is_empty();
        if !begun {
            let body = self.reflector.body(self.request(token)).await?;
            self.begin(body);
        }
        self.read().await
    }

    /// The first page of `reading`. Meanwhile others are fetched.
    async fn read(&mut self) -> Result<ListPage<S>, transport::Error> {
        let page = loop {
            let has_room = self.has_room();
            match (
                self.reading.front_mut().map(|page| &mut page.work),
                &mut self.fetching,
            ) {
                (Some(Work::Here(body)), _) => {
                    break self.reader.read(body, &mut self.budget).await;
                }
                (Some(Work::Elsewhere(page)), Some(body)) if has_room => tokio::select! {
                    biased;
                    body = body => self.fetched(joined(body).await),
                    page = page => break joined(page).await,
                },
                (Some(Work::Elsewhere(page)), _) => break joined(page.await).await,
                (None, Some(body)) => {
                    let body = body.await;
                    self.fetched(joined(body).await);
                }
                (None, None) => match self.failed.take() {
                    Some(error) => return Err(error),
                    // `begin` was called before, so there is one.
                    None => pending().await,
                },
            }
        };
        let read = self.reading.pop_front();
        let page = page?;
        if read.is_none_or(|read| read.token != page.continue_token) {
            // The pages that follow are not those of its token.
            self.reading.clear();
            self.fetching = None;
            self.failed = None;
        }
        Ok(page)
    }

    fn has_room(&self) -> bool {
        let bytes: usize = self.reading.iter().map(|page| page.bytes).sum();
        self.reading.len() < self.threads.max(1) && bytes < AHEAD
    }

    fn fetched(&mut self, body: Result<Encoded, transport::Error>) {
        self.fetching = None;
        match body {
            Ok(body) => self.begin(body),
            Err(error) => self.failed = Some(error),
        }
    }

    /// Begins to read a page, and to fetch the next one if there is one.
    fn begin(&mut self, body: Encoded) {
        let (bytes, token) = (body.bytes.len(), continue_token(&body));
        if let Some(token) = token.clone() {
            let reflector = self.reflector;
            match self
                .request(token)
                .build(&reflector.endpoint, &reflector.selection)
            {
                Ok(request) => {
                    let transport = reflector.transport.clone();
                    let fetch = tokio::spawn(async move { transport.fetch_encoded(request).await });
                    self.fetching = Some(AbortOnDropHandle::new(fetch));
                }
                Err(error) => self.failed = Some(error),
            }
        }
        let work = if self.threads == 0 || body.bytes.len() < LARGE {
            Work::Here(body)
        } else {
            let reader = Arc::clone(&self.reader);
            let page = async move { reader.read(&body, &mut Budget::new()).await };
            Work::Elsewhere(AbortOnDropHandle::new(tokio::spawn(page)))
        };
        self.reading.push_back(Reading { bytes, token, work });
    }

    fn request(&self, token: String) -> ListRequest {
        ListRequest {
            resource_version: None,
            limit: self.limit,
            continue_token: Some(token),
        }
    }
}

/// The result of a task. Its panic goes on in this one.
pub(super) async fn joined<T>(result: Result<T, JoinError>) -> T {
    match result {
        Ok(result) => result,
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        // The runtime ends, and this task with it.
        Err(_) => pending().await,
    }
}
