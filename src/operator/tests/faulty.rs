//! Engines that take a while, do not answer, or refuse connections.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::engine::{Ban, Capabilities, Error, Remaining, Unban};
use crate::outbound;
use crate::target::Target;

/// Engines that take a while, or do not answer at some places.
#[derive(Debug, Default)]
pub(super) struct Faulty {
    pub(super) places: Arc<Places>,
    pub(super) takes: Duration,
    pub(super) dead: Mutex<BTreeSet<String>>,
    /// Where connections are refused.
    pub(super) refuses: Mutex<BTreeSet<String>>,
    /// Where one call in two is refused, and the others fail.
    pub(super) varies: Mutex<BTreeSet<String>>,
    /// The gateways have no list, as XDP.
    pub(super) unlisted: bool,
    /// The lists of the gateways are longer than what is read.
    pub(super) long: bool,
    /// How often a list was asked for.
    pub(super) lists: AtomicUsize,
    /// The targets of a family that a gateway takes.
    pub(super) most: Option<usize>,
    /// The calls of dead gateways, and of those that vary.
    pub(super) unanswered: AtomicUsize,
}

#[derive(Debug)]
struct FaultyEngine {
    inner: Arc<dyn Engine>,
    place: Place,
    faults: Arc<Faulty>,
}

/// As a connector.
#[derive(Debug)]
pub(super) struct Connect(pub(super) Arc<Faulty>);

impl Connector for Connect {
    fn connect(
        &self,
        place: &Place,
        config: Option<&EngineConfig>,
    ) -> Result<Arc<dyn Engine>, ConnectError> {
        Ok(Arc::new(FaultyEngine {
            inner: self.0.places.connect(place, config)?,
            place: place.clone(),
            faults: Arc::clone(&self.0),
        }))
    }
}

impl FaultyEngine {
    async fn answers(&self) -> Result<(), Error> {
        tokio::time::sleep(self.faults.takes).await;
        let varies = self.faults.varies.lock().contains(&self.place.endpoint);
        let refused = varies
            && self
                .faults
                .unanswered
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(2);
        if refused || self.faults.refuses.lock().contains(&self.place.endpoint) {
            return Err(Error::NoAnswer {
                gateway: self.place.endpoint.clone(),
                cause: outbound::Error::Refused,
            });
        }
        let dead = self.faults.dead.lock().contains(&self.place.endpoint);
        if dead {
            self.faults.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        if dead || varies {
            return Err(Error::Failed {
                gateway: self.place.endpoint.clone(),
                detail: "dead".into(),
            });
        }
        Ok(())
    }
}

impl Engine for FaultyEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            most: self.faults.most,
            ..self.inner.capabilities()
        }
    }

    fn endpoint(&self) -> &str {
        &self.place.endpoint
    }

    fn ban<'a>(
        &'a self,
        target: &'a Target,
        remaining: Option<Remaining>,
    ) -> BoxFuture<'a, Result<Ban, Error>> {
        Box::pin(async move {
            self.answers().await?;
            self.inner.ban(target, remaining).await
        })
    }

    fn unban<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Unban, Error>> {
        Box::pin(async move {
            self.answers().await?;
            self.inner.unban(target).await
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Option<BTreeSet<Target>>, Error>> {
        if self.faults.unlisted {
            return Box::pin(async { Ok(None) });
        }
        self.faults.lists.fetch_add(1, Ordering::Relaxed);
        if self.faults.long {
            let gateway = self.place.endpoint.clone();
            let cause = outbound::Error::TooLarge(64 * 1024);
            return Box::pin(async { Err(Error::NoAnswer { gateway, cause }) });
        }
        self.inner.list()
    }
}

impl World {
    pub(super) fn faulty(&self, takes: Duration) -> Arc<Faulty> {
        Arc::new(Faulty {
            places: Arc::clone(&self.places),
            takes,
            ..Faulty::default()
        })
    }
}
