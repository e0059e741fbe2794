//! The credentials of requests that can change while the program runs, beside the tokens in files, which kube-client
//! reads again.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use kube_client::config::AuthInfo;
use parking_lot::Mutex;
use reeve_clock::Clock;
use tokio::time::Instant;

use super::credentials::redacted_start;
use super::files::{Files, Unreadable};
use super::pair::Pair;
use super::plugin::{Failed, Plugin};

/// A certificate that could not be used is tried again after this time: a file of the configuration may be missing.
const AGAIN: Duration = Duration::from_secs(60);

/// Where the credentials come from.
#[derive(Clone)]
pub(super) enum Source {
    /// They do not change, or kube-client adds them.
    Fixed,
    Files(Arc<Files>),
    Plugin(Arc<Plugin>),
}

/// The credentials of one request.
#[derive(Default)]
pub(super) struct Identity {
    /// Later credentials have a higher number.
    pub(super) number: u64,
    /// The value of the header `Authorization`.
    pub(super) token: Option<HeaderValue>,
    pair: Option<Arc<Pair>>,
}

/// The connections of a client, by the last certificate. Those of a former certificate end with their requests.
pub(super) struct Connections<S> {
    make: Box<Make<S>>,
    last: Mutex<Last<S>>,
}

type Make<S> = dyn Fn(Option<&Pair>) -> Result<S, kube_client::Error> + Send + Sync;

struct Last<S> {
    number: u64,
    pair: Option<Arc<Pair>>,
    connections: S,
    /// The certificate that could not be used, and the time until which it is not tried again.
    unusable: Option<(Option<Arc<Pair>>, Instant)>,
}

// === impl Source ===

impl Source {
    /// The source for a user. What it replaces is removed from the user. client-go's order: a plugin is not
    /// asked if there are other credentials.
    pub(super) fn take(user: &mut AuthInfo, clock: &Clock) -> Result<Self, Unreadable> {
        let files = Files::of(user)?;
        user.client_certificate = None;
        user.client_key = None;
        let others = user.auth_provider.is_some()
            || (user.username.is_some() && user.password.is_some())
            || user.token.is_some()
            || user.token_file.is_some()
            || user.client_certificate_data.is_some()
            || files.is_some();
        let exec = user.exec.take().filter(|_| !others);
        Ok(match (files, exec) {
            (Some(files), _) => Self::Files(Arc::new(files)),
            (None, Some(exec)) => Self::Plugin(Arc::new(Plugin::new(exec, clock.clone()))),
            (None, None) => Self::Fixed,
        })
    }

    /// The credentials of the next request. A plugin is not asked for one that `has_own`: client-go's rule.
    pub(super) async fn identity(&self, has_own: bool) -> Result<Identity, Failed> {
        Ok(match self {
            Self::Fixed => Identity::default(),
            Self::Plugin(_) if has_own => Identity::default(),
            Self::Files(files) => {
                let (pair, number) = files.pair().await;
                Identity {
                    number,
                    token: None,
                    pair: Some(pair),
                }
            }
            Self::Plugin(plugin) => {
                let credential = plugin.credential().await?;
                Identity {
                    number: credential.number,
                    token: credential.token,
                    pair: credential.pair,
                }
            }
        })
    }

    /// The server answered 401 to a request with the credentials `number`.
    pub(super) fn rejected(&self, number: u64) {
        match self {
            Self::Fixed => {}
            Self::Files(files) => files.rejected(number),
            Self::Plugin(plugin) => plugin.rejected(number),
        }
    }

    /// The certificate of the first connections.
    pub(super) fn first_pair(&self) -> Option<Arc<Pair>> {
        match self {
            Self::Files(files) => Some(files.last().0),
            Self::Fixed | Self::Plugin(_) => None,
        }
    }
}

// === impl Connections ===

impl<S: Clone> Connections<S> {
    /// Connections with `pair`, which `make` makes, as it makes those with later certificates.
    pub(super) fn new(
        pair: Option<Arc<Pair>>,
        make: impl Fn(Option<&Pair>) -> Result<S, kube_client::Error> + Send + Sync + 'static,
    ) -> Result<Self, kube_client::Error> {
        let connections = make(pair.as_deref())?;
        let number = 0;
        Ok(Self {
            make: Box::new(make),
            last: Mutex::new(Last {
                number,
                pair,
                connections,
                unusable: None,
            }),
        })
    }

    /// The connections of a request. A certificate that cannot be used leaves a former one in use, and is tried again
    /// after a minute. `unusable` is called for each time that it was tried.
    ///
    /// # Errors
    /// When the first certificate cannot be used.
    pub(super) fn of(
        &self,
        identity: &Identity,
        unusable: impl FnOnce(),
    ) -> Result<S, kube_client::Error> {
        let mut last = self.last.lock();
        let last = &mut *last;
        if identity.number <= last.number {
            return Ok(last.connections.clone());
        }
        let now = Instant::now();
        let unusable_until = last.unusable.as_ref();
        if unusable_until.is_some_and(|(pair, until)| *pair == identity.pair && now < *until) {
            return Ok(last.connections.clone());
        }
        if identity.pair != last.pair {
            match (self.make)(identity.pair.as_deref()) {
                Ok(connections) => last.connections = connections,
                Err(error) if last.pair.is_some() => {
                    unusable();
                    let error = redacted_start(error);
                    let error = crate::error_chain(&error).to_string();
                    tracing::warn!(error, "the new client certificate cannot be used");
                    last.unusable = Some((identity.pair.clone(), now + AGAIN));
                    return Ok(last.connections.clone());
                }
                Err(error) => {
                    unusable();
                    return Err(error);
                }
            }
            last.pair.clone_from(&identity.pair);
        }
        last.number = identity.number;
        Ok(last.connections.clone())
    }
}
