//! Bodies: of answers, and of requests up to a limit.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};

use crate::status::Status;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The largest body of a request, in bytes: what a real server allows.
pub(crate) const LARGEST_REQUEST: usize = 3 * 1024 * 1024;

/// A body that is there at once.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A body that comes in pieces.
pub(crate) fn stream(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Body {
    use futures::StreamExt as _;
    StreamBody::new(pieces.map(|piece| piece.map(http_body::Frame::data))).boxed_unsync()
}

/// Reads the body of a request.
///
/// # Errors
/// 413 when it is too large, 400 when it breaks off.
pub(crate) async fn read<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, LARGEST_REQUEST).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Status::too_large(format_args!(
            "limit is {LARGEST_REQUEST}"
        ))),
        Err(error) => Err(Status::bad_request(format!(
            "the body of the request could not be read: {error}"
        ))),
    }
}
