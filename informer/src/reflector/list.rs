//! The present state in pages, or all at once.

use std::collections::HashSet;

use tokio::time::Instant;

use super::history::History;
use super::offers::{Page, Paging};
use super::pages::Pages;
use super::phase::Outcome;
use super::run::{Listed, Reflector, listed_version};
use crate::decode::{Budget, DecodeError, read_list};
use crate::metrics::Measurement;
use crate::object::Stored;
use reeve_client::ResourceVersion;
use reeve_client::transport::{self, ListRequest};

/// The number of empty pages in a row after which a list is given up.
const EMPTY_PAGES: u32 = 1000;

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
        let mut pages = Pages::new(self, history, paging);
        let mut budget = Budget::new();
        let page = pages.first(first).await;
        let mut page = page.map_err(|error| (Page::First, error))?;
        let mut listed = Listed {
            objects: Vec::new(),
            undecodable: Vec::new(),
            version: ResourceVersion::from(std::mem::take(&mut page.resource_version)),
        };
        let paginated = page.continue_token.is_some();
        let (mut passed, mut empty) = (HashSet::new(), 0);
        loop {
            let last = page.items.last().map(|last| last.key());
            empty = if last.is_some() { 0 } else { empty + 1 };
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
            // A server that returns a page again, or one empty page after another, does so without end.
            let endless = if !passed.insert((token.clone(), last)) {
                Some("the server returned the same page twice".to_owned())
            } else {
                (empty == EMPTY_PAGES)
                    .then(|| format!("the server returned {EMPTY_PAGES} empty pages in a row"))
            };
            if let Some(error) = endless {
                let error = DecodeError {
                    what: "the list",
                    error,
                };
                return Err((Page::Later, error.into()));
            }
            let next = pages.next(token).await;
            page = next.map_err(|error| (Page::Later, error))?;
        }
    }

    /// The server's newest version, by the smallest of lists.
    pub(super) async fn newest_version(&self) -> Result<ResourceVersion, transport::Error> {
        let request = ListRequest {
            resource_version: None,
            limit: 1,
            continue_token: None,
        };
        let mut body = self.body(&request).await?;
        loop {
            let read = read_list(&body, &self.entries, None, &mut Budget::new()).await;
            match read.map_err(transport::Error::from) {
                Ok(page) => return Ok(listed_version(page.resource_version.into())),
                // Once more, as JSON.
                Err(error) if self.fall_back_after(body.encoding, &error) => {
                    body = self.body(&request).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
