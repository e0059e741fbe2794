//! The cloud behind HTTP: one port for the API, one for the tests.
//!
//! A call is verified, carried out and stored, and then it is answered. There is no `await` between the change of the state and its store,
//! so a caller that leaves cannot part them.

mod admin;
mod body;
mod calls;
mod faults;
mod verify;
mod world;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reeve_serve::certificates::Certificates;
use reeve_serve::http::{Budget, Limits, Running, Server as Http, listen};

pub use calls::Call;
pub use faults::{Fault, Rule};
pub use world::{Settings, World};

use crate::files::Shares;

/// The time for the body of a request, unless another is set.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a cloud listens. Port 0 takes a free one.
#[derive(Clone, Debug)]
pub struct Ports {
    api: SocketAddr,
    admin: SocketAddr,
    certificates: Option<Certificates>,
    body_timeout: Duration,
}

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

// === impl Ports ===

impl Ports {
    /// The API at `api` and the admin port at `admin`, both with HTTP.
    #[must_use]
    pub fn new(api: SocketAddr, admin: SocketAddr) -> Self {
        Self {
            api,
            admin,
            certificates: None,
            body_timeout: BODY_TIMEOUT,
        }
    }

    /// Serves the API with HTTPS.
    #[must_use]
    pub fn certificates(mut self, certificates: Certificates) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Refuses a request whose body takes longer than `body_timeout`. Default: 10 s.
    #[must_use]
    pub fn body_timeout(mut self, body_timeout: Duration) -> Self {
        self.body_timeout = body_timeout;
        self
    }
}

// === impl Server ===

impl Server {
    /// Serves the API at `api` and the admin port at `admin`, both with HTTP. Port 0 takes a free one.
    ///
    /// # Errors
    /// When an address cannot be bound, or the state cannot be read.
    pub fn start(api: SocketAddr, admin: SocketAddr, settings: Settings) -> io::Result<Self> {
        Self::start_on(Ports::new(api, admin), settings)
    }

    /// Serves the API and the admin port at `ports`.
    ///
    /// # Errors
    /// When an address cannot be bound, TLS cannot be set up, or the state cannot be read.
    pub fn start_on(ports: Ports, settings: Settings) -> io::Result<Self> {
        let world = Arc::new(World::new(settings)?);
        let budget = Budget::mebibytes(64);
        let calls = verify::handler(Arc::clone(&world), budget.clone(), ports.body_timeout);
        let tests = admin::handler(Arc::clone(&world), budget, ports.body_timeout);
        let shares = Shares::of_process();
        let mut api = Http::on("slbd api", listen(ports.api)?, calls).limits(limits(shares.api));
        if let Some(certificates) = ports.certificates {
            api = api.tls(certificates, false).map_err(io::Error::other)?;
        }
        let admin = Http::on("slbd admin", listen(ports.admin)?, tests);
        Ok(Self {
            api: api.start()?,
            admin: admin.limits(limits(shares.admin)).start()?,
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
