//! The encoding that a reflector requests: protobuf where the kind and the form of the entries have it and prefer it, or
//! the options say so; else JSON.
//!
//! `Content-Type` says which one an answer has. A server that refuses protobuf, or answers with something that is not what
//! its `Content-Type` says, is asked for JSON alone from then on, until the reflector runs again. The request that failed
//! is repeated as JSON, a watch from the last version, so nothing is lost. That holds for a server that refuses JSON, too:
//! such a repetition is not counted in the bound on requests ([`Pace`](super::pace::Pace)), so there is one at most.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use super::run::Reflector;
use crate::metrics::Measurement;
use crate::object::Stored;
use reeve_client::transport::{self, Encoded, Encoding, Lines, ListRequest, WatchRequest};

/// Whether JSON alone is requested, since protobuf failed.
#[derive(Debug, Default)]
pub(super) struct JsonOnly(AtomicBool);

// === impl JsonOnly ===

impl JsonOnly {
    /// Protobuf may be requested again.
    pub(super) fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

// === impl Reflector ===

impl<S: Stored + ?Sized> Reflector<S> {
    /// The encoding to request.
    pub(super) fn encoding(&self) -> Encoding {
        let wanted = self.options.protobuf;
        let is_protobuf = wanted.unwrap_or_else(|| self.entries.prefers_protobuf())
            && !self.json_only.0.load(Ordering::Relaxed)
            && self.entries.accepts_protobuf(&self.endpoint);
        if is_protobuf {
            Encoding::Protobuf
        } else {
            Encoding::Json
        }
    }

    /// Requests JSON alone from now on. False if it did so before, or protobuf was not requested.
    pub(super) fn fall_back(&self, reason: &dyn Display) -> bool {
        if self.encoding() == Encoding::Json {
            return false;
        }
        self.json_only.0.store(true, Ordering::Relaxed);
        tracing::warn!(kind = %self.endpoint, namespace = self.namespace(), %reason, "cannot read protobuf from the API server; reads JSON until it is restarted");
        self.recorder.record(Measurement::FellBackToJson);
        true
    }

    /// As [`Reflector::fall_back`], if `error` is one of a document that has another form than `encoding`.
    pub(super) fn fall_back_after(&self, encoding: Encoding, error: &transport::Error) -> bool {
        // A length that is none reads as an event that is too large.
        let is_form = matches!(
            error,
            transport::Error::Decode(_) | transport::Error::TooLarge { .. }
        );
        is_form && encoding == Encoding::Protobuf && self.fall_back(error)
    }

    /// As [`Reflector::fall_back`], if the server refused a request for `encoding`, or something else of that request.
    fn fall_back_if_refused(&self, encoding: Encoding, error: &transport::Error) -> bool {
        let is_refusal = matches!(error.code(), Some(406 | 415));
        is_refusal && encoding == Encoding::Protobuf && self.fall_back(error)
    }

    /// Opens a watch.
    pub(super) async fn lines(&self, request: &WatchRequest) -> Result<Lines, transport::Error> {
        let encoding = self.encoding();
        let opened = self.lines_as(request, encoding).await;
        match opened {
            Err(error) if self.fall_back_if_refused(encoding, &error) => {
                self.lines_as(request, Encoding::Json).await
            }
            opened => opened,
        }
    }

    async fn lines_as(
        &self,
        request: &WatchRequest,
        encoding: Encoding,
    ) -> Result<Lines, transport::Error> {
        let request = request.build_as(&self.endpoint, &self.selection, encoding)?;
        self.transport.watch(request).await
    }

    /// Reads a page of a list.
    pub(super) async fn body(&self, request: &ListRequest) -> Result<Encoded, transport::Error> {
        let encoding = self.encoding();
        let read = self.body_as(request, encoding).await;
        match read {
            Err(error) if self.fall_back_if_refused(encoding, &error) => {
                self.body_as(request, Encoding::Json).await
            }
            read => read,
        }
    }

    async fn body_as(
        &self,
        request: &ListRequest,
        encoding: Encoding,
    ) -> Result<Encoded, transport::Error> {
        let request = request.build_as(&self.endpoint, &self.selection, encoding)?;
        self.transport.fetch_encoded(request).await
    }
}
