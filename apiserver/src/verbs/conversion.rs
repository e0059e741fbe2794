//! Conversion between the version of a request and the storage version.

use serde_json::Value;

use crate::resource::ResourceInfo;
use crate::status::Status;
use crate::store::Object;

/// Converts an object to its stored form: fields of only the request's version are removed.
///
/// # Errors
/// 500 when this requires a webhook.
pub(crate) fn to_stored(info: &ResourceInfo, object: &mut Value) -> Result<(), Status> {
    if info.unconvertible_up_to == u64::MAX {
        return Err(failed(info));
    }
    if let Some(stored) = &info.stored {
        stored.prune(object);
        stored.default(object);
    }
    Ok(())
}

/// Whether a stored object can be shown in the version of `info`.
///
/// # Errors
/// 500 when this requires a webhook, as in a real server that cannot reach the webhook.
pub(crate) fn check(info: &ResourceInfo, object: &Object) -> Result<(), Status> {
    if object.version() <= info.unconvertible_up_to {
        return Err(failed(info));
    }
    Ok(())
}

/// [`check`] for each of `objects`.
pub(crate) fn check_all<'a>(
    info: &ResourceInfo,
    objects: impl IntoIterator<Item = &'a std::sync::Arc<Object>>,
) -> Result<(), Status> {
    if info.unconvertible_up_to == 0 {
        return Ok(());
    }
    let mut objects = objects.into_iter();
    objects.try_for_each(|object| check(info, object))
}

fn failed(info: &ResourceInfo) -> Status {
    Status::internal_text(format!(
        "conversion webhook for {}, Kind={} failed: this server does not call conversion webhooks",
        info.api_version(),
        info.kind
    ))
}
