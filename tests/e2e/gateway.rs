//! The simulated gateway as a process of its own: killed, started again, with faults.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;

use crate::process::{Process, free_port, get, http};
use crate::world::until;

/// A gateway at an address that stays the same while its process comes and goes.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    process: Option<Process>,
}

// === impl Gateway ===

impl Gateway {
    /// Runs at a free port.
    pub(crate) async fn start() -> Self {
        let mut gateway = Self {
            address: SocketAddr::from(([127, 0, 0, 1], free_port())),
            process: None,
        };
        gateway.up().await;
        gateway
    }

    /// Starts it, with nothing enforced.
    pub(crate) async fn up(&mut self) {
        let args = ["gateway", "--listen", &self.address.to_string()].map(String::from);
        self.process = Some(Process::operator("gateway", &args, &[]));
        let address = self.address;
        until("the gateway answers", async || {
            get(address, "/enforced").await.is_some()
        })
        .await;
    }

    /// Kills it: its connections end, and its bans are lost.
    pub(crate) async fn down(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    /// One more fault, as the query of `POST /faults`: `fault=hang&target=192.0.2.7`.
    pub(crate) async fn fault(&self, query: &str) {
        self.control("POST", &format!("/faults?{query}")).await;
    }

    /// No faults any more; calls that hang go on hanging.
    pub(crate) async fn no_faults(&self) {
        self.control("DELETE", "/faults").await;
    }

    /// Forgets every ban, as a machine that restarts.
    pub(crate) async fn lose_state(&self) {
        self.control("POST", "/lose-state").await;
    }

    async fn control(&self, method: &str, path: &str) {
        let answer = http(self.address, method, path, &[], b"").await;
        let (status, body) = answer.unwrap_or_else(|| panic!("{method} {path} is answered"));
        assert_eq!(status, 200, "{method} {path}: {body}");
    }

    /// The enforced targets, each with the API of its ban (`iptables 192.0.2.7`).
    async fn entries(&self) -> Vec<(String, String)> {
        let Some((200, body)) = get(self.address, "/enforced").await else {
            return Vec::new();
        };
        let body: Value = serde_json::from_str(&body).expect("the gateway answers JSON");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        body["enforced"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| (text(&entry["api"]), text(&entry["target"])))
            .collect()
    }

    /// The targets that it enforces now, by either API.
    pub(crate) async fn enforced(&self) -> BTreeSet<String> {
        let entries = self.entries().await;
        entries.into_iter().map(|(_, target)| target).collect()
    }

    /// Waits until it enforces exactly `targets`.
    pub(crate) async fn enforces(&self, targets: &[&str]) {
        let wanted: BTreeSet<String> = targets.iter().map(ToString::to_string).collect();
        until(
            &format!("the gateway enforces exactly {wanted:?}"),
            async || self.enforced().await == wanted,
        )
        .await;
    }

    /// Waits until it enforces exactly `targets`, all of them by `api` and none by the other.
    pub(crate) async fn enforces_by(&self, api: &str, targets: &[&str]) {
        let wanted: BTreeSet<(String, String)> = targets
            .iter()
            .map(|target| (api.to_owned(), (*target).to_owned()))
            .collect();
        until(
            &format!("the gateway enforces exactly {wanted:?}"),
            async || self.entries().await.into_iter().collect::<BTreeSet<_>>() == wanted,
        )
        .await;
    }
}
