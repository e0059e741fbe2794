//! One call of a webhook, and the failures of calls.

use super::hook::Hook;
use super::review::{self, Verdict};
use crate::admission::view::View;
use crate::admission::{AdmissionRequest, Server};
use crate::field::quote;
use crate::meta;
use crate::resource::ResourceInfo;
use crate::status::Status;

/// Why a webhook gave no verdict.
#[derive(Debug)]
pub(super) enum Failure {
    /// The call failed, for this reason: the configuration decides about the write.
    Call(String),
    /// The write is refused, whatever the configuration says.
    Refused(Status),
}

/// Asks a webhook about a write, as one of `info`; the view is in its version.
///
/// # Errors
/// A failed call; 400 for a dry run that the webhook does not support.
pub(super) async fn ask(
    server: &Server<'_>,
    hook: &Hook,
    asked: &AdmissionRequest<'_>,
    info: &ResourceInfo,
    view: &View<'_>,
    is_mutating: bool,
) -> Result<Verdict, Failure> {
    if asked.request.dry_run && !hook.takes_dry_runs {
        return Err(Failure::Refused(Status::bad_request(format!(
            "admission webhook {} does not support dry run",
            quote(&hook.name)
        ))));
    }
    let Some(version) = hook.version else {
        return Err(Failure::Call("could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)".to_owned()));
    };
    hook.backend
        .check()
        .map_err(|why| Failure::Call(format!("could not get REST client: {why}")))?;
    let uid = meta::uid(server.clock);
    let (object, old) = (view.object.as_deref(), view.old.as_deref());
    let question = review::question(version, &uid, asked, info, object, old);
    let timeout = hook.timeout.min(asked.remaining());
    let answer = hook
        .backend
        .admit(server.network(), &question, timeout)
        .await;
    let answer = answer.map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
    let answer = review::read(version, &answer)
        .map_err(|why| Failure::Call(format!("failed to call webhook: {why}")))?;
    let verdict = review::verdict(version, &uid, is_mutating, &answer)
        .map_err(|why| Failure::Call(format!("received invalid webhook response: {why}")))?;
    asked
        .request
        .warnings
        .extend(verdict.warnings.iter().cloned());
    Ok(verdict)
}

/// Whether a write goes on after a failed call.
///
/// # Errors
/// The answer, if it does not: 504 when its time is over.
pub(super) fn failed(
    hook: &Hook,
    asked: &AdmissionRequest<'_>,
    failure: Failure,
) -> Result<(), Status> {
    match failure {
        Failure::Refused(status) => Err(status),
        Failure::Call(why) => {
            let why = format!("failed calling webhook {}: {why}", quote(&hook.name));
            tracing::warn!(
                configuration = hook.configuration,
                webhook = hook.name,
                why,
                ignored = hook.ignores_failures,
                "a call of a webhook failed"
            );
            if !hook.ignores_failures {
                return Err(Status::internal(why));
            }
            if asked.remaining().is_zero() {
                return Err(Status::timeout());
            }
            Ok(())
        }
    }
}
