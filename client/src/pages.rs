//! Lists page by page.

use kube_core::ObjectList;
use kube_core::params::ListParams;

use crate::error::Error;
use crate::object::AnyObject;
use crate::objects::Objects;

/// Default number of objects in a page (client-go: `defaultPageSize`).
pub const PAGE_SIZE: u32 = 500;

/// A list, read page by page. All pages show the state of the first.
///
/// ```no_run
/// # async fn example(client: &reeve_client::Client) -> Result<(), reeve_client::Error> {
/// use k8s_openapi::api::core::v1::Pod;
/// use kube_core::params::ListParams;
///
/// let mut pages = client.objects::<Pod>().pages(None, &ListParams::default().limit(100));
/// while let Some(page) = pages.next().await? {
///     println!("{} Pods", page.items.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Pages<K> {
    objects: Objects<K>,
    namespace: Option<String>,
    params: ListParams,
    done: bool,
}

// === impl Pages ===

impl<K: AnyObject> Pages<K> {
    pub(crate) fn new(objects: Objects<K>, namespace: Option<&str>, params: &ListParams) -> Self {
        let mut params = params.clone();
        params.limit.get_or_insert(PAGE_SIZE);
        Self {
            objects,
            namespace: namespace.map(str::to_owned),
            params,
            done: false,
        }
    }

    /// The next page; `None` after the last. After an error, the next call requests the same page.
    ///
    /// # Errors
    /// [`Error::is_expired`] when the server no longer has the state of the first page (after about five minutes):
    /// start again. Or when the call fails.
    pub async fn next(&mut self) -> Result<Option<ObjectList<K>>, Error> {
        if self.done {
            return Ok(None);
        }
        let page = self
            .objects
            .list(self.namespace.as_deref(), &self.params)
            .await?;
        let token = page.metadata.continue_.clone();
        self.params.continue_token = token.filter(|token| !token.is_empty());
        self.done = self.params.continue_token.is_none();
        Ok(Some(page))
    }

    /// All objects, from the first page on. When the state of the first page expires meanwhile, all are listed in one
    /// request instead (client-go: `pager.List`).
    ///
    /// # Errors
    /// When a call fails.
    pub async fn all(mut self) -> Result<Vec<K>, Error> {
        let mut all = Vec::new();
        (self.done, self.params.continue_token) = (false, None);
        loop {
            match self.next().await {
                Ok(Some(page)) => all.extend(page.items),
                Ok(None) => return Ok(all),
                Err(error) if error.is_expired() && self.params.continue_token.is_some() => {
                    self.params.continue_token = None;
                    self.params.limit = None;
                    let list = self.objects.list(self.namespace.as_deref(), &self.params);
                    return Ok(list.await?.items);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
