//! Reading the present state: as a stream, or in pages.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use indexmap::{Equivalent, IndexMap, IndexSet};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::options::FirstList;
use super::react::refuses_streaming;
use super::watch::Opened;
use super::{Error, Progress, Reflector};
use crate::decode::{
    Frame, Identity, ListPage, Undecodable, changed, continue_token, decode_frame, decode_list,
    decode_list_again,
};
use crate::entry::Stored;
use crate::key::{KeyRef, ObjectKey};
use crate::metrics::Measurement;
use crate::transport::{self, ListRequest};
use crate::version::ResourceVersion;

/// Everything a list held.
struct Listed<S> {
    objects: Vec<Arc<S>>,
    undecodable: Vec<Undecodable>,
    version: ResourceVersion,
    /// It came in more than one page.
    paginated: bool,
}

/// The next page of a list, on its way while the one before is read. Dropping it gives it up.
#[derive(Default)]
struct Ahead {
    token: Option<String>,
    fetching: JoinSet<Result<Bytes, transport::Error>>,
}

/// An object in a set, told from others by its key.
struct Keyed<S>(Arc<S>);

// === impl Ahead ===

impl Ahead {
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

// === impl Keyed ===

impl<S: Stored> PartialEq for Keyed<S> {
    fn eq(&self, other: &Self) -> bool {
        self.0.key_ref() == other.0.key_ref()
    }
}

impl<S: Stored> Eq for Keyed<S> {}

impl<S: Stored> Hash for Keyed<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key_ref().hash(state);
    }
}

impl<S: Stored> Equivalent<Keyed<S>> for KeyRef<'_> {
    fn equivalent(&self, keyed: &Keyed<S>) -> bool {
        *self == keyed.0.key_ref()
    }
}

// === impl Reflector ===

impl<S: Stored> Reflector<S> {
    /// Reads the present state into the queue. A streaming list goes on as the watch that is returned.
    pub(super) async fn list(&self, progress: &mut Progress) -> Result<Option<Opened>, Error> {
        progress.pace.ready().await;
        let mut started = Instant::now();
        // A server that seems to be behind is asked for its newest state until that is settled.
        let streaming = self.options.streaming
            && progress.behind == 0
            && progress
                .streaming_after
                .is_none_or(|after| started >= after);
        if streaming {
            match self.stream(progress).await {
                Ok(opened) => return Ok(Some(opened)),
                Err(error) => self.judge_stream(progress, error)?,
            }
            progress.pace.ready().await;
            started = Instant::now();
        }
        let version = self.list_version(progress);
        let (listed, consistent) = match self.pages(progress, version.clone()).await {
            Err(error)
                if version.is_some() && (error.is_expired() || error.is_too_large_version()) =>
            {
                progress.unavailable = true;
                progress.pace.ready().await;
                (self.pages(progress, None).await?, true)
            }
            listed => (listed?, version.is_none()),
        };
        if version.as_deref() == Some("0") && listed.paginated {
            progress.pages_without_cache = true;
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
            consistent,
        )?;
        Ok(None)
    }

    /// Whether a failed streaming list is followed by pages now, or is a failure.
    fn judge_stream(&self, progress: &mut Progress, error: Error) -> Result<(), Error> {
        let (refused, fatal) = match &error {
            Error::Transport(error) => {
                let refused = refuses_streaming(error) || progress.incomplete > 1;
                let version = error.is_expired() || error.is_too_large_version();
                progress.unavailable |= version;
                (refused, !refused && !version)
            }
            Error::Endless { .. } => (true, false),
            Error::Incomplete => (progress.incomplete > 1, false),
            Error::Behind { .. } | Error::LowBookmarks { .. } => (false, true),
        };
        if refused {
            tracing::debug!(kind = %self.endpoint, namespace = self.namespace(), %error, "no streaming lists here; reading pages");
            progress.streaming_after = Some(Instant::now() + self.options.streaming_retry);
        }
        if fatal { Err(error) } else { Ok(()) }
    }

    fn list_version(&self, progress: &Progress) -> Option<String> {
        match self.options.first_list {
            FirstList::Any if !progress.unavailable => {
                let known = progress.version.as_ref();
                Some(known.map_or_else(|| "0".to_owned(), ToString::to_string))
            }
            _ => None,
        }
    }

    /// Reads all pages, or, when their token expires meanwhile, everything at once.
    async fn pages(
        &self,
        progress: &Progress,
        version: Option<String>,
    ) -> Result<Listed<S>, transport::Error> {
        // A list at a known version comes from the server's cache, which a limit would bypass.
        let from_cache = version.as_deref().is_some_and(|version| version != "0");
        let limit = if from_cache && !progress.pages_without_cache {
            0
        } else {
            self.options.page_size
        };
        let first = ListRequest {
            resource_version: version.clone(),
            limit,
            continue_token: None,
        };
        let mut ahead = Ahead::default();
        let mut page = self.page_and_ahead(progress, &mut ahead, first).await?;
        let mut listed = Listed {
            objects: Vec::new(),
            undecodable: Vec::new(),
            version: ResourceVersion::from(std::mem::take(&mut page.resource_version)),
            paginated: page.continue_token.is_some(),
        };
        loop {
            for object in page.items {
                match self.reuse(progress, object) {
                    Ok(object) => listed.objects.push(object),
                    Err(object) => listed.undecodable.push(object),
                }
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
            page = match self.page_and_ahead(progress, &mut ahead, next).await {
                Err(error) if error.is_expired() => {
                    // client-go: FullListIfExpired.
                    let all = ListRequest {
                        resource_version: version.clone(),
                        limit: 0,
                        continue_token: None,
                    };
                    let mut page = self.page(all).await?;
                    listed.objects.clear();
                    listed.undecodable.clear();
                    listed.version =
                        ResourceVersion::from(std::mem::take(&mut page.resource_version));
                    page
                }
                page => page?,
            };
        }
    }

    /// Reads one page, and has the server make the next one meanwhile.
    async fn page_and_ahead(
        &self,
        progress: &Progress,
        ahead: &mut Ahead,
        request: ListRequest,
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
            let transport = self.transport.clone();
            ahead.token = Some(token);
            ahead
                .fetching
                .spawn(async move { transport.fetch(next).await });
        }
        // The first time nothing is held.
        Ok(if progress.version.is_none() {
            decode_list(&body, &self.decoding)?
        } else {
            let held = |identity: &Identity<'_>| self.held(progress, identity);
            decode_list_again(&body, &self.decoding, &held)?
        })
    }

    /// The newest version there is, by the smallest of lists.
    pub(super) async fn newest_version(&self) -> Result<ResourceVersion, transport::Error> {
        let request = ListRequest {
            resource_version: None,
            limit: 1,
            continue_token: None,
        };
        Ok(self.page(request).await?.resource_version.into())
    }

    async fn page(&self, request: ListRequest) -> Result<ListPage<S>, transport::Error> {
        let body = self.body(request).await?;
        Ok(decode_list(&body, &self.decoding)?)
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
        let again = progress.version.is_some();
        let version = version.cloned().unwrap_or_default();
        let mut opened = self.open(&version, true).await?;
        let lines = &mut opened.lines;
        // Until it is complete. Once may be chance; but what breaks off each time may come through in pages.
        progress.incomplete += 1;
        let deadline = started + self.options.streaming_deadline;
        let endless = |_| Error::Endless {
            after: self.options.streaming_deadline,
        };
        // Deletions and updates that come before the end belong to the state.
        let mut objects = IndexSet::<Keyed<S>, RandomState>::default();
        let mut undecodable: IndexMap<Option<ObjectKey>, Undecodable> = IndexMap::new();
        loop {
            let line = if let Some(line) = lines.ready_line()? {
                line
            } else {
                let line = lines.next_line(self.options.streaming_idle);
                let line = timeout_at(deadline, line).await.map_err(endless)??;
                line.ok_or(Error::Incomplete)?
            };
            let changed = again.then(|| changed(&line)).flatten();
            let held = changed.and_then(|identity| self.held(progress, &identity));
            let frame = match held {
                Some(object) => Frame::Modified(object),
                None => decode_frame(&line, &self.decoding).map_err(transport::Error::from)?,
            };
            let frame = match frame {
                Frame::Added(object) | Frame::Modified(object) => {
                    match self.reuse(progress, object) {
                        Ok(object) => Frame::Modified(object),
                        Err(object) => Frame::Undecodable {
                            object,
                            deleted: false,
                        },
                    }
                }
                frame => frame,
            };
            match frame {
                Frame::Added(object) | Frame::Modified(object) => {
                    if !undecodable.is_empty() {
                        undecodable.swap_remove(&Some(object.key()));
                    }
                    objects.replace(Keyed(object));
                }
                Frame::Deleted(object) => {
                    undecodable.swap_remove(&Some(object.key()));
                    objects.swap_remove(&object.key_ref());
                }
                Frame::Undecodable { object, deleted } => {
                    if let Some(key) = &object.key {
                        objects.swap_remove(&key.as_ref());
                    }
                    if deleted {
                        undecodable.swap_remove(&object.key);
                    } else {
                        undecodable.insert(object.key.clone(), object);
                    }
                }
                Frame::Bookmark {
                    resource_version,
                    initial_events_end: true,
                } => {
                    self.recorder.record(Measurement::Listed {
                        items: objects.len(),
                        duration: started.elapsed(),
                        streamed: true,
                    });
                    let objects = objects.into_iter().map(|Keyed(object)| object).collect();
                    let undecodable: Vec<_> = undecodable.into_values().collect();
                    progress.incomplete = 0;
                    self.accept(
                        progress,
                        objects,
                        &undecodable,
                        resource_version.into(),
                        consistent,
                    )?;
                    return Ok(opened);
                }
                Frame::Error(status) => return Err(transport::Error::from_status(status).into()),
                Frame::Bookmark { .. } | Frame::Unknown => {}
            }
        }
    }
}
