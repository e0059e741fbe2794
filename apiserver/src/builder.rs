//! The settings of a server, and its start.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reeve_clock::Clock;

use crate::admission::{Admission, Chain};
use crate::authn::{AccountKeys, Anonymous, Authenticator, Settings};
use crate::control::Control;
use crate::core::{Core, Options};
use crate::definitions::former_versions;
use crate::identity::{Identity, IdentityError};
use crate::kinds::ServiceRange;
use crate::lifecycle;
use crate::rbac::User;
use crate::server::ApiServer;
use crate::store::{History, PersistError, Store};
use crate::template::{Template, built_in};

/// The minor version of Kubernetes 1 in `/version`.
pub(crate) const MINOR: u32 = 36;
/// The version before the first write. Well above the guess of a test.
const FIRST_VERSION: u64 = 10_000;
/// Versions are not consecutive, so that clients do not rely on it.
const STEP: u64 = 3;
/// Time for which Events are kept after their last write.
const EVENT_TTL: Duration = Duration::from_secs(3600);

/// Configures a server; see [`ApiServer::builder`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    clock: Option<Clock>,
    data_dir: Option<PathBuf>,
    sync_writes: bool,
    template: Option<Template>,
    first_version: u64,
    step: u64,
    history: History,
    event_ttl: Option<Duration>,
    record_requests: bool,
    control: bool,
    admission: Vec<Arc<dyn Admission>>,
    without_admission: Vec<String>,
    anonymous: Option<Anonymous>,
    account_keys: Option<AccountKeys>,
    options: Options,
    tokens: Vec<(String, User)>,
    admin_token: Option<String>,
}

/// The reason why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be used.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The server's keys cannot be made or kept.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

// === impl Builder ===

impl Builder {
    /// The defaults.
    pub(crate) fn new() -> Self {
        Self {
            clock: None,
            data_dir: None,
            sync_writes: true,
            template: None,
            first_version: FIRST_VERSION,
            step: STEP,
            history: History::default(),
            event_ttl: Some(EVENT_TTL),
            record_requests: true,
            control: false,
            admission: Vec::new(),
            without_admission: Vec::new(),
            anonymous: None,
            account_keys: None,
            options: Options {
                minor: MINOR,
                rbac: false,
                controller_roles: false,
                streaming_lists: true,
                garbage_collection: true,
                tls_san: Vec::new(),
                namespace_controller: true,
                service_range: ServiceRange::default(),
            },
            tokens: Vec::new(),
            admin_token: None,
        }
    }

    /// The source of times, uids and randomness. Default: the system's clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Keeps the objects in this directory. Default: in memory only. Each write is synced to the disk, which tests can do
    /// without: see [`Builder::sync_writes`].
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// The version before the first write, and the distance between writes. Default 10,000 and 3.
    pub fn versions(mut self, first: u64, step: u64) -> Self {
        self.first_version = first;
        self.step = step;
        self
    }

    /// How much history is kept for watches and pages.
    pub fn history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// Time for which Events are kept after their last write; `None`: until they are deleted. Default 1 hour, as a real
    /// server's `--event-ttl`. For Events from the data directory it starts again.
    pub fn event_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.event_ttl = ttl.into();
        self
    }

    /// Whether [`ApiServer::requests`] records requests. Default true; the program turns it off.
    pub fn record_requests(mut self, kept: bool) -> Self {
        self.record_requests = kept;
        self
    }

    /// The minor version of Kubernetes 1 in `/version`. Default 36.
    pub fn minor_version(mut self, minor: u32) -> Self {
        self.options.minor = minor;
        self
    }

    /// Whether streaming lists (`sendInitialEvents`) are offered, as by Kubernetes 1.32 and from 1.34.
    /// Default true.
    pub fn streaming_lists(mut self, offered: bool) -> Self {
        self.options.streaming_lists = offered;
        self
    }

    /// Whether dependents of deleted owners are deleted. Default true; false in envtest.
    pub fn garbage_collection(mut self, enabled: bool) -> Self {
        self.options.garbage_collection = enabled;
        self
    }

    /// A further DNS name or address in the certificates of [`ApiServer::serve_tls`], besides `localhost`, loopback and the
    /// address itself. It may be called again. A name that a certificate cannot have fails there.
    pub fn tls_san(mut self, name: impl Into<String>) -> Self {
        self.options.tls_san.push(name.into());
        self
    }

    /// Whether namespaces get the ServiceAccount `default`, and are emptied and removed when they terminate. Default true; false in
    /// envtest, where a deleted namespace terminates indefinitely, and beside a real kube-controller-manager.
    pub fn namespace_controller(mut self, enabled: bool) -> Self {
        self.options.namespace_controller = enabled;
        self
    }

    /// Also has the roles and bindings of the controllers of a control plane, if rights are checked. Default: no.
    #[cfg(feature = "program")]
    pub(crate) fn controller_roles(mut self) -> Self {
        self.options.controller_roles = true;
        self
    }

    /// The cluster addresses of Services. Default 10.96.0.0/16.
    #[cfg(feature = "program")]
    pub(crate) fn service_range(mut self, range: ServiceRange) -> Self {
        self.options.service_range = range;
        self
    }

    /// The user of requests without credentials. Default: the administrator, or `system:anonymous` if rights are checked.
    #[cfg(feature = "program")]
    pub(crate) fn anonymous(mut self, anonymous: Anonymous) -> Self {
        self.anonymous = Some(anonymous);
        self
    }

    /// The keys of service-account tokens, and their issuer. Default: a key of this server.
    #[cfg(feature = "program")]
    pub(crate) fn account_keys(mut self, keys: AccountKeys) -> Self {
        self.account_keys = Some(keys);
        self
    }

    /// Leaves out a step of admission of the server, by the name of its plugin.
    #[cfg(feature = "program")]
    pub(crate) fn without_admission(mut self, plugin: impl Into<String>) -> Self {
        self.without_admission.push(plugin.into());
        self
    }

    /// Requests with the bearer token `token` act as `user`.
    pub fn token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.push((token.into(), user));
        self
    }

    /// Checks every request against the stored roles and bindings, with the default ones of a cluster.
    ///
    /// Requests without credentials are then `system:anonymous`; [`ApiServer::client`] and
    /// [`Serving::kubeconfig`](crate::Serving::kubeconfig) carry a token of an administrator. Default: every request is allowed.
    pub fn rbac(mut self) -> Self {
        self.options.rbac = true;
        self
    }

    /// Serves the control API below `/reeve/v1`, at the addresses of the server: faults, the log of requests, snapshots, reset, time and
    /// history over HTTP, for a client in another process or language. Administrators may use it. Default false.
    ///
    /// Without [`Builder::clock`], the server then has a clock of its own that can be advanced. It begins with the time of the machine.
    pub fn control(mut self, served: bool) -> Self {
        self.control = served;
        self
    }

    /// Syncs each write to the disk before it is answered, so that a power failure loses no answered write. Writers that
    /// come together share a sync. Default: true, as in etcd. `false` loses nothing when the process is killed, and the last
    /// writes in a power failure. Has no effect without a data directory.
    pub fn sync_writes(mut self, yes: bool) -> Self {
        self.sync_writes = yes;
        self
    }

    #[cfg(test)]
    pub(crate) fn syncs_writes(&self) -> bool {
        self.sync_writes
    }

    /// Starts with the objects and the custom kinds of another server, as they were at [`ApiServer::template`], in place of the
    /// server's own first objects and versions. That takes a fraction of the time. Has no effect with a data directory.
    pub fn template(mut self, template: &Template) -> Self {
        self.template = Some(template.clone());
        self
    }

    /// Adds a step of admission after those of the server.
    #[cfg(test)]
    pub(crate) fn admission(mut self, step: Arc<dyn Admission>) -> Self {
        self.admission.push(step);
        self
    }

    /// Starts the server. Only [`ApiServer::client`] reaches it until [`ApiServer::serve`] opens
    /// a socket.
    ///
    /// # Errors
    /// When the data directory cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(mut self) -> Result<ApiServer, StartError> {
        let clock = match self.clock.take() {
            Some(clock) => clock,
            None if self.control => {
                let machine = Clock::system();
                Clock::simulated(machine.now(), machine.random().next_u64())
            }
            None => Clock::system(),
        };
        let store = match (&self.data_dir, &self.template) {
            (None, Some(template)) => template.store(self.step, self.history),
            (Some(directory), _) => {
                let former = former_versions();
                let (first, step) = (self.first_version, self.step);
                Store::open(directory, first, step, self.history, &former)?
            }
            (None, None) => Store::new(self.first_version, self.step, self.history),
        };
        let (resources, clock) = match self.template.take() {
            Some(template) if self.data_dir.is_none() => {
                (template.resources(), template.clock(&clock))
            }
            _ => (built_in(&store), clock),
        };
        let store = store.with_event_ttl(self.event_ttl);
        let store = store.with_synced_writes(self.sync_writes)?;
        let identity = Identity::open(self.data_dir.as_deref(), &clock)?;
        let authenticator = self.authenticator(&identity);
        let admission = Chain::of_server(self.admission, &self.without_admission);
        let core = Core::new(
            store,
            resources,
            clock,
            authenticator,
            identity,
            admission,
            self.options,
        );
        if !self.record_requests {
            core.record.turn_off();
        }
        lifecycle::start(&core).await;
        let control = self
            .control
            .then(|| Arc::new(Control::new(Template::of(&core))));
        let lifecycle = tokio::spawn(lifecycle::run(core.clone()));
        Ok(ApiServer {
            core,
            control,
            lifecycle,
            admin_token: self.admin_token,
        })
    }

    fn authenticator(&mut self, identity: &Identity) -> Authenticator {
        let mut settings = Settings::new(identity.key.clone());
        if self.options.rbac {
            settings = settings.anonymous(Anonymous::Unprivileged);
        }
        if self.options.rbac || self.anonymous == Some(Anonymous::Refused) {
            let token = identity.admin_token();
            settings = settings.token(token.clone(), User::admin());
            self.admin_token = Some(token);
        }
        if let Some(anonymous) = self.anonymous {
            settings = settings.anonymous(anonymous);
        }
        if let Some(keys) = self.account_keys.take() {
            settings = settings.account_keys(keys);
        }
        for (token, user) in self.tokens.drain(..) {
            settings = settings.token(token, user);
        }
        Authenticator::new(settings)
    }
}
