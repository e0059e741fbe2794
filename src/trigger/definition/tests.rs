//! Entries of the list, and what is wrong with them.

use super::*;
use crate::mounted::{Directory, MountedFile};

fn raw(yaml: &str) -> RawTrigger {
    serde_saphyr::from_str(yaml).unwrap()
}

fn options(insecure_triggers: bool) -> Options {
    Options {
        insecure_triggers,
        secrets: Directory::new("/s"),
        ..Options::default()
    }
}

fn file(path: &str) -> MountedFile {
    Directory::new("/s").file(path).unwrap()
}

#[test]
fn the_originals_entry_is_read_and_needs_the_word_insecure() {
    let original = raw("{name: grafana, addr: ':8090', path: /trigger/grafana}");
    let error = original.define(&options(false)).unwrap_err();
    assert!(error.to_string().contains("--insecure-triggers"), "{error}");
    let defined = original.define(&options(true)).unwrap();
    assert_eq!(defined.payload.kind(), Kind::Grafana);
    assert_eq!(defined.address, "[::]:8090".parse().unwrap());
    assert_eq!(defined.path, "/trigger/grafana");
    assert_eq!(defined.credentials, Credentials::Insecure);
    assert_eq!(defined.debounce, Duration::from_secs(60));
    assert_eq!(defined.debounce_entries, 1000);
}

#[test]
fn credentials_are_one_of_three() {
    let base = "name: x, type: grafana, addr: '127.0.0.1:1', path: /p";
    for (extra, credentials) in [
        ("insecure: true", Ok(Credentials::Insecure)),
        (
            "bearerTokenFile: /s/token",
            Ok(Credentials::Bearer {
                token_file: file("/s/token"),
            }),
        ),
        (
            "hmacSecretFile: /s/key, hmacTimestampHeader: X-Time",
            Ok(Credentials::Hmac {
                secret_file: file("/s/key"),
                header: http::HeaderName::from_static("x-grafana-alerting-signature"),
                timestamp_header: Some(http::HeaderName::from_static("x-time")),
            }),
        ),
        (
            "hmacSecretFile: /s/key, insecure: true",
            Err(DefinitionError::TwoCredentials { name: "x".into() }),
        ),
        (
            "hmacSecretFile: /s/key, hmacHeader: 'a b'",
            Err(DefinitionError::Header {
                name: "x".into(),
                header: "a b".into(),
            }),
        ),
    ] {
        // The command line's word changes nothing where credentials are given.
        for flag in [false, true] {
            let defined = raw(&format!("{{{base}, {extra}}}")).define(&options(flag));
            assert_eq!(defined.map(|it| it.credentials), credentials, "{extra}");
        }
    }
}

#[test]
fn what_cannot_be_served_is_named() {
    for (yaml, word) in [
        ("{name: '', addr: ':1', path: /p}", "no name"),
        ("{name: other, addr: ':1', path: /p}", "unknown type"),
        ("{name: grafana, addr: '8090', path: /p}", "not an address"),
        (
            "{name: grafana, addr: ':99999', path: /p}",
            "not an address",
        ),
        ("{name: grafana, addr: ':1', path: p}", "not a path"),
        (
            "{name: 'a/b', type: grafana, addr: ':1', path: /p}",
            "letters, digits",
        ),
    ] {
        let error = raw(yaml).define(&options(true)).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let misspelt = "{name: grafana, addr: ':1', path: /p, insecur: true}";
    let error = serde_saphyr::from_str::<RawTrigger>(misspelt).unwrap_err();
    assert!(error.to_string().contains("insecur"), "{error}");
    let twice = raw("{name: grafana, addr: ':1', path: /p}");
    let error = RawTrigger::define_all(&[twice.clone(), twice], &options(true)).unwrap_err();
    assert!(matches!(error, DefinitionError::Same { .. }));
    assert!(error.to_string().contains("set another path"), "{error}");
    let long = format!(
        "{{name: {}, type: grafana, addr: ':1', path: /p}}",
        "a".repeat(64)
    );
    let error = raw(&long).define(&options(true)).unwrap_err();
    assert!(matches!(error, DefinitionError::Name { .. }));
}

#[test]
fn two_triggers_of_one_name_are_one_source_unless_one_of_them_lifts_or_only_shows() {
    let named = |path: &str, extra: &str| {
        raw(&format!(
            "{{name: grafana, addr: ':1', path: {path}{extra}}}"
        ))
    };
    let define = |one: &str, other: &str| {
        let both = [named("/a", one), named("/b", other), named("/c", one)];
        RawTrigger::define_all(&both, &options(true))
    };
    let served = define("", "").unwrap();
    assert!(served.iter().all(|it| it.name == "grafana"));
    assert_eq!(served.len(), 3);
    let shared = Definition::shared_names(&served);
    assert_eq!(shared.len(), 1, "once a name: {shared:?}");
    assert!(shared[0].contains("set another name and type: grafana"));
    assert!(Definition::shared_names(&served[..1]).is_empty());
    assert!(define(", shadow: true", ", shadow: true").is_ok());
    for (one, other) in [
        (", resolved: lift", ""),
        ("", ", resolved: lift"),
        ("", ", shadow: true"),
    ] {
        let error = define(one, other).unwrap_err().to_string();
        assert!(
            error.contains("two triggers have the name grafana"),
            "{error}"
        );
        assert!(error.contains("type: grafana"), "{error}");
    }
}

#[test]
fn the_fields_of_a_payload_are_for_its_type() {
    let base = "name: x, addr: '127.0.0.1:1', path: /p, insecure: true";
    for (extra, word) in [
        ("type: grafana, mapping: {ip: /ip}", "use type: generic"),
        (
            "type: generic, ipLabels: [ip]",
            "ipLabels is not for the type generic",
        ),
        ("type: generic", "mapping.ip is missing"),
        ("type: generic, mapping: {ip: x}", "trigger x: mapping.ip"),
        (
            "type: generic, resolved: lift, mapping: {ip: /ip}",
            "resolved: lift needs mapping.id",
        ),
        (
            "type: grafana, resolved: unblock",
            "neither lift nor ignore",
        ),
    ] {
        let error = raw(&format!("{{{base}, {extra}}}")).define(&options(false));
        let error = error.expect_err(extra).to_string();
        assert!(error.contains(word), "{extra}: {error}");
    }
    let defined = |extra: &str| raw(&format!("{{{base}, {extra}}}")).define(&options(false));
    let lifts = defined("type: alertmanager, resolved: lift, ipLabels: [src, ip]").unwrap();
    assert_eq!(lifts.resolved, AtResolved::Lift);
    let Form::Alertmanager(labels) = &lifts.payload.form else {
        panic!("{lifts:?}");
    };
    assert_eq!(labels.ip, ["src", "ip"]);
    assert_eq!(labels.duration, Labels::default().duration);
    assert!(defined("type: generic, resolved: lift, mapping: {ip: /ip, id: /id}").is_ok());
    let ignores = defined("type: generic, mapping: {ip: /ip}").unwrap();
    assert_eq!(ignores.resolved, AtResolved::Ignore);
}

#[test]
fn certificates_come_in_pairs_and_one_address_has_one() {
    let base = "type: grafana, addr: '127.0.0.1:1'";
    let pair = "tlsCertFile: /s/crt, tlsKeyFile: /s/key";
    for (extra, word) in [
        (
            "insecure: true, tlsCertFile: /s/crt",
            "tlsCertFile needs tlsKeyFile",
        ),
        (
            "insecure: true, tlsKeyFile: /s/key",
            "tlsKeyFile needs tlsCertFile",
        ),
        (
            "clientCAFile: /s/ca",
            "clientCAFile needs tlsCertFile and tlsKeyFile",
        ),
        (
            "insecure: true, clientNames: [a]",
            "clientNames needs clientCAFile",
        ),
        (
            "tlsCertFile: /etc/x, tlsKeyFile: /s/key",
            "not a file below /s",
        ),
        (pair, "no credentials"),
    ] {
        let error = raw(&format!("{{name: x, path: /p, {base}, {extra}}}"));
        let error = error.define(&options(false)).expect_err(extra).to_string();
        assert!(error.contains(word), "{extra}: {error}");
    }
    let with =
        |name: &str, extra: &str| raw(&format!("{{name: {name}, path: /{name}, {base}, {extra}}}"));
    let mutual = format!("{pair}, clientCAFile: /s/ca, clientNames: [prometheus]");
    let defined = with("a", &mutual).define(&options(false)).unwrap();
    assert_eq!(defined.credentials, Credentials::Certificate);
    assert_eq!(defined.client_names, ["prometheus"]);
    assert_eq!(defined.tls.unwrap().clients, Some(file("/s/ca")));
    let both = format!("{mutual}, bearerTokenFile: /s/token");
    let both = with("b", &both).define(&options(false)).unwrap();
    assert!(matches!(both.credentials, Credentials::Bearer { .. }));
    let plain = with("c", "insecure: true");
    let error = RawTrigger::define_all(&[with("a", &mutual), plain], &options(false));
    assert!(
        matches!(error, Err(DefinitionError::OtherTls { .. })),
        "{error:?}"
    );
    let one = with("d", &mutual);
    assert!(RawTrigger::define_all(&[with("a", &mutual), one], &options(false)).is_ok());
}
