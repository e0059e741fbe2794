//! The conditions of webhooks.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::hook::Hook;
use crate::admission::view::View;
use crate::admission::{AdmissionRequest, Server};
use crate::resource::ResourceInfo;
use crate::status::Status;

/// Whether the conditions of a webhook are met.
///
/// # Errors
/// 403 when they cannot be evaluated and the webhook's failures are not ignored.
pub(super) async fn meets_conditions(
    server: &Server<'_>,
    hook: &Arc<Hook>,
    asked: &AdmissionRequest<'_>,
    info: &ResourceInfo,
    view: &View<'_>,
) -> Result<bool, Status> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let variables = view.variables(server, asked, info);
    // The name is declared, and has no value. (apiserver: `matchconditions/matcher.go`.)
    let variables = variables.with("namespaceObject", None);
    let met = if hook.conditions.are_deep() {
        let hook = hook.clone();
        let evaluated = spawn_blocking(move || hook.conditions.hold(&variables)).await;
        evaluated.unwrap_or_else(|error| Err(error.to_string()))
    } else {
        hook.conditions.hold(&variables)
    };
    match met {
        Ok(met) => Ok(met),
        Err(_) if hook.ignores_failures => Ok(false),
        Err(why) => Err(Status::forbidden(
            asked.request.resource(),
            asked.name(),
            why,
        )),
    }
}
