//! TLS of the API.

use rcgen::{CertificateParams, KeyPair};
use slbd::client::{Created, Error, Signing};
use slbd::parameters::Parameters;

use crate::process::Cloud;

/// A certificate for these names, and its key, as PEM.
fn pair(names: &[&str]) -> (String, String) {
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
