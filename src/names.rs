//! The addresses behind a name, which is resolved again and again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::outbound::BoxFuture;

/// How long a name may take to be resolved.
const RESOLVE: Duration = Duration::from_secs(2);

/// How long an address counts after the last answer that named it. Names of load balancers take turns among their
/// addresses, and connections to an earlier one live on.
const ADDRESS_MEMORY: Duration = Duration::from_secs(60 * 60);

/// Addresses of one name that are remembered; beyond it the one that was not named for longest is forgotten.
const MOST_ADDRESSES: usize = 1024;

/// Finds the addresses of a name.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// The addresses of `host`, or why there are none.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, String>>;
}

/// Resolves by the system, within two seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

/// The addresses that one name had within the last hour, and at its last answer.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// With the time of the last answer that named each.
    seen: BTreeMap<IpAddr, Instant>,
}

// === impl SystemResolver ===

impl Resolver for SystemResolver {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, String>> {
        Box::pin(resolve(host, port))
    }
}

// === impl Answers ===

impl Answers {
    /// Adds the addresses of an answer. Without an answer the known addresses stay.
    pub(crate) fn remember(&mut self, addresses: Vec<IpAddr>) {
        let now = Instant::now();
        self.seen
            .extend(addresses.into_iter().map(|address| (address, now)));
        self.seen
            .retain(|_, seen| now.duration_since(*seen) <= ADDRESS_MEMORY);
        while self.seen.len() > MOST_ADDRESSES {
            let oldest = self.seen.iter().min_by_key(|(_, seen)| **seen);
            let Some(oldest) = oldest.map(|(address, _)| *address) else {
                break;
            };
            self.seen.remove(&oldest);
        }
    }

    /// The addresses, in order.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.seen.keys().copied()
    }
}

/// The addresses of `host`, sorted. Takes two seconds at most.
pub(crate) async fn resolve(host: &str, port: u16) -> Result<Vec<IpAddr>, String> {
    let found = tokio::time::timeout(RESOLVE, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|_| "the name was not resolved in time".to_owned())?
        .map_err(|error| error.to_string())?;
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_resolves_a_name() {
        let found = SystemResolver.resolve("localhost", 8080).await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_remembered_addresses_is_bounded() {
        let mut answers = Answers::default();
        let latest = || "198.51.100.1".parse::<IpAddr>().unwrap();
        for n in 0..2 * u32::try_from(MOST_ADDRESSES).unwrap() {
            tokio::time::advance(Duration::from_millis(10)).await;
            answers.remember(vec![
                IpAddr::from((0x0a00_0000 + n).to_be_bytes()),
                latest(),
            ]);
        }
        assert_eq!(answers.addresses().count(), MOST_ADDRESSES);
        assert!(answers.seen.contains_key(&latest()), "every answer has it");
    }
}
