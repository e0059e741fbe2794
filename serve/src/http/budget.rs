//! Bodies of requests, read up to a limit and within a budget of the server.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes of bodies that all requests together may hold at once. Clones share it.
///
/// Connections are bounded, but as many bodies as connections would still be too much for a small Pod.
/// Bytes are counted as they arrive, so a slow sender holds little and keeps no other sender out.
#[derive(Clone, Debug)]
pub struct Budget {
    kibibytes: Arc<Semaphore>,
}

/// A body that was read to its end. Its bytes count against the budget until it is dropped.
#[derive(Debug)]
pub struct WholeBody {
    bytes: Bytes,
    _held: Option<OwnedSemaphorePermit>,
}

/// The reason why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is longer than allowed.
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    /// The sender stopped in the middle.
    #[error("the body ended early")]
    Cut,
    /// Other requests use up the budget.
    #[error("too many requests at once; send it again")]
    Busy,
}

// === impl Budget ===

impl Budget {
    /// A budget of `mebibytes`.
    #[must_use]
    pub fn mebibytes(mebibytes: usize) -> Self {
        Self {
            kibibytes: Arc::new(Semaphore::new(mebibytes.saturating_mul(1024))),
        }
    }

    /// Reads all of `body`. More than `limit` bytes are refused, before the first byte if the length is announced.
    ///
    /// # Errors
    /// See [`BodyError`].
    pub async fn read(&self, mut body: Incoming, limit: usize) -> Result<WholeBody, BodyError> {
        let announced = body.size_hint().lower();
        if usize::try_from(announced).map_or(true, |announced| announced > limit) {
            return Err(BodyError::TooLarge(limit));
        }
        let mut read = BytesMut::new();
        let mut held: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| BodyError::Cut)?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if read.len() + data.len() > limit {
                return Err(BodyError::TooLarge(limit));
            }
            self.hold(read.len() + data.len(), &mut held)?;
            read.extend_from_slice(&data);
        }
        Ok(WholeBody {
            bytes: read.freeze(),
            _held: held,
        })
    }

    /// Makes `held` cover `bytes`.
    fn hold(&self, bytes: usize, held: &mut Option<OwnedSemaphorePermit>) -> Result<(), BodyError> {
        let have = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(1024).saturating_sub(have);
        let missing = u32::try_from(missing).map_err(|_| BodyError::Busy)?;
        if missing == 0 {
            return Ok(());
        }
        let more = Arc::clone(&self.kibibytes)
            .try_acquire_many_owned(missing)
            .map_err(|_| BodyError::Busy)?;
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }
}

// === impl WholeBody ===

impl std::ops::Deref for WholeBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_shared_and_given_back() {
        let budget = Budget::mebibytes(1);
        let mut first = None;
        budget.hold(600 * 1024, &mut first).unwrap();
        let mut second = None;
        assert_eq!(budget.hold(600 * 1024, &mut second), Err(BodyError::Busy));
        budget.hold(400 * 1024, &mut second).unwrap();
        budget.hold(424 * 1024, &mut second).unwrap();
        let mut small = None;
        assert_eq!(budget.hold(1, &mut small), Err(BodyError::Busy));
        drop(first);
        budget.hold(1, &mut small).unwrap();
    }
}
