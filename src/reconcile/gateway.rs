//! The addresses behind a gateway that is given by name.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::Config;
use crate::outbound::BoxFuture;
use crate::policy::Protected;
use crate::target::Target;

/// How long the name of a gateway may take to be resolved.
const RESOLVE: Duration = Duration::from_secs(2);

/// How long an address stays protected after the last answer that named it. Names of load balancers take turns among
/// their addresses, and connections to an earlier one live on.
const ADDRESS_MEMORY: Duration = Duration::from_secs(60 * 60);

/// Addresses of one name that are remembered; beyond it the one that was not named for longest is forgotten.
const MOST_ADDRESSES: usize = 1024;

/// The gateway's name in a refusal.
const GATEWAY: &str = "the gateway";

/// Finds the addresses of a name.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// The addresses of `host`, or why there are none.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, String>>;
}

/// Resolves by the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, String>> {
        Box::pin(resolve(host, port))
    }
}

/// The addresses that the name of the gateway had within [`ADDRESS_MEMORY`].
#[derive(Debug, Default)]
pub(super) struct Answers {
    host: String,
    /// With the time of the last answer that named each.
    seen: BTreeMap<IpAddr, Instant>,
}

/// Host and port of a gateway that is given by name; by number it is protected already.
pub(super) fn named(config: &Config) -> Option<(String, u16)> {
    let endpoint = config.engine.as_ref().ok()?.endpoint.as_ref()?;
    let shown = endpoint.as_str();
    let (host, port) = shown
        .strip_prefix("https://")
        .unwrap_or(shown)
        .rsplit_once(':')?;
    if host.starts_with('[') || host.parse::<IpAddr>().is_ok() {
        return None;
    }
    Some((host.to_owned(), port.parse().ok()?))
}

// === impl Answers ===

impl Answers {
    /// Protects the addresses behind the name of the gateway: those of `answer`, and those of the answers of the last
    /// hour. Returns why the latest are unknown.
    pub(super) fn protect(
        &mut self,
        config: &mut Config,
        host: &str,
        answer: Result<Vec<IpAddr>, String>,
    ) -> Option<String> {
        if self.host != host {
            *self = Self {
                host: host.to_owned(),
                seen: BTreeMap::new(),
            };
        }
        let problem = match answer {
            Ok(addresses) => {
                self.remember(addresses);
                None
            }
            // Addresses stay protected while their name is not resolved.
            Err(error) => Some(format!(
                "operator cannot resolve the gateway {host} to protect its addresses from bans: {error}"
            )),
        };
        let resolved = self.seen.keys().map(|address| Protected {
            target: Target::host(*address),
            what: GATEWAY.into(),
        });
        config.policy.resolved = resolved.collect();
        problem
    }

    fn remember(&mut self, addresses: Vec<IpAddr>) {
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
    use crate::config::{self, Options};

    fn behind(gateway: &str) -> Config {
        let data = [("engine", "xdp"), ("gatewayHost", gateway)]
            .map(|(key, text)| (key.to_owned(), text.to_owned()));
        config::parse(&data.into(), &Options::default()).unwrap()
    }

    #[test]
    fn a_gateway_by_number_has_no_name_to_resolve() {
        assert_eq!(named(&behind("192.0.2.1:8080")), None);
        assert_eq!(named(&behind("[2001:db8::1]:8080")), None);
        let expected = Some(("gw.example".to_owned(), 443));
        assert_eq!(named(&behind("https://gw.example")), expected);
    }

    fn addresses(all: &[&str]) -> Vec<IpAddr> {
        all.iter().map(|address| address.parse().unwrap()).collect()
    }

    /// The addresses that are protected after `answer`.
    fn protected(answers: &mut Answers, host: &str, answer: &[&str]) -> Vec<String> {
        let mut config = behind("gw.example:8080");
        answers.protect(&mut config, host, Ok(addresses(answer)));
        let resolved = config.policy.resolved.iter();
        resolved.map(|(target, _)| target.to_string()).collect()
    }

    #[tokio::test]
    async fn the_system_resolves_a_name() {
        let found = SystemResolver.resolve("localhost", 8080).await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_stays_protected_for_an_hour_after_the_last_answer_with_it() {
        let mut answers = Answers::default();
        let (one, two) = (["192.0.2.1"], ["192.0.2.2"]);
        assert_eq!(protected(&mut answers, "gw.example", &two), two);
        for _ in 0..120 {
            tokio::time::advance(Duration::from_secs(30)).await;
            let both = protected(&mut answers, "gw.example", &one);
            assert_eq!(both, ["192.0.2.1", "192.0.2.2"]);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(protected(&mut answers, "gw.example", &one), one);
        let other = protected(&mut answers, "other.example", &two);
        assert_eq!(other, two, "another name has addresses of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_of_a_name_stay_protected_while_it_is_not_resolved() {
        let mut answers = Answers::default();
        assert_eq!(
            protected(&mut answers, "gw.example", &["192.0.2.1"]).len(),
            1
        );
        tokio::time::advance(Duration::from_secs(7200)).await;
        let mut config = behind("gw.example:8080");
        let why = answers.protect(&mut config, "gw.example", Err("no such name".into()));
        let why = why.unwrap();
        assert!(why.contains("gw.example"), "{why}");
        assert_eq!(config.policy.resolved.len(), 1);
        let why = answers.protect(&mut config, "other.example", Err("no such name".into()));
        assert!(why.is_some() && config.policy.resolved.is_empty());
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
        assert_eq!(answers.seen.len(), MOST_ADDRESSES);
        assert!(answers.seen.contains_key(&latest()), "every answer has it");
    }
}
