//! Entries of `engines`, right and wrong.

use super::*;
use crate::mounted::Directory;

fn define(yaml: &str) -> Result<Vec<Definition>, String> {
    let list: Vec<RawEngine> = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
    let options = Options {
        secrets: Directory::new("/s"),
        own_ports: vec![(8080, "metrics")],
        ..Options::default()
    };
    RawEngine::define_all(&list, &[8090], &options).map_err(|error| error.to_string())
}

#[test]
fn a_list_is_served_with_a_token_or_openly_when_that_is_asked_for() {
    let defined = define(
        "- {name: edge, type: list, addr: ':8093', bearerTokenFile: /s/token}\n\
         - {name: open, type: list, addr: ':8093', path: /open/, insecure: true}",
    )
    .unwrap();
    let serve: Vec<&Serve> = defined.iter().filter_map(Definition::serve).collect();
    assert_eq!(
        (serve[0].path.as_str(), serve[1].path.as_str()),
        ("/bans", "/open")
    );
    assert!(matches!(serve[0].access, Access::Secret(_)));
    assert_eq!(serve[1].access, Access::Insecure);
    assert!(defined[0].warning().is_none());
    assert!(
        defined[1]
            .warning()
            .unwrap()
            .contains("without credentials")
    );
}

#[test]
fn certificates_of_readers_are_credentials() {
    let defined = define(
        "- {name: edge, type: list, addr: ':8093', tlsCertFile: /s/crt, tlsKeyFile: /s/key, clientCAFile: /s/ca}",
    )
    .unwrap();
    let serve = defined[0].serve().unwrap();
    assert!(serve.tls.as_ref().unwrap().clients.is_some());
    assert_eq!(serve.access, Access::Insecure, "and no token");
    assert_eq!(defined[0].warning(), None);
}

#[test]
fn what_cannot_run_is_refused_with_the_engine_and_the_setting() {
    let list = |more: &str| format!("- {{name: edge, type: list, {more}}}");
    let open = "addr: ':8093', insecure: true";
    for (yaml, words) in [
        (list(open).replace("edge", "Edge"), "a name of at most"),
        (list(open).replace("edge", "-edge"), "a name of at most"),
        (
            list(open).replace("edge", &"x".repeat(41)),
            "a name of at most",
        ),
        (
            list(open).replace("edge", "iptables"),
            "name is that of a type",
        ),
        (list(open).replace("list", "feed"), "unknown type"),
        (list("insecure: true"), "set addr"),
        (list("addr: x, insecure: true"), "not an address"),
        (list("addr: ':8080', insecure: true"), "own (metrics)"),
        (list("addr: ':8090', insecure: true"), "own (triggers)"),
        (list("addr: ':8093'"), "no credentials"),
        (
            list(&format!("{open}, bearerTokenFile: /s/a")),
            "choose one",
        ),
        (
            list("addr: ':8093', bearerTokenFile: /etc/passwd"),
            "not a file below",
        ),
        (list(&format!("{open}, path: bans")), "not a path"),
        (
            list(&format!("{open}, tlsCertFile: /s/crt")),
            "tlsCertFile needs tlsKeyFile",
        ),
        (
            list(&format!("{open}, clientCAFile: /s/ca")),
            "clientCAFile needs tlsCertFile",
        ),
        (
            list("addr: ':8093'"),
            "set bearerTokenFile, or clientCAFile, or insecure: true",
        ),
        (
            list(&format!("{open}, clientNames: [a]")),
            "clientNames needs clientCAFile",
        ),
        (
            list(&format!("{open}, tlsCertFile: /etc/x, tlsKeyFile: /s/key")),
            "not a file below",
        ),
        (list(&format!("{open}, readers: 0")), "readers \"0\""),
        (
            list(&format!("{open}, ranges: false")),
            "not a setting of the type list",
        ),
        (
            format!(
                "{}\n{}",
                list(&format!(
                    "{open}, path: /x, tlsCertFile: /s/crt, tlsKeyFile: /s/key"
                )),
                list(open).replace("edge", "other")
            ),
            "must be the same",
        ),
        (list(&format!("{open}, unknown: 1")), "unknown"),
        (
            format!("{}\n{}", list(open), list(open)),
            "two engines are named edge",
        ),
        (
            format!("{}\n{}", list(open), list(open).replace("edge", "other")),
            "the same address and path",
        ),
        (
            vec![list(open); MOST + 1].join("\n"),
            "at most 16 are allowed",
        ),
    ] {
        let error = define(&yaml).unwrap_err();
        assert!(error.contains(words), "{yaml}: {error}");
    }
}
