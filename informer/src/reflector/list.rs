//! The present state in pages, or all at once.

use kube_client::client::Body;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::history::History;
use super::offers::{Page, Paging};
use super::phase::Outcome;
use super::run::{Listed, Reflector, listed_version};
use crate::decode::{Budget, Identity, ListPage, continue_token, read_list};
use crate::metrics::Measurement;
use crate::object::Stored;
use reeve_client::ResourceVersion;
use reeve_client::transport::{self, Encoded, ListRequest};

/// The next page of a list, which is fetched while the one before it is read. Dropping it gives it up.
#[derive(Default)]
struct Ahead {
    token: Option<String>,
    fetching: JoinSet<Result<Encoded, transport::Error>>,
}

// === impl Ahead ===

impl Ahead {
    fn fetch(&mut self, transport: transport::Transport, request: http::Request<Body>) {
        self.fetching
            .spawn(async move { transport.fetch_encoded(request).await });
    }

    /// The page of `token`, if it is being fetched.
    async fn take(&mut self, token: Option<&str>) -> Option<Result<Encoded, transport::Error>> {
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

impl<S: Stored + ?Sized> Reflector<S> {
    /// Reads one page after the other into the queue.
    pub(super) async fn list<W>(&self, history: &mut History, paging: Paging) -> Outcome<W> {
        let started = Instant::now();
        let (listed, paginated) = match self.all_pages(history, &paging).await {
            Ok(listed) => listed,
            Err((page, error)) => {
                return Outcome::ListFailed {
                    paging,
                    page,
                    error: error.into(),
                };
            }
        };
        self.recorder.record(Measurement::Listed {
            items: listed.objects.len(),
            duration: started.elapsed(),
            streamed: false,
        });
        let accepted = self.accept(history, listed, paging.version.is_none());
        Outcome::Listed {
            paging,
            paginated,
            accepted,
        }
    }

    /// The objects of all pages, and whether there were several.
    async fn all_pages(
        &self,
        history: &History,
        paging: &Paging,
    ) -> Result<(Listed<S>, bool), (Page, transport::Error)> {
        let first = ListRequest {
            resource_version: paging.version.clone(),
            limit: paging.limit,
            continue_token: None,
        };
        let mut ahead = Ahead::default();
        let mut budget = Budget::new();
        let page = self.page_and_ahead(history, &mut ahead, first, &mut budget);
        let mut page = page.await.map_err(|error| (Page::First, error))?;
        let mut listed = Listed {
            objects: Vec::new(),
            undecodable: Vec::new(),
            version: ResourceVersion::from(std::mem::take(&mut page.resource_version)),
        };
        let paginated = page.continue_token.is_some();
        loop {
            for object in page.items {
                match self.reuse(history, object) {
                    Ok(object) => listed.objects.push(object),
                    Err(object) => listed.undecodable.push(object),
                }
                budget.spend(0).await;
            }
            listed.undecodable.append(&mut page.undecodable);
            let Some(token) = page.continue_token else {
                return Ok((listed, paginated));
            };
            let next = ListRequest {
                resource_version: None,
                limit: paging.limit,
                continue_token: Some(token),
            };
            let next = self.page_and_ahead(history, &mut ahead, next, &mut budget);
            page = next.await.map_err(|error| (Page::Later, error))?;
        }
    }

    /// Reads one page while the next one is fetched.
    async fn page_and_ahead(
        &self,
        history: &History,
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
        // At first the consumer holds nothing.
        Ok(if history.has_begun() {
            let held = |identity: &Identity<'_>| self.held(history, identity);
            read_list(&body, &self.entries, Some(&held), budget).await?
        } else {
            read_list(&body, &self.entries, None, budget).await?
        })
    }

    /// The server's newest version, by the smallest of lists.
    pub(super) async fn newest_version(&self) -> Result<ResourceVersion, transport::Error> {
        let request = ListRequest {
            resource_version: None,
            limit: 1,
            continue_token: None,
        };
        let body = self.body(request).await?;
        let page = read_list(&body, &self.entries, None, &mut Budget::new()).await?;
        Ok(listed_version(page.resource_version.into()))
    }

    async fn body(&self, request: ListRequest) -> Result<Encoded, transport::Error> {
        let request = request.build(&self.endpoint, &self.selection)?;
        self.transport.fetch_encoded(request).await
    }
}
