//! Bodies of answers, and of requests up to a limit.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use tokio::time::timeout;

use crate::status::Status;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Maximum size of a request body in bytes, as in a real server.
pub(crate) const LARGEST_REQUEST: usize = 3 * 1024 * 1024;

/// Time limit of a request body: that of a real server for a request that is not a watch (`--request-timeout`).
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A body that is complete at once.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A body that is sent in pieces.
pub(crate) fn stream(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Body {
    use futures::StreamExt as _;
    StreamBody::new(pieces.map(|piece| piece.map(http_body::Frame::data))).boxed_unsync()
}

/// Reads the body of a request.
///
/// # Errors
/// 413 when it is too large, 400 when it is incomplete, 504 when it takes longer than [`READ_TIMEOUT`].
pub(crate) async fn read<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let whole = Limited::new(body, LARGEST_REQUEST).collect();
    let Ok(read) = timeout(READ_TIMEOUT, whole).await else {
        return Err(Status::new(
            504,
            "Timeout",
            "Timeout: request did not complete within the allotted timeout",
        ));
    };
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Status::too_large(format_args!(
            "limit is {LARGEST_REQUEST}"
        ))),
        Err(error) => Err(Status::bad_request(format!(
            "the body of the request could not be read: {error}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_has_a_minute() {
        let begun = futures::stream::iter([Ok(Bytes::from("{"))]);
        let body = stream(begun.chain(futures::stream::pending()));
        let begin = tokio::time::Instant::now();
        let status = read(body).await.unwrap_err();
        assert_eq!(status.to_value()["code"], 504);
        assert_eq!(begin.elapsed(), READ_TIMEOUT);
    }
}
