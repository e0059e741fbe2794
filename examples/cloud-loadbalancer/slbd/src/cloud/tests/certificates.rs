//! Certificates, the listeners that have them, and their domains.

use rcgen::{CertificateParams, KeyPair};

use super::*;

pub(super) fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn upload(chain: &str, key: &str) -> Parameters {
    Parameters::action("UploadServerCertificate")
        .with("ServerCertificate", chain)
        .with("PrivateKey", key)
}

fn uploaded(world: &mut World) -> String {
    let (chain, key) = pair();
    text(&world.call(&upload(&chain, &key)), "ServerCertificateId")
}

fn about(action: &str, certificate: &str) -> Parameters {
    Parameters::action(action).with("ServerCertificateId", certificate)
}

fn https(world: &mut World, certificate: &str) -> String {
    let lb = world.ready();
    let create = listener("CreateLoadBalancerHTTPSListener", &lb, 443);
    world.call(&create.with("ServerCertificateId", certificate));
    lb
}

#[test]
fn a_certificate_is_kept_without_anything_around_it() {
    let mut world = World::new(Rules::default());
    let (chain, key) = pair();
    let (_, other) = pair();
    // PEM allows text around its blocks, and files may hold both.
    let odd = format!("bind 0.0.0.0:80\r\n{other}{chain}");
    let call = upload(&odd, &format!("# key\n{key}")).with("ServerCertificateName", "a");
    let answer = world.call(&call);
    assert_eq!(answer["ServerCertificateName"], "a");
    let fingerprint = text(&answer, "Fingerprint");
    assert_eq!(fingerprint.split(':').count(), 20, "{fingerprint}");
    let id = text(&answer, "ServerCertificateId");
    let state = world.cloud.state();
    let kept = &state.certificates[&id];
    let same =
        |one: &str, other: &str| one.replace('\r', "").trim() == other.replace('\r', "").trim();
    assert!(same(&kept.chain, &chain), "{}", kept.chain);
    assert!(same(kept.key.pem(), &key));
    assert!(!format!("{state:?}").contains("PRIVATE KEY"));
    let list = world.call(&about("DescribeServerCertificates", &id));
    let listed = list["ServerCertificates"]["ServerCertificate"].as_array();
    assert_eq!(listed.unwrap().len(), 1);
    assert!(!Value::Object(list).to_string().contains("BEGIN"));
}

#[test]
fn a_certificate_that_cannot_serve_is_refused() {
    let mut world = World::new(Rules::default());
    let ((chain, key), (_, other)) = (pair(), pair());
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let long = chain.repeat(11);
    for (chain, key, code) in [
        (
            chain.as_str(),
            other.as_str(),
            "CertificateNotMatchPrivateKey",
        ),
        (&chain, encrypted, "PrivateKeyEncryption"),
        (&chain, "a letter", "InvalidParameter"),
        ("a letter", &key, "InvalidParameter"),
        (garbage, &key, "InvalidParameter"),
        (&long, &key, "InvalidParameter"),
        ("", &key, "MissingParameter"),
    ] {
        assert_eq!(world.refused(&upload(chain, key)), code, "{chain} {key}");
    }
}

#[test]
fn a_certificate_with_a_listener_is_not_deleted() {
    let mut world = World::new(Rules::default());
    let (first, second, domain) = (
        uploaded(&mut world),
        uploaded(&mut world),
        uploaded(&mut world),
    );
    let lb = https(&mut world, &first);
    let extension = listener("CreateDomainExtension", &lb, 443).with("Domain", "b.example.com");
    world.call(&extension.with("ServerCertificateId", &domain));
    for used in [&first, &domain] {
        let code = world.refused(&about("DeleteServerCertificate", used));
        assert_eq!(code, "CertificateAndPrivateKeyIsRefered");
    }
    let set = listener("SetLoadBalancerHTTPSListenerAttribute", &lb, 443);
    world.call(&set.with("ServerCertificateId", &second));
    world.call(&about("DeleteServerCertificate", &first));
    let code = world.refused(&about("DeleteServerCertificate", &first));
    assert_eq!(code, "ServerCertificateId.NotFound");
    world.call(&delete(&lb));
    world.call(&about("DeleteServerCertificate", &second));
    world.call(&about("DeleteServerCertificate", &domain));
    assert!(world.cloud.state().certificates.is_empty());
}

#[test]
fn an_https_listener_needs_a_certificate_that_exists() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    let create = listener("CreateLoadBalancerHTTPSListener", &lb, 443);
    assert_eq!(world.refused(&create), "MissingParameter");
    let code = world.refused(&create.clone().with("ServerCertificateId", "cert-none"));
    assert_eq!(code, "ServerCertificateId.NotFound");
    let id = uploaded(&mut world);
    world.call(&create.with("ServerCertificateId", &id));
    let describe = listener("DescribeLoadBalancerHTTPSListenerAttribute", &lb, 443);
    let shown = world.call(&describe);
    assert_eq!(shown["ServerCertificateId"], id);
    assert_eq!(shown["EnableHttp2"], "on");
    // Other listeners have neither certificates nor domains.
    world.call(&listener("CreateLoadBalancerHTTPListener", &lb, 80));
    let domain = listener("CreateDomainExtension", &lb, 80).with("Domain", "a.example.com");
    assert_eq!(
        world.refused(&domain.with("ServerCertificateId", &id)),
        "InvalidParameter"
    );
}

#[test]
fn a_domain_has_one_certificate_which_can_be_replaced() {
    let rules = Rules {
        domains: 2,
        ..Rules::default()
    };
    let mut world = World::new(rules);
    let (first, second) = (uploaded(&mut world), uploaded(&mut world));
    let lb = https(&mut world, &first);
    let create = |domain: &str| {
        listener("CreateDomainExtension", &lb, 443)
            .with("Domain", domain)
            .with("ServerCertificateId", &first)
    };
    let id = text(
        &world.call(&create("Shop.example.com")),
        "DomainExtensionId",
    );
    assert_eq!(
        world.refused(&create("shop.example.com")),
        "DomainAlreadyExists"
    );
    for wrong in ["a b", "a..b", "*.*.b", "a]b", "!a", &"a".repeat(81)] {
        assert_eq!(world.refused(&create(wrong)), "InvalidParameter", "{wrong}");
    }
    world.call(&create("*.example.com"));
    let code = world.refused(&create("c.example.com"));
    assert_eq!(code, "DomainExtensionNumberOverLimit");
    let set = about("SetDomainExtensionAttribute", &second).with("DomainExtensionId", &id);
    world.call(&set);
    let list = world.call(&listener("DescribeDomainExtensions", &lb, 443));
    let domains = list["DomainExtensions"]["DomainExtension"].as_array();
    let shown = |one: &Value| (one["Domain"].clone(), one["ServerCertificateId"].clone());
    let domains: Vec<(Value, Value)> = domains.unwrap().iter().map(shown).collect();
    let expected = [
        ("shop.example.com".into(), second.as_str().into()),
        ("*.example.com".into(), first.as_str().into()),
    ];
    assert_eq!(domains, expected);
    let delete = Parameters::action("DeleteDomainExtension").with("DomainExtensionId", &id);
    world.call(&delete);
    assert_eq!(world.refused(&delete), "DomainExtensionId.NotFound");
}
