//! The cloud with its clock, its keys, its file and its faults.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use reeve_clock::Clock;
use reeve_serve::http::{Answer, StatusCode, answer};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::body;
use super::calls::{Call, Calls};
use super::faults::{Fault, Faults, Rule};
use super::verify::{self, Nonces, Received};
use crate::cloud::{Cloud, Refusal, Rules, State};
use crate::dataplane::{Progress, udp::Udp};
use crate::parameters::Parameters;
use crate::store::Store;

/// The most instances that have an address.
const MOST_INSTANCES: usize = 10_000;

/// What a cloud is started with.
#[derive(Debug)]
pub struct Settings {
    /// Its rules.
    pub rules: Rules,
    /// Secrets by the id of their access key.
    pub keys: BTreeMap<String, String>,
    /// The file of its state; in memory only if absent.
    pub file: Option<PathBuf>,
    /// Its clock.
    pub clock: Clock,
}

/// The cloud behind the ports.
#[derive(Debug)]
pub struct World {
    keys: BTreeMap<String, String>,
    clock: Clock,
    store: Option<Store>,
    cloud: Mutex<Cloud>,
    nonces: Mutex<Nonces>,
    faults: Mutex<Faults>,
    calls: Mutex<Calls>,
    numbers: watch::Sender<u64>,
    states: watch::Sender<Arc<State>>,
    dataplane: OnceLock<(watch::Receiver<Progress>, Udp)>,
}

/// An effect of a fault on a call.
enum Lost {
    Nothing,
    Connection,
    Held,
}

// === impl World ===

impl World {
    pub(super) fn new(settings: Settings) -> io::Result<Self> {
        let (store, state) = match settings.file {
            Some(path) => {
                let (store, state) = Store::open(path)?;
                (Some(store), state)
            }
            None => (None, State::default()),
        };
        let states = watch::Sender::new(Arc::new(state.clone()));
        Ok(Self {
            keys: settings.keys,
            clock: settings.clock,
            store,
            cloud: Mutex::new(Cloud::new(settings.rules, state)),
            nonces: Mutex::default(),
            faults: Mutex::default(),
            calls: Mutex::default(),
            numbers: watch::Sender::new(0),
            states,
            dataplane: OnceLock::new(),
        })
    }

    /// The state, and each change of it: what the data plane follows.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<Arc<State>> {
        self.states.subscribe()
    }

    /// The number of the newest call, each time that one was carried out.
    #[must_use]
    pub fn numbers(&self) -> watch::Receiver<u64> {
        self.numbers.subscribe()
    }

    /// The calls that are remembered, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().all()
    }

    pub(super) fn page_of_calls(&self, after: Option<u64>, most: usize) -> Vec<Call> {
        self.calls.lock().page(after, most)
    }

    /// Shows a data plane at the admin port. The first one counts.
    pub fn show_dataplane(&self, haproxy: watch::Receiver<Progress>, udp: Udp) {
        let _ = self.dataplane.set((haproxy, udp));
    }

    /// What the admin port shows of the data plane, if there is one.
    pub(super) fn dataplane(&self) -> Option<Value> {
        let (haproxy, udp) = self.dataplane.get()?;
        let state = Arc::clone(&self.states.borrow());
        let haproxy = haproxy.borrow();
        Some(json!({
            "current": haproxy.has(&state),
            "loaded": haproxy.loaded,
            "error": haproxy.error,
            "leftOut": haproxy.left_out,
            "udp": udp.status(),
        }))
    }

    /// Adds a fault. `false` if there are too many.
    pub fn add_fault(&self, rule: Rule) -> bool {
        self.faults.lock().add(rule)
    }

    /// The faults that wait for calls.
    #[must_use]
    pub fn faults(&self) -> Vec<Rule> {
        self.faults.lock().rules().to_vec()
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.faults.lock().clear();
    }

    /// Gives instances their addresses.
    ///
    /// # Errors
    /// When the state cannot be stored, or more than 10,000 instances would have an address: then nothing has changed.
    pub fn set_instances(&self, instances: &BTreeMap<String, Ipv4Addr>) -> io::Result<()> {
        let mut cloud = self.cloud.lock();
        let before = cloud.state().clone();
        for (id, address) in instances {
            cloud.set_instance(id, *address);
        }
        if cloud.instances() > MOST_INSTANCES {
            cloud.restore(before);
            let text = format!("more than {MOST_INSTANCES} instances");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.store(&mut cloud, before)
    }

    pub(super) fn verify(&self, received: &Received<'_>) -> Result<Parameters, Refusal> {
        let mut nonces = self.nonces.lock();
        verify::verify(&self.keys, &mut nonces, self.clock.now(), received)
    }

    /// The answer to a call, or to a request that was refused. `None` if the connection is to break.
    pub(super) async fn answer(&self, verified: Result<Parameters, Refusal>) -> Option<Answer> {
        let request_id = self.request_id();
        let parameters = match verified {
            Ok(parameters) => parameters,
            Err(refusal) => return Some(shown(Err(refusal), &request_id)),
        };
        let action = parameters.text("Action").unwrap_or_default().to_owned();
        let fault = self.faults.lock().next(&action);
        if let Some(delay) = fault.as_ref().and_then(Fault::delay) {
            tokio::time::sleep(delay).await;
        }
        let (result, lost) = self.carry_out(&action, &parameters, fault.as_ref());
        self.remember(&parameters, &request_id, result.as_ref());
        match lost {
            Lost::Nothing => {
                let result = result.unwrap_or_else(|| Err(failed()));
                Some(shown(result, &request_id))
            }
            Lost::Connection => None,
            Lost::Held => futures::future::pending().await,
        }
    }

    /// Carries out the call, as far as `fault` allows. The result is `None` if it did not take effect.
    #[allow(clippy::type_complexity, reason = "named where it is made and used")]
    fn carry_out(
        &self,
        action: &str,
        parameters: &Parameters,
        fault: Option<&Fault>,
    ) -> (Option<Result<Map<String, Value>, Refusal>>, Lost) {
        match fault {
            None | Some(Fault::Delay { .. }) => {
                (Some(self.call(action, parameters)), Lost::Nothing)
            }
            Some(Fault::LoseRequest) => (None, Lost::Connection),
            Some(Fault::HoldRequest) => (None, Lost::Held),
            Some(Fault::LoseAnswer) => (Some(self.call(action, parameters)), Lost::Connection),
            Some(Fault::HoldAnswer) => (Some(self.call(action, parameters)), Lost::Held),
            Some(Fault::Throttle) => (Some(Err(Refusal::throttled())), Lost::Nothing),
            Some(Fault::Error { status, code }) => {
                let refusal = Refusal::new(*status, code, "A fault was asked for.");
                (Some(Err(refusal)), Lost::Nothing)
            }
            Some(Fault::Partial) => {
                if action == "DeleteLoadBalancer" {
                    let mut cloud = self.cloud.lock();
                    let before = cloud.state().clone();
                    cloud.delete_partially(parameters.text("LoadBalancerId").unwrap_or_default());
                    let _ = self.store(&mut cloud, before);
                }
                (Some(Err(failed())), Lost::Nothing)
            }
        }
    }

    fn call(&self, action: &str, parameters: &Parameters) -> Result<Map<String, Value>, Refusal> {
        let mut cloud = self.cloud.lock();
        let before = Cloud::writes(action).then(|| cloud.state().clone());
        let answer = cloud.call(self.clock.now(), parameters)?;
        if let Some(before) = before {
            self.store(&mut cloud, before).map_err(|error| {
                tracing::error!(%error, "cannot store the state");
                failed()
            })?;
        }
        Ok(answer)
    }

    /// Stores the state, or puts `before` back.
    fn store(&self, cloud: &mut Cloud, before: State) -> io::Result<()> {
        if let Some(store) = &self.store
            && let Err(error) = store.save(cloud.state())
        {
            cloud.restore(before);
            return Err(error);
        }
        self.states.send_replace(Arc::new(cloud.state().clone()));
        Ok(())
    }

    fn remember(
        &self,
        parameters: &Parameters,
        request_id: &str,
        result: Option<&Result<Map<String, Value>, Refusal>>,
    ) {
        let number = {
            let mut calls = self.calls.lock();
            let number = calls.next_number();
            calls.add(Call::new(number, parameters, request_id, result));
            number
        };
        self.numbers.send_replace(number);
    }

    /// An id of the form that the vendor uses.
    fn request_id(&self) -> String {
        let random = self.clock.random();
        let (one, two) = (random.next_u64(), random.next_u64());
        format!(
            "{:08X}-{:04X}-{:04X}-{:04X}-{:012X}",
            one >> 32,
            (one >> 16) & 0xFFFF,
            one & 0xFFFF,
            two >> 48,
            two & 0xFFFF_FFFF_FFFF
        )
    }
}

fn failed() -> Refusal {
    let message = "The request failed for an unknown reason.";
    Refusal::new(500, "InternalError", message)
}

/// The answer to a request whose body could not be read.
pub(super) fn unread(world: &World, refusal: Refusal) -> Answer {
    body::last(shown(Err(refusal), &world.request_id()))
}

fn shown(result: Result<Map<String, Value>, Refusal>, request_id: &str) -> Answer {
    let (status, body) = match result {
        Ok(mut fields) => {
            fields.insert("RequestId".to_owned(), request_id.into());
            (StatusCode::OK, Value::Object(fields))
        }
        Err(refusal) => {
            let status = body::status(&refusal);
            let body = json!({
                "RequestId": request_id,
                "HostId": "slbd",
                "Code": refusal.code,
                "Message": refusal.message,
            });
            (status, body)
        }
    };
    answer(status, "application/json;charset=utf-8", body.to_string())
}
