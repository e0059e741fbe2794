//! Bodies of answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;

/// The body of an answer: whole, or in pieces that come one by one.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Full<Bytes>),
    Pieces(UnsyncBoxBody<Bytes, io::Error>),
}

// === impl Body ===

impl Body {
    /// A body that is there at once.
    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Whole(Full::new(bytes.into())))
    }

    /// A body that comes in pieces. The request counts as in work until the last one.
    #[must_use]
    pub fn pieces(body: impl Into<UnsyncBoxBody<Bytes, io::Error>>) -> Self {
        Self(Kind::Pieces(body.into()))
    }

    pub(super) fn is_whole(&self) -> bool {
        matches!(self.0, Kind::Whole(_))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.0 {
            Kind::Whole(body) => Pin::new(body)
                .poll_frame(context)
                .map_err(|never| match never {}),
            Kind::Pieces(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(body) => body.is_end_stream(),
            Kind::Pieces(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(body) => body.size_hint(),
            Kind::Pieces(body) => body.size_hint(),
        }
    }
}
