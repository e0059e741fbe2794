//! The provider of the vendor's API against slbd, over TCP.

mod killed;
mod lists;
mod provider;
mod rolling;
mod turns;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use cloud_loadbalancer::provider::slb::Slb;
use jiff::SignedDuration;
use reeve_clock::Clock;
use slbd::client::Client;
use slbd::cloud::Rules;
use slbd::server::{Server, Settings};

/// A cloud with the access key `id` and three instances.
fn cloud(lag: SignedDuration, provision: SignedDuration) -> Server {
    let rules = Rules {
        lag,
        provision,
        ..Rules::default()
    };
    let server = cloud_with(rules);
    let instances = (1..=3).map(|n| (format!("i-{n}"), Ipv4Addr::new(127, 77, 0, n)));
    server.world().set_instances(&instances.collect()).unwrap();
    server
}

fn cloud_with(rules: Rules) -> Server {
    let settings = Settings {
        rules,
        keys: BTreeMap::from([("id".to_owned(), "secret".to_owned())]),
        file: None,
        clock: Clock::system(),
    };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Server::start(any, any, settings).unwrap()
}

/// A client of its own, beside those of the providers.
fn client(api: SocketAddr) -> Client {
    let endpoint = format!("http://{api}");
    Client::new(&endpoint, "id", "secret", "cn-loopback", Clock::system()).unwrap()
}

fn slb(api: SocketAddr) -> Slb {
    Slb::new(client(api), Duration::from_secs(1))
}

#[tokio::test]
async fn the_vendors_api_keeps_the_contract() {
    let servers = std::cell::RefCell::new(Vec::new());
    crate::contract::check(&[], async || {
        let server = cloud(SignedDuration::ZERO, SignedDuration::ZERO);
        let provider = slb(server.api());
        servers.borrow_mut().push(server);
        std::sync::Arc::new(provider) as crate::contract::Subject
    })
    .await;
}
