//! The configuration in force.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::config::Config;

/// What is in force.
#[derive(Clone, Debug)]
pub enum State {
    /// A configuration that was right when it was read. It stays when a later one is wrong.
    Loaded(Arc<Config>),
    /// There was none yet, for this reason.
    Missing(Arc<str>),
}

/// The configuration in force. Cloning is cheap; clones share it.
#[derive(Clone, Debug)]
pub struct Live {
    sender: Arc<watch::Sender<Option<State>>>,
    /// Why no trigger is served.
    unserved: Arc<Mutex<Option<String>>>,
    /// Why the ConfigMap as it is now is refused.
    refused: Arc<Mutex<Option<String>>>,
}

// === impl Live ===

impl Live {
    /// Nothing was read yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sender: Arc::new(watch::Sender::new(None)),
            unserved: Arc::new(Mutex::new(Some(
                "the triggers of the ConfigMap were not served yet".into(),
            ))),
            refused: Arc::default(),
        }
    }

    /// Puts a state in force.
    pub fn set(&self, state: State) {
        self.sender.send_replace(Some(state));
    }

    /// Whether a configuration is in force. One that was refused later does not count: the last good one is.
    ///
    /// # Errors
    /// Why there is none.
    pub fn check(&self) -> Result<(), String> {
        match &*self.sender.borrow() {
            None => Err("the ConfigMap was not read yet".into()),
            Some(State::Missing(why)) => Err(why.to_string()),
            Some(State::Loaded(_)) => Ok(()),
        }
    }

    /// The ConfigMap as it is now is refused for this reason, or is in force.
    pub fn refuses(&self, refused: Option<String>) {
        *self.refused.lock() = refused;
    }

    /// Whether the ConfigMap as it is now is in force.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check_latest(&self) -> Result<(), String> {
        self.refused.lock().clone().map_or(Ok(()), |why| {
            Err(format!("the ConfigMap is refused: {why}"))
        })
    }

    /// Triggers of the configuration are served, or the reason why none is.
    pub fn serves(&self, unserved: Option<String>) {
        *self.unserved.lock() = unserved;
    }

    /// Whether triggers of the configuration are served: a replica that takes no alerts must receive none. One that
    /// takes some stays ready, or one wrong address would remove every replica from the Service.
    ///
    /// # Errors
    /// The listeners that failed.
    pub fn check_triggers(&self) -> Result<(), String> {
        self.unserved.lock().clone().map_or(Ok(()), Err)
    }

    /// Notified of each state.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<State>> {
        self.sender.subscribe()
    }

    /// The configuration in force, if one was ever right.
    #[must_use]
    pub fn config(&self) -> Option<Arc<Config>> {
        match &*self.sender.borrow() {
            Some(State::Loaded(config)) => Some(Arc::clone(config)),
            _ => None,
        }
    }

    /// The state, once the ConfigMap was read for the first time. Cancel-safe.
    pub async fn state(&self) -> State {
        let mut receiver = self.sender.subscribe();
        loop {
            if let Some(state) = receiver.borrow_and_update().clone() {
                return state;
            }
            // The sender lives in `self`.
            if receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_not_ready_while_no_trigger_listens() {
        let live = Live::new();
        assert!(live.check_triggers().is_err(), "nothing was served yet");
        live.serves(Some("cannot listen at 0.0.0.0:8090".into()));
        assert_eq!(
            live.clone().check_triggers(),
            Err("cannot listen at 0.0.0.0:8090".into())
        );
        live.serves(None);
        assert_eq!(live.check_triggers(), Ok(()));
    }
}
