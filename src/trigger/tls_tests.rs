//! Listeners with TLS, as their senders see them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use reeve_clock::Clock;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::blocks::in_memory::InMemory;
use super::*;
use crate::config::Options;
use crate::inbound;
use crate::lock::KeyedLocks;
use crate::mounted::Directory;
use crate::time::Time;

/// A directory with an authority, certificates of it, and the listener's files; removed at the end.
pub(crate) struct Files {
    pub(crate) path: PathBuf,
    authority: Issuer<'static, KeyPair>,
    authority_pem: String,
}

impl Files {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tls-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = params.self_signed(&key).unwrap().pem();
        let files = Self {
            path,
            authority: Issuer::new(params, key),
            authority_pem,
        };
        files.write("ca", &files.authority_pem);
        files.renew();
        files
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path.join(name), text).unwrap();
    }

    /// Another certificate of the listener.
    fn renew(&self) {
        let (certificate, key) = self.certificate("server", ExtendedKeyUsagePurpose::ServerAuth);
        self.write("crt", &certificate);
        self.write("key", &key);
    }

    fn certificate(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(vec!["localhost".into(), format!("{name}.example")]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn definition(&self, extra: &str) -> Definition {
        self.definition_with("key", extra)
    }

    fn definition_with(&self, key: &str, extra: &str) -> Definition {
        let path = self.path.display();
        let yaml = format!(
            "{{name: grafana, addr: '127.0.0.1:0', path: /p, tlsCertFile: {path}/crt, tlsKeyFile: {path}/{key}, {extra}}}"
        );
        let raw: RawTrigger = serde_saphyr::from_str(&yaml).unwrap();
        let options = Options {
            secrets: Directory::new(&self.path),
            ..Options::default()
        };
        raw.define(&options).unwrap()
    }

    /// A client that trusts the authority, with a certificate of this name.
    pub(crate) fn client(&self, client: Option<&str>) -> reqwest::Client {
        let mut roots = rustls::RootCertStore::empty();
        let der = rustls::pki_types::CertificateDer::from_pem_slice(self.authority_pem.as_bytes());
        roots.add(der.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            None => config.with_no_client_auth(),
            Some(name) => {
                let (certificate, key) =
                    self.certificate(name, ExtendedKeyUsagePurpose::ClientAuth);
                let certificate =
                    rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes());
                let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes());
                config
                    .with_client_auth_cert(vec![certificate.unwrap()], key.unwrap())
                    .unwrap()
            }
        };
        reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            .no_proxy()
            .build()
            .unwrap()
    }

    /// The answer to an alert, or nothing when the handshake fails.
    async fn send(&self, address: SocketAddr, client: Option<&str>) -> Option<u16> {
        let client = self.client(client);
        let alerts = json!({"alerts": [{"status": "firing", "labels": {"ip": "192.0.2.1"}}]});
        let url = format!("https://localhost:{}/p", address.port());
        let answer = client.post(url).body(alerts.to_string()).send().await;
        Some(answer.ok()?.status().as_u16())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn triggers() -> Triggers {
    let dependencies = Dependencies {
        blocks: Arc::new(InMemory::default()),
        locks: KeyedLocks::new(),
        time: Time::trusting(Clock::system()),
        metrics: Metrics::default(),
        limits: inbound::limits(),
    };
    let settings = Settings {
        namespace: "default".into(),
        place: None,
        default_duration: Duration::from_secs(600),
        max_duration: None,
        repeated_alert: Repeat::Extend,
        unblock_grace: Duration::from_secs(600),
        escalation: None,
        shadow: std::collections::BTreeSet::new(),
    };
    Triggers::new(dependencies, settings)
}

async fn serve(triggers: &Triggers, definition: &Definition) -> SocketAddr {
    let failed = triggers.apply(std::slice::from_ref(definition)).await;
    assert!(failed.is_empty(), "{failed:?}");
    triggers.addresses().await[0]
}

#[tokio::test]
async fn an_alert_comes_over_https_and_not_over_http() {
    let files = Files::new("https");
    let triggers = triggers();
    let address = serve(&triggers, &files.definition("insecure: true")).await;
    assert_eq!(files.send(address, None).await, Some(200));
    let plain = reqwest::Client::builder()
        .no_proxy()
        .tls_backend_preconfigured({
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth()
        });
    let plain = plain.build().unwrap().post(format!("http://{address}/p"));
    assert!(plain.send().await.is_err());
}

#[tokio::test]
async fn only_senders_with_a_certificate_of_the_authority_and_a_known_name_are_heard() {
    let files = Files::new("mutual");
    let triggers = triggers();
    let ca = files.path.join("ca");
    let mutual = format!("clientCAFile: {}", ca.display());
    let address = serve(&triggers, &files.definition(&mutual)).await;
    assert_eq!(files.send(address, None).await, None, "no certificate");
    assert_eq!(files.send(address, Some("any")).await, Some(200));
    let mut disguised = Files::new("disguised");
    disguised.authority_pem.clone_from(&files.authority_pem);
    assert_eq!(
        disguised.send(address, Some("any")).await,
        None,
        "another authority"
    );

    let named = format!("{mutual}, clientNames: [prometheus, gate.example]");
    let address = serve(&triggers, &files.definition(&named)).await;
    assert_eq!(
        files.send(address, Some("prometheus")).await,
        Some(200),
        "common name"
    );
    assert_eq!(
        files.send(address, Some("gate")).await,
        Some(200),
        "DNS name"
    );
    assert_eq!(files.send(address, Some("other")).await, Some(401));
}

#[tokio::test]
async fn a_listener_changes_its_certificates_with_the_configuration_and_reports_those_it_cannot_read()
 {
    let files = Files::new("change");
    let triggers = triggers();
    let https = files.definition("insecure: true");
    let address = serve(&triggers, &https).await;
    let mut http = https.clone();
    http.tls = None;
    let plain = serve(&triggers, &http).await;
    assert_eq!(files.send(plain, None).await, None, "it is plain HTTP now");
    assert!(
        tokio::net::TcpStream::connect(address).await.is_err(),
        "the first one ended"
    );

    std::fs::remove_file(files.path.join("key")).unwrap();
    let failed = triggers.apply(std::slice::from_ref(&https)).await;
    assert_eq!(failed.len(), 1);
    let text = failed[0].to_string();
    assert!(text.contains("grafana") && text.contains("key"), "{text}");
    assert!(
        tokio::net::TcpStream::connect(plain).await.is_err(),
        "alerts are not heard over plain HTTP any more"
    );
    files.renew();
    let address = serve(&triggers, &https).await;
    assert_eq!(files.send(address, None).await, Some(200), "tried again");

    // A certificate that is not mounted yet: the former one is used, with the new triggers.
    let mut moved = files.definition_with("later", "insecure: true");
    moved.path = "/q".into();
    assert_eq!(triggers.apply(std::slice::from_ref(&moved)).await.len(), 1);
    assert_eq!(files.send(address, None).await, Some(404), "its path is /q");
    moved.path = "/p".into();
    assert_eq!(triggers.apply(std::slice::from_ref(&moved)).await.len(), 1);
    assert_eq!(files.send(address, None).await, Some(200));

    // Senders need a certificate of an authority that is not mounted yet.
    let authority = files.path.join("authority");
    let mutual = format!("clientCAFile: {}", authority.display());
    let mutual = files.definition(&mutual);
    assert_eq!(triggers.apply(std::slice::from_ref(&mutual)).await.len(), 1);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}
