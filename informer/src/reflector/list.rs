//! Reading the present state: as a stream, or in pages.

use std::sync::Arc;

use bytes::Bytes;
use kube_client::client::Body;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::initial::Initial;
use super::react::{Refusal, refusal};
use super::watch::Opened;
use super::{Error, Progress, Reflector, listed_version};
use crate::decode::{
    Budget, Frame, Identity, ListPage, Undecodable, changed, continue_token, decode_frame,
    read_list,
};
use crate::metrics::Measurement;
use crate::object::Stored;
use reeve_client::ResourceVersion;
use reeve_client::error_chain;
use reeve_client::transport::{self, Lines, ListRequest};

/// Everything a list held.
struct Listed<S> {
    objects: Vec<Arc<S>>,
    undecodable: Vec<Undecodable>,
    version: ResourceVersion,
    /// It came in more than one page.
    paginated: bool,
    /// The server was asked for its newest state.
    consistent: bool,
}

/// Why a list did not come to its end.
enum Broken {
    /// The first page, or everything at once.
    First(transport::Error),
    /// A later page.
    Later(transport::Error),
}

/// The next page of a list, on its way while the one before is read. Dropping it gives it up.
#[derive(Default)]
struct Ahead {
    token: Option<String>,
    fetching: JoinSet<Result<Bytes, transport::Error>>,
}

// === impl Ahead ===

impl Ahead {
    fn fetch(&mut self, transport: transport::Transport, request: http::Request<Body>) {
        self.fetching
            .spawn(async move { transport.fetch(request).await });
    }

    /// The page of `token`, if it is on its way.
    async fn take(&mut self, token: Option<&str>) -> Option<Result<Bytes, transport::Error>> {
        let expected = self.token.take();
        if expected.is_none() || expected.as_deref() != token {
            self.fetching = JoinSet::new();
            return None;
        }
        match self.fetching.join_next().await? {
            Ok(body) => Some(body),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => None,
        }
    }
}

// === impl Reflector ===

impl<S: Stored> Reflector<S> {
    /// Reads the present state into the queue. A streaming list goes on as the watch that is returned.
    pub(super) async fn list(&self, progress: &mut Progress) -> Result<Option<Opened>, Error> {
        self.room_for_list().await;
        progress.pace.ready().await;
        let mut started = Instant::now();
        // A server that seems to be behind is asked for its newest state until that is settled.
        let retry = self.options.streaming_retry;
        let streaming = self.options.streaming
            && progress.behind == 0
            && progress
                .streaming_after
                .is_none_or(|after| started >= after)
            && !self.refusals.is_recent(&self.endpoint, retry);
        if streaming {
            let incomplete = progress.incomplete;
            match self.stream(progress).await {
                Ok(opened) => return Ok(Some(opened)),
                Err(error) => self.judge_stream(progress, incomplete, error)?,
            }
            progress.pace.ready().await;
            started = Instant::now();
        }
        let version = progress.list_version(&self.options);
        let listed = match self.pages(progress, version.as_deref()).await {
            Err(error)
                if version.is_some() && (error.is_expired() || error.is_too_large_version()) =>
            {
                progress.unavailable = true;
                progress.pace.ready().await;
                self.pages(progress, None).await?
            }
            listed => listed?,
        };
        if std::mem::take(&mut progress.refused) {
            self.refusals.refused(&self.endpoint);
        }
        self.recorder.record(Measurement::Listed {
            items: listed.objects.len(),
            duration: started.elapsed(),
            streamed: false,
        });
        self.accept(
            progress,
            listed.objects,
            &listed.undecodable,
            listed.version,
            listed.consistent,
        )?;
        progress.silent_lists = 0;
        Ok(None)
    }

    /// Whether a failed streaming list is followed by pages now, or is a failure. `incomplete` streaming lists in a row
    /// had ended too early before it.
    fn judge_stream(
        &self,
        progress: &mut Progress,
        incomplete: u32,
        error: Error,
    ) -> Result<(), Error> {
        let (refused, fatal) = match &error {
            Error::Transport(failure) => {
                let refusal = refusal(failure);
                progress.refused = refusal == Some(Refusal::ServerIfPages);
                if refusal == Some(Refusal::Server) {
                    self.refusals.refused(&self.endpoint);
                }
                if refusal == Some(Refusal::Silence) && self.refusals.has_offered(&self.endpoint) {
                    // Silence is counted by itself: it does not make a failure that comes later the second in a row.
                    progress.incomplete = incomplete;
                    // The server is busy, and pages would be more work for it. If it stays silent, they are read once.
                    progress.silent_lists = progress.silent_lists.saturating_add(1);
                    return if progress.silent_lists == 1 {
                        Err(error)
                    } else {
                        Ok(())
                    };
                }
                // A list that was not even begun did not break off.
                let broke_off = progress.incomplete > incomplete;
                let refused = refusal.is_some() || (broke_off && progress.incomplete > 1);
                let version = failure.is_expired() || failure.is_too_large_version();
                progress.unavailable |= version;
                (refused, !refused && !version)
            }
            Error::Endless { .. } => (true, false),
            Error::Incomplete => (progress.incomplete > 1, false),
            Error::Behind { .. } | Error::LowBookmarks { .. } => (false, true),
        };
        if refused {
            tracing::debug!(kind = %self.endpoint, namespace = self.namespace(), error = %error_chain(&error), "no streaming lists here; reading pages");
            progress.streaming_after = Some(Instant::now() + self.options.streaming_retry);
        }
        if fatal { Err(error) } else { Ok(()) }
    }

    /// Reads all pages, or, when their token expires meanwhile, everything at once (client-go: `FullListIfExpired`);
    /// and what cannot be had at once, in pages.
    async fn pages(
        &self,
        progress: &mut Progress,
        mut version: Option<&str>,
    ) -> Result<Listed<S>, transport::Error> {
        // At "0" a server that has a cache gives everything at once, whatever the limit says.
        const AT_HAND: Option<&str> = Some("0");
        if version == AT_HAND && !progress.may_ask_for_all() {
            version = None;
        }
        let mut limit = progress.page_limit(&self.options, version);
        loop {
            match self.all_pages(progress, version, limit).await {
                Ok(listed) => {
                    progress.pages_without_cache |= version == AT_HAND && listed.paginated;
                    return Ok(listed);
                }
                Err(Broken::First(error))
                    if (limit == 0 || version == AT_HAND) && error.is_unwieldy() =>
                {
                    progress.ask_in_pages();
                    version = version.filter(|_| version != AT_HAND);
                    limit = Progress::page_size(&self.options);
                }
                Err(Broken::Later(error))
                    if limit > 0 && error.is_expired() && progress.may_ask_for_all() =>
                {
                    limit = 0;
                }
                Err(Broken::First(error) | Broken::Later(error)) => return Err(error),
            }
            progress.pace.ready().await;
        }
    }

    /// Reads one page after the other; all at once if `limit` is 0.
    async fn all_pages(
        &self,
        progress: &Progress,
        version: Option<&str>,
        limit: u32,
    ) -> Result<Listed<S>, Broken> {
        let first = ListRequest {
            resource_version: version.map(str::to_owned),
            limit,
            continue_token: None,
        };
        let mut ahead = Ahead::default();
        let mut budget = Budget::new();
        let page = self.page_and_ahead(progress, &mut ahead, first, &mut budget);
        let page = page.await;
        let mut page = page.map_err(Broken::First)?;
        let mut listed = Listed {
            objects: Vec::new(),
            undecodable: Vec::new(),
            version: ResourceVersion::from(std::mem::take(&mut page.resource_version)),
            paginated: page.continue_token.is_some(),
            consistent: version.is_none(),
        };
        loop {
            for object in page.items {
                match self.reuse(progress, object) {
                    Ok(object) => listed.objects.push(object),
                    Err(object) => listed.undecodable.push(object),
                }
                budget.spend(0).await;
            }
            listed.undecodable.append(&mut page.undecodable);
            let Some(token) = page.continue_token else {
                return Ok(listed);
            };
            let next = ListRequest {
                resource_version: None,
                limit,
                continue_token: Some(token),
            };
            let next = self.page_and_ahead(progress, &mut ahead, next, &mut budget);
            page = next.await.map_err(Broken::Later)?;
        }
    }

    /// Reads one page, and has the server make the next one meanwhile.
    async fn page_and_ahead(
        &self,
        progress: &Progress,
        ahead: &mut Ahead,
        request: ListRequest,
        budget: &mut Budget,
    ) -> Result<ListPage<S>, transport::Error> {
        let limit = request.limit;
        let body = match ahead.take(request.continue_token.as_deref()).await {
            Some(body) => body?,
            None => self.body(request).await?,
        };
        if let Some(token) = continue_token(&body) {
            let next = ListRequest {
                resource_version: None,
                limit,
                continue_token: Some(token.clone()),
            };
            let next = next.build(&self.endpoint, &self.selection)?;
            ahead.token = Some(token);
            ahead.fetch(self.transport.clone(), next);
        }
        // The first time nothing is held.
        Ok(if progress.version.is_none() {
            read_list(&body, &self.decoding, None, budget).await?
        } else {
            let held = |identity: &Identity<'_>| self.held(progress, identity);
            read_list(&body, &self.decoding, Some(&held), budget).await?
        })
    }

    /// The newest version there is, by the smallest of lists.
    pub(super) async fn newest_version(&self) -> Result<ResourceVersion, transport::Error> {
        let request = ListRequest {
            resource_version: None,
            limit: 1,
            continue_token: None,
        };
        let body = self.body(request).await?;
        let page = read_list::<S>(&body, &self.decoding, None, &mut Budget::new()).await?;
        Ok(listed_version(page.resource_version.into()))
    }

    async fn body(&self, request: ListRequest) -> Result<Bytes, transport::Error> {
        let request = request.build(&self.endpoint, &self.selection)?;
        self.transport.fetch(request).await
    }

    /// Reads the present state as a stream of initial events (client-go: `watchList`).
    async fn stream(&self, progress: &mut Progress) -> Result<Opened, Error> {
        let started = Instant::now();
        let version = progress.version.as_ref().filter(|_| !progress.unavailable);
        let consistent = version.is_none();
        let version = version.cloned().unwrap_or_default();
        let mut opened = self.open(&version, true).await?;
        // Until it is complete. Once may be chance; but what breaks off each time may come through in pages.
        progress.incomplete += 1;
        let deadline = started + self.options.streaming_deadline;
        let mut initial = Initial::new();
        let mut budget = Budget::new();
        let version = loop {
            let line = self.initial_line(&mut opened.lines, deadline).await?;
            budget.spend(line.len()).await;
            let frame = self.initial_frame(progress, &line)?;
            if let Some(version) = initial.take(frame)? {
                break version;
            }
        };
        let (objects, undecodable) = initial.finish();
        self.recorder.record(Measurement::Listed {
            items: objects.len(),
            duration: started.elapsed(),
            streamed: true,
        });
        progress.incomplete = 0;
        progress.silent_lists = 0;
        self.refusals.offered(&self.endpoint);
        self.accept(progress, objects, &undecodable, version, consistent)?;
        Ok(opened)
    }

    /// The next line of a streaming list, which is to be complete by `deadline`.
    async fn initial_line(&self, lines: &mut Lines, deadline: Instant) -> Result<Bytes, Error> {
        // Most lines come many at once.
        if let Some(line) = lines.ready_line()? {
            return Ok(line);
        }
        let line = lines.next_line(self.options.streaming_idle);
        let line = timeout_at(deadline, line).await;
        let line = line.map_err(|_| Error::Endless {
            after: self.options.streaming_deadline,
        })?;
        line?.ok_or(Error::Incomplete)
    }

    /// What a line of a streaming list says; what is held already is not read again.
    fn initial_frame(&self, progress: &Progress, line: &[u8]) -> Result<Frame<S>, Error> {
        // The first time nothing is held.
        let again = progress.version.is_some();
        let changed = again.then(|| changed(line)).flatten();
        let held = changed.and_then(|identity| self.held(progress, &identity));
        let frame = match held {
            Some(object) => Frame::Modified(object),
            None => decode_frame(line, &self.decoding).map_err(transport::Error::from)?,
        };
        let (Frame::Added(object) | Frame::Modified(object)) = frame else {
            return Ok(frame);
        };
        Ok(match self.reuse(progress, object) {
            Ok(object) => Frame::Modified(object),
            Err(object) => Frame::Undecodable {
                object,
                deleted: false,
            },
        })
    }
}
