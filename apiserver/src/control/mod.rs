//! The control API: what tests of this crate do with an [`ApiServer`](crate::ApiServer), over HTTP, for tests in any language.
//!
//! Its paths are below [`PREFIX`]. They are served beside the API, at the same addresses, and a user needs the same rights as
//! for any path that is not a resource: administrators have them, and a role can give them (`nonResourceURLs`). Requests for
//! them meet no fault rule and are not recorded. Without [`Builder::control`](crate::Builder::control) they do not exist.
//!
//! `docs/control-api.md` describes every path.

mod call;
mod form;
mod requests;
mod routes;
mod snapshots;
mod state;

use std::sync::Arc;

use http::header::ALLOW;
use http::{Request, Response};

pub(crate) use state::Control;

use crate::access;
use crate::core::Core;
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::http::media::Encoding;
use crate::http::query::Parameters;
use crate::http::route::Target;
use crate::status::Status;
use call::{Call, Failure, check_origin, document};

/// The paths of the control API.
pub(crate) const PREFIX: &str = "/reeve/v1";

/// Whether a path is one of the control API.
pub(crate) fn is_path(path: &str) -> bool {
    let below = path.strip_prefix(PREFIX);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request of the control API. `pretty` indents the answer.
pub(crate) async fn answer<B>(
    core: &Arc<Core>,
    control: &Control,
    request: Request<B>,
    query: Parameters,
    pretty: bool,
) -> Response<Body>
where
    B: http_body::Body + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let answered = async {
        check_origin(&head.headers)?;
        let target = Target::of(&head.method, head.uri.path(), &query);
        let attributes = target.attributes(&head.method);
        access::check(core, &head.headers, head.extensions.get(), &attributes)?;
        let body = document(&head.headers, &body::read(body).await?)?;
        let path = head.uri.path().strip_prefix(PREFIX).unwrap_or_default();
        let path = path.split('/').filter(|part| !part.is_empty());
        let call = Call {
            core,
            control,
            method: head.method.clone(),
            path: path.map(str::to_owned).collect(),
            query,
            body,
        };
        routes::answer(call).await
    };
    match answered.await {
        Ok((code, value)) => answer::document(code, Encoding::Json, pretty, &value),
        Err(Failure::Status(status)) => answer::failure(&status, Encoding::Json, pretty),
        Err(Failure::Method(allowed)) => {
            let text = format!("this path has the methods {allowed}");
            let status = Status::new(405, "MethodNotAllowed", text);
            let mut response = answer::failure(&status, Encoding::Json, pretty);
            answer::set(&mut response, ALLOW, allowed);
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_paths_are_not_of_the_control_api() {
        for (path, expected) in [
            ("/reeve/v1", true),
            ("/reeve/v1/", true),
            ("/reeve/v1/faults", true),
            ("/reeve/v10", false),
            ("/reeve", false),
            ("/api/v1/reeve/v1", false),
        ] {
            assert_eq!(is_path(path), expected, "{path}");
        }
    }
}
