//! The addresses behind a gateway that is given by name.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::config::Config;
use crate::outbound::BoxFuture;
use crate::policy::Protected;
use crate::target::Target;

/// How long the name of a gateway may take to be resolved.
const RESOLVE: Duration = Duration::from_secs(2);

/// What a gateway is called in a refusal.
const GATEWAY: &str = "the gateway";

/// Finds the addresses of a name.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// The addresses of `host`, or why they are not known.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<Vec<IpAddr>, String>>;
}

/// Asks the system.
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

/// Protects the addresses behind the name of a gateway. Returns why they are not known; then those known before
/// stay.
pub(super) async fn protect(
    resolver: &dyn Resolver,
    config: &mut Config,
    before: Option<&Config>,
) -> Option<String> {
    let (host, port) = named(config)?;
    match resolver.resolve(&host, port).await {
        Ok(addresses) => {
            let addresses = addresses.into_iter().map(|address| Protected {
                target: Target::host(address),
                what: GATEWAY.into(),
            });
            config.policy.protected.extend(addresses);
            None
        }
        Err(error) => {
            let known = before
                .filter(|before| before.place() == config.place())
                .map(|before| before.policy.protected.iter());
            let known = known
                .into_iter()
                .flatten()
                .filter(|entry| entry.what == GATEWAY);
            config.policy.protected.extend(known.cloned());
            Some(format!(
                "the gateway {host} has no known address to protect from bans: {error}"
            ))
        }
    }
}

/// The addresses of `host`, sorted. Takes two seconds at most.
pub(crate) async fn resolve(host: &str, port: u16) -> Result<Vec<IpAddr>, String> {
    let found = tokio::time::timeout(RESOLVE, tokio::net::lookup_host((host, port)))
        .await
        .map_err(|_| "its name was not resolved in time".to_owned())?
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

    #[tokio::test]
    async fn the_addresses_behind_a_gateways_name_are_protected_and_stay_when_it_is_not_resolved() {
        let mut config = behind("localhost:8080");
        assert_eq!(protect(&SystemResolver, &mut config, None).await, None);
        let of = |config: &Config| config.policy.protected.clone();
        assert!(!of(&config).is_empty());
        assert!(
            of(&config)
                .iter()
                .all(|entry| entry.what == GATEWAY && entry.target.to_string() != "localhost")
        );

        let mut before = behind("gateway.invalid:8080");
        before.policy.protected = of(&config);
        let mut lost = behind("gateway.invalid:8080");
        let why = protect(&SystemResolver, &mut lost, Some(&before))
            .await
            .unwrap();
        assert!(why.contains("gateway.invalid"), "{why}");
        assert_eq!(of(&lost), of(&before));
        let mut other = behind("other.invalid:8080");
        assert!(
            protect(&SystemResolver, &mut other, Some(&before))
                .await
                .is_some()
                && of(&other).is_empty()
        );
    }
}
