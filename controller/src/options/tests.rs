use super::*;
use crate::fake::Fake;

const PROGRAM: Program = Program::new("greeter", "1.2.0");

#[test]
fn the_user_agent_names_program_and_version() {
    let agent = PROGRAM.user_agent();
    assert!(agent.starts_with("greeter/1.2.0 ("), "{agent}");
    assert!(agent.contains(std::env::consts::OS), "{agent}");
}

#[tokio::test]
async fn an_election_needs_a_namespace() {
    let builder = || Manager::builder(Fake::default().client());
    let mut options = Options {
        leader_elect: true,
        ..Options::default()
    };
    let nowhere = options.apply(PROGRAM, builder(), || None);
    assert!(matches!(nowhere, Err(Error::NoNamespace)));
    for (said, pod, expected) in [
        (None, Some("pods"), "pods"),
        (Some("said"), Some("pods"), "said"),
        (Some(""), Some("pods"), "pods"),
    ] {
        options.leader_election_namespace = said.map(str::to_owned);
        let built = options.apply(PROGRAM, builder(), || pod.map(str::to_owned));
        let text = format!("{:?}", built.unwrap());
        assert!(text.contains(&format!("namespace: {expected:?}")), "{text}");
        assert!(text.contains("name: \"greeter\""), "{text}");
    }
}

#[tokio::test]
async fn several_namespaces_have_commas_between_them() {
    for (said, expected) in [
        (None, &[][..]),
        (Some(""), &[]),
        (Some("a"), &["a"]),
        (Some("a, b,"), &["a", "b"]),
    ] {
        let options = Options {
            watch_namespace: said.map(str::to_owned),
            ..Options::default()
        };
        let builder = Manager::builder(Fake::default().client());
        let built = options.apply(PROGRAM, builder, || None).unwrap();
        let mut one_by_one = Manager::builder(Fake::default().client());
        for namespace in expected {
            one_by_one = one_by_one.namespace(*namespace);
        }
        assert_eq!(format!("{built:?}"), format!("{one_by_one:?}"), "{said:?}");
    }
}

#[cfg(feature = "clap")]
mod flags {
    #[cfg(feature = "webhook")]
    use std::process::Command;

    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(flags: &[&str]) -> Options {
        let all = ["greeter"].iter().chain(flags);
        Arguments::try_parse_from(all).unwrap().options
    }

    #[test]
    fn each_is_named_as_kubebuilder_names_it_and_explained() {
        Arguments::command().debug_assert();
        let command = Arguments::command();
        for name in [
            "kubeconfig",
            "metrics-bind-address",
            "health-probe-bind-address",
            "leader-elect",
            "metrics-secure",
            "metrics-cert-path",
            "metrics-cert-name",
            "metrics-cert-key",
            "enable-http2",
            "zap-devel",
            "zap-stacktrace-level",
            "zap-time-encoding",
        ] {
            let found = command
                .get_arguments()
                .find(|argument| argument.get_long() == Some(name));
            assert!(
                found.is_some_and(|found| found.get_help().is_some()),
                "{name}"
            );
        }
    }

    #[test]
    fn without_flags_the_defaults_are_kubebuilders() {
        let options = parsed(&[]);
        assert_eq!(options.metrics.bind_address.address(), None);
        assert!(options.metrics.server().is_none());
        assert!(options.metrics.secure && !options.metrics.enable_http2);
        let health = options.health_probe_bind_address.address().unwrap();
        assert!(health.port() == 8081 && health.ip().is_unspecified());
        assert!(!options.leader_elect);
    }

    #[cfg(feature = "webhook")]
    #[test]
    fn the_webhook_server_is_as_the_flags_say() {
        let shown = |flags: &[&str]| format!("{:?}", parsed(flags).webhook.server());
        let default = shown(&[]);
        assert!(default.contains(":9443"), "{default}");
        assert!(
            default.contains("/tmp/k8s-webhook-server/serving-certs/tls.crt"),
            "{default}"
        );
        let other = shown(&[
            "--webhook-port=8443",
            "--webhook-cert-path=/certs",
            "--webhook-cert-name=a.crt",
            "--webhook-cert-key=a.key",
        ]);
        assert!(other.contains(":8443"), "{other}");
        assert!(
            other.contains(r#"chain: "/certs/a.crt", key: "/certs/a.key""#),
            "{other}"
        );
    }

    /// The variables of a process do not change, so one with an empty variable is another process.
    #[cfg(feature = "webhook")]
    #[test]
    fn an_empty_variable_leaves_the_webhook_server_on() {
        const TEST: &str = "options::tests::flags::an_empty_variable_leaves_the_webhook_server_on";
        const VARIABLE: &str = "ENABLE_WEBHOOKS";
        if std::env::var(VARIABLE).is_ok_and(|value| value.is_empty()) {
            assert!(parsed(&[]).webhook.enable);
            return;
        }
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", TEST]).env(VARIABLE, "");
        let output = String::from_utf8(process.output().unwrap().stdout).unwrap();
        assert!(output.contains("1 passed"), "{output}");
    }

    #[cfg(feature = "webhook")]
    #[tokio::test]
    async fn a_webhook_server_that_is_off_takes_no_port_and_needs_no_certificate() {
        // No files of certificates exist.
        let built = async |flags: &[&str]| {
            let options = parsed(flags);
            let builder = Manager::builder(Fake::default().client());
            let builder = options.apply(PROGRAM, builder, || None).unwrap();
            let builder = builder.webhooks(options.webhook.server());
            builder
                .build()
                .await
                .map(|manager| manager.webhook_address())
        };
        let missing = "--webhook-cert-path=/no/such/directory";
        let health = "--health-probe-bind-address=0";
        let off = built(&["--enable-webhooks=false", missing, health]).await;
        assert_eq!(off.unwrap(), None);
        assert!(built(&[missing, health]).await.is_err());
    }

    #[test]
    fn what_is_on_or_off_is_said_alone_or_with_a_value() {
        let read = |flag: &str| {
            let all = ["greeter", flag];
            let options = Arguments::try_parse_from(all).ok()?.options;
            let metrics = options.metrics;
            Some((options.leader_elect, metrics.enable_http2, metrics.secure))
        };
        for (flag, expected) in [
            ("--leader-elect", Some((true, false, true))),
            ("--leader-elect=true", Some((true, false, true))),
            ("--leader-elect=True", Some((true, false, true))),
            ("--leader-elect=1", Some((true, false, true))),
            ("--leader-elect=false", Some((false, false, true))),
            ("--enable-http2", Some((false, true, true))),
            ("--enable-http2=true", Some((false, true, true))),
            ("--enable-http2=false", Some((false, false, true))),
            ("--enable-http2=F", Some((false, false, true))),
            ("--metrics-secure", Some((false, false, true))),
            ("--metrics-secure=0", Some((false, false, false))),
            ("--metrics-secure=false", Some((false, false, false))),
            ("--leader-elect=maybe", None),
        ] {
            assert_eq!(read(flag), expected, "{flag}");
        }
        let both = Arguments::try_parse_from(["greeter", "--leader-elect", "false"]);
        assert!(both.is_err(), "as in Go, a value needs its =");
    }

    #[test]
    fn the_metrics_server_is_as_the_flags_say() {
        let shown = |flags: &[&str]| format!("{:?}", parsed(flags).metrics.server());
        let plain = shown(&[
            "--metrics-bind-address=127.0.0.1:1",
            "--metrics-secure=false",
        ]);
        assert!(
            plain.contains("secure: None") && plain.contains("protected: false"),
            "{plain}"
        );
        let signed = shown(&["--metrics-bind-address=:8443", "--enable-http2"]);
        assert!(signed.contains("SelfSigned), http2: true"), "{signed}");
        assert!(signed.contains("protected: true"), "{signed}");
        let files = shown(&[
            "--metrics-bind-address=:8443",
            "--metrics-secure",
            "--metrics-cert-path=/certs",
            "--metrics-cert-name=a.crt",
            "--metrics-cert-key=a.key",
        ]);
        assert!(
            files.contains(r#"chain: "/certs/a.crt", key: "/certs/a.key""#),
            "{files}"
        );
        assert!(files.contains("client_authorities: None"), "{files}");
        let clients = shown(&[
            "--metrics-bind-address=:8443",
            "--metrics-client-ca-file=/certs/ca.crt",
        ]);
        assert!(
            clients.contains(r#"client_authorities: Some("/certs/ca.crt")"#),
            "{clients}"
        );
    }

    #[test]
    fn the_log_has_its_flags_and_zaps() {
        let options = parsed(&["--zap-log-level=debug", "--zap-encoder=json"]);
        assert_eq!(options.log.log_level.as_deref(), Some("debug"));
        assert_eq!(options.log.log_format, Some(LogFormat::Json));
        let options = parsed(&["--log-format=console"]);
        assert_eq!(
            (options.log.log_level, options.log.log_format),
            (None, Some(LogFormat::Text))
        );
    }

    #[test]
    fn every_flag_that_zap_binds_is_taken() {
        let options = parsed(&[
            "--zap-devel=true",
            "--zap-encoder=console",
            "--zap-log-level=2",
            "--zap-stacktrace-level=panic",
            "--zap-time-encoding=RFC3339nano",
        ]);
        assert_eq!(options.log.zap_devel, Some(true));
        assert_eq!(parsed(&["--zap-devel"]).log.zap_devel, Some(true));
        assert_eq!(parsed(&["--zap-devel=false"]).log.zap_devel, Some(false));
        for wrong in ["--zap-stacktrace-level=loud", "--zap-time-encoding=sundial"] {
            assert!(Arguments::try_parse_from(["greeter", wrong]).is_err());
        }
    }
}
