//! The addresses behind a gateway that is given by name.

use std::net::IpAddr;

use crate::config::Config;
use crate::names;
use crate::policy::Protected;
use crate::target::Target;

/// The gateway's name in a refusal.
const GATEWAY: &str = "the gateway";

/// The addresses that the name of the gateway had lately.
#[derive(Debug, Default)]
pub(super) struct Answers {
    host: String,
    seen: names::Answers,
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
                seen: names::Answers::default(),
            };
        }
        let problem = match answer {
            Ok(addresses) => {
                self.seen.remember(addresses);
                None
            }
            // Addresses stay protected while their name is not resolved.
            Err(error) => Some(format!(
                "operator cannot resolve the gateway {host} to protect its addresses from bans: {error}"
            )),
        };
        let resolved = self.seen.addresses().map(|address| Protected {
            target: Target::host(address),
            what: GATEWAY.into(),
        });
        config.policy.resolved = resolved.collect();
        problem
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
