//! The cloud behind HTTP: one port for the API, one for the tests.
//!
//! A call is verified, carried out and stored, and then it is answered. There is no `await` between the change of the state and its store,
//! so a caller that leaves cannot part them.

mod admin;
mod faults;
mod verify;
mod world;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reeve_serve::http::{Budget, Limits, Running, Server as Http, listen};

pub use faults::{Fault, Rule};
pub use world::{Call, Settings, World};

use crate::files::Shares;

/// The longest body of a request, in bytes.
const LONGEST_BODY: usize = 1 << 20;

/// A cloud that listens.
#[derive(Debug)]
pub struct Server {
    world: Arc<World>,
    api: Running,
    admin: Running,
}

fn limits(connections: usize) -> Limits {
    Limits::default()
        .connections(connections)
        // A fault may be silence, however long the caller waits.
        .answer_timeout(Duration::MAX)
        .drain(Duration::ZERO)
}

// === impl Server ===

impl Server {
    /// Serves the API at `api` and the admin port at `admin`. Port 0 takes a free one.
    ///
    /// # Errors
    /// When an address cannot be bound, or the state cannot be read.
    pub fn start(api: SocketAddr, admin: SocketAddr, settings: Settings) -> io::Result<Self> {
        let world = Arc::new(World::new(settings)?);
        let budget = Budget::mebibytes(64);
        let calls = verify::handler(Arc::clone(&world), budget.clone());
        let tests = admin::handler(Arc::clone(&world), budget);
        let shares = Shares::of_process();
        Ok(Self {
            api: Http::on("slbd api", listen(api)?, calls)
                .limits(limits(shares.api))
                .start()?,
            admin: Http::on("slbd admin", listen(admin)?, tests)
                .limits(limits(shares.admin))
                .start()?,
            world,
        })
    }

    /// The address of the API.
    #[must_use]
    pub fn api(&self) -> SocketAddr {
        self.api.local_addr()
    }

    /// The address of the admin port.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.admin.local_addr()
    }

    /// The cloud behind the ports.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Ends both ports.
    pub async fn stop(self) {
        self.api.stop().await;
        self.admin.stop().await;
    }
}
