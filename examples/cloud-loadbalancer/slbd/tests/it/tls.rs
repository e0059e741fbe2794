//! TLS: of the API, and of HTTPS listeners.

use std::net::SocketAddr;

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Map, Value};
use slbd::client::{Client, Created, Error, Group, Signing};
use slbd::parameters::Parameters;

use crate::process::Cloud;
use crate::site::{get, site};

/// A certificate for these names, and its key, as PEM.
pub(crate) fn pair(names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(names).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn the_api_is_served_with_the_certificate_of_the_flags() {
    let folder = std::env::temp_dir().join(format!("slbd-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name);
    let (certificate, key) = pair(&["127.0.0.1"]);
    std::fs::write(file("tls.crt"), &certificate).unwrap();
    std::fs::write(file("tls.key"), &key).unwrap();
    std::fs::write(file("other.crt"), pair(&["127.0.0.1"]).0).unwrap();
    let cloud = Cloud::start(&[
        "--tls-cert",
        file("tls.crt").to_str().unwrap(),
        "--tls-key",
        file("tls.key").to_str().unwrap(),
    ]);
    let https = || cloud.client_by("https");
    for signing in [Signing::Acs3, Signing::Version1] {
        let client = https().ca_file(&file("tls.crt")).unwrap().signing(signing);
        let _: Created = client
            .call(Parameters::action("CreateLoadBalancer"))
            .await
            .unwrap();
    }
    // Another authority, and no TLS.
    for client in [
        https().ca_file(&file("other.crt")).unwrap(),
        cloud.client_by("http"),
    ] {
        let refused = client.balancers(Parameters::default()).await.unwrap_err();
        assert!(matches!(refused, Error::Lost { .. }), "{refused}");
    }
    for name in ["none.crt", "tls.key"] {
        let error = https().ca_file(&file(name)).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

async fn upload(client: &Client, (certificate, key): &(String, String)) -> String {
    let call = Parameters::action("UploadServerCertificate")
        .with("ServerCertificate", certificate)
        .with("PrivateKey", key);
    let made: Map<String, Value> = client.call(call).await.unwrap();
    made["ServerCertificateId"].as_str().unwrap().to_owned()
}

/// The answer at `https://name` at `address`, for a client that trusts one certificate.
async fn fetch(name: &str, address: SocketAddr, trusted: &str) -> Result<String, reqwest::Error> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let trusted = reqwest::Certificate::from_pem(trusted.as_bytes()).unwrap();
    let http = reqwest::Client::builder()
        .no_proxy()
        .resolve(name, address)
        .tls_certs_only([trusted])
        .build()
        .unwrap();
    let url = format!("https://{name}:{}/", address.port());
    let answer = http.get(url).send().await?;
    assert_eq!(answer.status(), 200);
    Ok(answer.text().await?.trim().to_owned())
}

#[tokio::test]
async fn an_https_listener_serves_the_certificate_of_each_domain() {
    let Some(mut site) = site(9) else { return };
    let _pod = site.pod(201).await;
    let _node = site.node(151, &[201]).await;
    let client = &site.client;
    let made: Created = client
        .call(Parameters::action("CreateLoadBalancer"))
        .await
        .unwrap();
    let call = Parameters::action("CreateVServerGroup")
        .with("LoadBalancerId", &made.load_balancer_id)
        .with("BackendServers", site.backend(151, 100));
    let group: Group = client.call(call).await.unwrap();
    // The first certificate has the name of the further domain, too, and does not serve it.
    let first = pair(&["www.example.com", "shop.example.com"]);
    let (shop, next) = (pair(&["shop.example.com"]), pair(&["www.example.com"]));
    let (first_id, shop_id, next_id) = (
        upload(client, &first).await,
        upload(client, &shop).await,
        upload(client, &next).await,
    );
    let on = |action: &str| {
        Parameters::action(action)
            .with("LoadBalancerId", &made.load_balancer_id)
            .with("ListenerPort", 8443)
    };
    let create = on("CreateLoadBalancerHTTPSListener")
        .with("VServerGroupId", &group.id)
        .with("ServerCertificateId", &first_id);
    site.run(create).await;
    site.change(on("StartLoadBalancerListener")).await;
    let address = SocketAddr::from((made.address, 8443));
    let www =
        async |trusted: &(String, String)| fetch("www.example.com", address, &trusted.0).await;
    let shop_with =
        async |trusted: &(String, String)| fetch("shop.example.com", address, &trusted.0).await;
    assert_eq!(www(&first).await.unwrap(), "pod-201");
    assert_eq!(shop_with(&first).await.unwrap(), "pod-201");
    assert!(www(&next).await.is_err());
    // Without TLS there is no answer.
    assert!(get(address).await.is_err());
    let domain = on("CreateDomainExtension")
        .with("Domain", "shop.example.com")
        .with("ServerCertificateId", &shop_id);
    site.change(domain).await;
    assert_eq!(shop_with(&shop).await.unwrap(), "pod-201");
    assert!(shop_with(&first).await.is_err());
    assert_eq!(www(&first).await.unwrap(), "pod-201");
    let set = on("SetLoadBalancerHTTPSListenerAttribute").with("ServerCertificateId", &next_id);
    site.change(set).await;
    assert_eq!(www(&next).await.unwrap(), "pod-201");
    assert!(www(&first).await.is_err());
    for policy in [
        "tls_cipher_policy_1_1",
        "tls_cipher_policy_1_2",
        "tls_cipher_policy_1_2_strict",
        "tls_cipher_policy_1_2_strict_with_1_3",
    ] {
        let set = on("SetLoadBalancerHTTPSListenerAttribute").with("TLSCipherPolicy", policy);
        site.change(set).await;
        assert_eq!(site.progress.borrow().left_out, [], "{policy}");
        assert_eq!(www(&next).await.unwrap(), "pod-201", "{policy}");
    }
    // The certificate that is not used any more can be deleted, and its file is gone.
    let delete = Parameters::action("DeleteServerCertificate");
    site.run(delete.with("ServerCertificateId", &first_id))
        .await;
    let folder = site.folder.join("certificates");
    assert!(!folder.join(format!("{first_id}.pem")).exists());
    assert!(folder.join(format!("{next_id}.pem")).exists());
    let calls = format!("{:?}", site.server.world().calls());
    assert!(!calls.contains("PRIVATE KEY"), "a key is remembered");
    site.end().await;
}
