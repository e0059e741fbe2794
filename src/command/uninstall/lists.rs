//! What becomes of BlockLists. They have no finalizer, so they hold up nothing.

use kube_core::PartialObjectMeta;
use kube_core::params::{DeleteParams, ListParams, Preconditions};
use reeve_controller::client::{Error, optional};
use reeve_controller::{Client, Request};

use super::{Bans, PAGE};
use crate::api::BlockList;

/// The lists that there are at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) deleted: usize,
    pub(super) left: usize,
}

/// With [`Bans::Lift`], deletes the lists that the operator wrote for its sources: a later install would enforce them again.
/// The lists of others are theirs.
pub(super) async fn end(
    client: &Client,
    namespace: Option<&str>,
    bans: Bans,
) -> Result<Ended, Error> {
    let mut ended = Ended::default();
    let params = ListParams::default().limit(PAGE);
    let lists = client.objects::<PartialObjectMeta<BlockList>>();
    let mut pages = lists.pages(namespace, &params);
    loop {
        let page = match pages.next().await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(ended),
            Err(error) if error.is_not_served() => return Ok(ended),
            Err(error) => return Err(error),
        };
        for list in page.items {
            let key = Request::of(&list);
            let own = BlockList::written_for(&list.metadata).is_some();
            if !own || bans == Bans::Keep {
                ended.left += 1;
                continue;
            }
            let params = DeleteParams::default().preconditions(Preconditions {
                uid: list.metadata.uid,
                resource_version: None,
            });
            match optional(client.delete::<BlockList>(&key, &params).await) {
                Ok(_) => ended.deleted += 1,
                Err(error) => {
                    tracing::warn!(list = %key, %error, "could not delete a list of a source");
                    ended.left += 1;
                }
            }
        }
    }
}
