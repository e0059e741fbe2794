//! The engine of blocks when only set engines are configured: they follow by themselves.

use std::collections::BTreeSet;

use super::{Ban, Capabilities, Engine, Error, Kind, Remaining, Unban};
use crate::outbound::BoxFuture;
use crate::target::Target;

/// Does nothing: the desired set of [`crate::sets`] has the ban, and its engines confirm it.
#[derive(Debug, Default)]
pub struct Follows;

impl Engine for Follows {
    fn capabilities(&self) -> Capabilities {
        Kind::Sets.capabilities()
    }

    fn endpoint(&self) -> &'static str {
        ""
    }

    fn ban<'a>(&'a self, _: &'a Target, _: Option<Remaining>) -> BoxFuture<'a, Result<Ban, Error>> {
        // Drift is found by the followers.
        Box::pin(async { Ok(Ban::Already) })
    }

    fn unban<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, Result<Unban, Error>> {
        Box::pin(async { Ok(Unban::Removed) })
    }

    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, Error>> {
        Box::pin(async { Ok(None) })
    }
}
