//! A client certificate in files, which are read again when they may have changed.
//!
//! client-go reads them every 5 minutes (`transport/cert_rotation.go`). Here it is a minute, as with a token in a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube_client::config::AuthInfo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::pair::Pair;

/// The files are read again after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// The shortest time between two readings, if the server does not accept the certificate.
const PAUSE: Duration = Duration::from_secs(10);

/// The files of a client certificate, and what was read last.
pub(super) struct Files {
    places: Places,
    state: Mutex<State>,
}

#[derive(Clone)]
struct Places {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

struct State {
    pair: Arc<Pair>,
    /// Later contents have a higher number.
    number: u64,
    read: Instant,
    /// A reading has begun and not ended.
    reading: bool,
    rejected: bool,
}

/// A reading that has begun. It ends when this is dropped, also by a runtime that stops before it.
struct Reading(Arc<Files>);

// === impl Files ===

impl Files {
    /// The files of a user, or `None` without any. As with client-go, data in the kubeconfig wins over a file.
    pub(super) fn of(user: &AuthInfo) -> Result<Option<Self>, Unreadable> {
        let path =
            |data: bool, file: &Option<String>| file.as_ref().filter(|_| !data).map(PathBuf::from);
        let places = Places {
            certificate: path(
                user.client_certificate_data.is_some(),
                &user.client_certificate,
            ),
            key: path(user.client_key_data.is_some(), &user.client_key),
        };
        if places.certificate.is_none() && places.key.is_none() {
            return Ok(None);
        }
        let state = State {
            pair: Arc::new(places.read()?),
            number: 0,
            read: Instant::now(),
            reading: false,
            rejected: false,
        };
        Ok(Some(Self {
            places,
            state: Mutex::new(state),
        }))
    }

    /// The certificate of the next request, and its number. One request at a time waits for the files.
    pub(super) async fn pair(self: &Arc<Self>) -> (Arc<Pair>, u64) {
        if self.state.lock().begin() {
            let reading = Reading(Arc::clone(self));
            // It ends also if the request does not wait for it.
            let _ = tokio::task::spawn_blocking(move || {
                let read = reading.0.places.read();
                reading.0.state.lock().end(read);
            })
            .await;
        }
        self.last()
    }

    /// What was read last, and its number.
    pub(super) fn last(&self) -> (Arc<Pair>, u64) {
        let state = self.state.lock();
        (Arc::clone(&state.pair), state.number)
    }

    /// The server answered 401 to a request with the certificate `number`.
    pub(super) fn rejected(&self, number: u64) {
        let mut state = self.state.lock();
        state.rejected |= state.number == number;
    }
}

// === impl State ===

impl State {
    /// Whether the files are read now.
    fn begin(&mut self) -> bool {
        let pause = if self.rejected { PAUSE } else { AGAIN };
        let due = !self.reading && self.read.elapsed() >= pause;
        self.reading |= due;
        due
    }

    fn end(&mut self, read: Result<Pair, Unreadable>) {
        self.rejected = false;
        self.read = Instant::now();
        match read {
            Ok(pair) if pair != *self.pair => {
                self.pair = Arc::new(pair);
                self.number += 1;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the former client certificate is used");
            }
        }
    }
}

// === impl Reading ===

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.state.lock().reading = false;
    }
}

// === impl Places ===

impl Places {
    fn read(&self) -> Result<Pair, Unreadable> {
        let read = |path: &Option<PathBuf>| {
            let path = path.as_ref();
            let text = path.map(|path| {
                std::fs::read(path).map_err(|fault| Unreadable {
                    path: path.clone(),
                    fault,
                })
            });
            text.transpose()
        };
        Ok(Pair {
            certificate: read(&self.certificate)?,
            key: read(&self.key)?,
        })
    }
}

/// A file of a client certificate that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("could not read {}: {fault}", path.display())]
pub(super) struct Unreadable {
    path: PathBuf,
    fault: std::io::Error,
}
