//! Requests over real TLS, and what the logs may hold of them.

use std::sync::Arc;

use bytes::Bytes;
use ipblock_simulator::Gateway;
use reeve_apiserver::ApiServer;

use super::*;
use crate::engine::{Endpoint, Engine, Iptables};
use crate::logged::Logged;
use crate::notify::{Lark, Notification, Notifier, Templates, Transport};
use crate::secret::Secret;
use reeve_clock::Clock;

fn loopback() -> HttpBuilder {
    Http::builder().policy(AddressPolicy {
        allow_loopback: true,
    })
}

#[tokio::test]
async fn only_the_given_authority_is_trusted() {
    let server = ApiServer::builder().start().await.unwrap();
    let serving = server.serve_tls(([127, 0, 0, 1], 0).into()).await.unwrap();
    let get = || {
        let url = format!("{}/version", serving.url());
        ::http::Request::get(url).body(Bytes::new()).unwrap()
    };
    let authority = serving.certificate_authority().unwrap().to_owned();
    let trusting = loopback().authority(authority).build().unwrap();
    assert_eq!(trusting.send(get()).await.unwrap().status(), 200);
    let other = loopback().build().unwrap();
    let error = other.send(get()).await.unwrap_err();
    assert!(matches!(error, Error::Tls(_)), "{error:?}");
}

#[tokio::test]
async fn no_log_line_of_any_level_holds_a_secret() {
    let log = Logged::at(tracing::Level::TRACE);

    let gateway = Gateway::new(Clock::system());
    let address = gateway.listen(([127, 0, 0, 1], 0).into()).unwrap();
    let http: Arc<dyn Outbound> = Arc::new(loopback().build().unwrap());
    let endpoint = Endpoint::parse(&address.to_string()).unwrap();
    let endpoint = endpoint.with_bearer(Secret::new("canary-bearer"));
    let engine = Iptables::new(endpoint, Arc::clone(&http));
    engine
        .ban(&"192.0.2.7".parse().unwrap(), None)
        .await
        .unwrap();

    let url = Secret::new(format!("http://{address}/hook/canary-hook"));
    let secrets = (url, Some(Secret::new("canary-signing")));
    let transport = Transport {
        outbound: http,
        time: crate::time::Time::new(Clock::system()),
        zone: jiff::tz::Offset::UTC,
    };
    let lark = Lark::new(secrets, Templates::built_in(), transport);
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    let error = lark
        .notify(&Notification::common(at, "x"))
        .await
        .unwrap_err();
    tracing::warn!(?lark, %error, ?error, "what a careless line would hold");

    let text = log.take();
    assert!(
        text.contains("TRACE") && text.contains("careless"),
        "{text}"
    );
    assert!(!text.contains("canary"), "{text}");
}
