//! GET of one object.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::conversion;
use crate::core::Core;
use crate::field::quote;
use crate::request::Request;
use crate::status::Status;
use crate::store::{HistoryError, Object};

/// Time limit of waiting for a future version.
pub(crate) const VERSION_WAIT: Duration = Duration::from_secs(3);

/// The named object.
///
/// # Errors
/// 404; 400 for a malformed `resourceVersion`; 504 for one that is not reached in time.
pub(crate) async fn get(core: &Core, request: &Request) -> Result<Arc<Object>, Status> {
    let version = resource_version(request.query.get("resourceVersion"))
        .map_err(|status| Status::internal_text(status.message.clone()))?;
    if let Some(version) = version {
        wait_for(core, version).await?;
    }
    find(core, request).await
}

/// The current object, or that of a stale replica.
async fn find(core: &Core, request: &Request) -> Result<Arc<Object>, Status> {
    let key = request.key();
    let found = match request.stale {
        Some(version) => core
            .store
            .get_at(&request.info.storage, key.as_str(), version)
            .map_err(history_status)?,
        None => core.store.get(&request.info.storage, key.as_str()),
    };
    let found = found.ok_or_else(|| request.not_found())?;
    conversion::shown_one(core.network(), &request.info, found).await
}

/// Parses a `resourceVersion`.
///
/// # Errors
/// 400 when it is not a number.
pub(crate) fn resource_version(text: Option<&str>) -> Result<Option<u64>, Status> {
    text.map(|text| {
        text.parse().map_err(|_| {
            Status::bad_request(format!(
                "resourceVersion: Invalid value: {}: strconv.ParseUint: parsing {}: invalid syntax",
                quote(text),
                quote(text)
            ))
        })
    })
    .transpose()
}

/// Waits until the store has reached `version`.
///
/// # Errors
/// 504 when it has not within three seconds.
pub(crate) async fn wait_for(core: &Core, version: u64) -> Result<(), Status> {
    let mut revision = core.store.follow_revision();
    let reached = timeout(VERSION_WAIT, revision.wait_for(|&now| now >= version)).await;
    match reached {
        Ok(Ok(_)) => Ok(()),
        _ => Err(Status::too_large_resource_version(
            version,
            core.store.revision(),
        )),
    }
}

/// The answer to a read of a version that the store does not have.
pub(crate) fn history_status(error: HistoryError) -> Status {
    match error {
        HistoryError::TooOld { .. } => {
            Status::expired("The resourceVersion for the provided list is too old.")
        }
        HistoryError::TooNew { asked, current } => {
            Status::too_large_resource_version(asked, current)
        }
        HistoryError::NoTable => Status::no_such_resource(),
    }
}
