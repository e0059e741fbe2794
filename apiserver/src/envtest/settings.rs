//! The flags of `kube-apiserver` that have an effect, and the settings that they give.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::flags::{Given, Program, Syntax};
use crate::http::duration;
use crate::kinds::ServiceRange;

pub(super) const PROGRAM: Program = Program {
    name: "kube-apiserver",
    syntax: Syntax::Long,
    table: include_str!("kube_apiserver_flags.txt"),
    honoured: &[
        (
            "anonymous-auth",
            "Whether requests without credentials are those of system:anonymous. Default: true, unless everything is allowed.",
        ),
        (
            "api-audiences",
            "The audiences of this API in service-account tokens. Default: the issuer.",
        ),
        (
            "authorization-mode",
            "RBAC checks the stored roles; AlwaysAllow, the default, allows everything to users with credentials. Other modes allow nothing beside RBAC.",
        ),
        (
            "bind-address",
            "The address to listen on. Default: 127.0.0.1; a real server listens on all.",
        ),
        (
            "cert-dir",
            "The directory of apiserver.crt and apiserver.key, which are made if both are missing. Default: /var/run/kubernetes.",
        ),
        (
            "client-ca-file",
            "The authorities of client certificates: the common name is the user, organizations are groups.",
        ),
        (
            "disable-admission-plugins",
            "Leaves out webhooks, policies or NamespaceLifecycle; other plugins of a real server are not there.",
        ),
        (
            "enable-admission-plugins",
            "Names of plugins; those of webhooks, policies and NamespaceLifecycle are on.",
        ),
        (
            "etcd-prefix",
            "Separates API servers with one etcd. Default: /registry.",
        ),
        (
            "etcd-servers",
            "The etcd of this package, whose data directory keeps the objects. Without it, or with another etcd, they are in memory.",
        ),
        ("event-ttl", "Time for which Events are kept. Default: 1h."),
        (
            "feature-gates",
            "WatchList=false turns streaming lists off; other gates have no effect.",
        ),
        ("profiling", "Accepted: there are no profiles."),
        ("secure-port", "The port. Default: 6443."),
        (
            "service-account-issuer",
            "The issuer of service-account tokens; more values are accepted, too.",
        ),
        (
            "service-account-key-file",
            "Keys or certificates that verify service-account tokens. Default: the signing key.",
        ),
        (
            "service-account-signing-key-file",
            "The key that signs service-account tokens, RSA or ECDSA. Default: a key of this process.",
        ),
        (
            "service-cluster-ip-range",
            "Cluster addresses of Services, IPv4. Default: 10.96.0.0/16.",
        ),
        (
            "tls-cert-file",
            "The certificate of the server with its chain.",
        ),
        ("tls-private-key-file", "The key of the certificate."),
        (
            "token-auth-file",
            "A file of lines TOKEN,USER,UID,\"GROUP,GROUP\".",
        ),
        ("v", "4 and more log each request, 8 and more everything."),
        ("version", "Print the version and quit."),
    ],
};

/// The admission plugins of Kubernetes 1.36.
const PLUGINS: &[&str] = &[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "JobValidation",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NamespaceLifecycle",
    "NodeDeclaredFeatureValidator",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "PodGroupProtection",
    "PodGroupWorkloadExists",
    "PodNodeSelector",
    "PodResizeValidator",
    "PodSecurity",
    "PodTolerationRestriction",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];
const MODES: &[&str] = &[
    "ABAC",
    "AlwaysAllow",
    "AlwaysDeny",
    "Node",
    "RBAC",
    "Webhook",
];
const DEFAULT_CERTIFICATES: &str = "/var/run/kubernetes";
const DEFAULT_PREFIX: &str = "/registry";
const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The certificate of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// These files.
    Files { chain: PathBuf, key: PathBuf },
    /// `apiserver.crt` and `apiserver.key` in this directory.
    Directory(PathBuf),
}

/// The command line of `kube-apiserver`, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) address: SocketAddr,
    pub(super) serving: Serving,
    pub(super) client_authorities: Option<PathBuf>,
    pub(super) tokens: Option<PathBuf>,
    pub(super) rbac: bool,
    pub(super) anonymous: bool,
    pub(super) issuers: Vec<String>,
    pub(super) audiences: Vec<String>,
    pub(super) signing_key: Option<PathBuf>,
    pub(super) account_keys: Vec<PathBuf>,
    pub(super) event_ttl: Option<Duration>,
    pub(super) service_range: ServiceRange,
    /// Addresses of etcd; empty: none.
    pub(super) etcd: Vec<String>,
    pub(super) etcd_prefix: String,
    pub(super) without_admission: Vec<String>,
    pub(super) streaming_lists: bool,
    pub(super) verbosity: i64,
}

// === impl Settings ===

impl Settings {
    /// The settings of the flags.
    ///
    /// # Errors
    /// Every flag whose value cannot be used.
    pub(super) fn of(given: &Given) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let path = |name: &str| {
            let value = given.value(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        let port = port(given, &mut problems);
        let serving = match (path("tls-cert-file"), path("tls-private-key-file")) {
            (Some(chain), Some(key)) => Serving::Files { chain, key },
            (None, None) => {
                let directory = path("cert-dir").unwrap_or_else(|| DEFAULT_CERTIFICATES.into());
                Serving::Directory(directory)
            }
            _ => {
                problems.push(
                    "--tls-cert-file and --tls-private-key-file must be specified together".into(),
                );
                Serving::Directory(PathBuf::new())
            }
        };
        for mode in given.items("authorization-mode") {
            if !MODES.contains(&mode) {
                problems.push(format!("authorization-mode {mode:?} is not a valid mode"));
            }
        }
        let mut modes = given.items("authorization-mode").peekable();
        let rbac = modes.peek().is_some() && modes.all(|mode| mode != "AlwaysAllow");
        for flag in ["enable-admission-plugins", "disable-admission-plugins"] {
            for name in given.items(flag).filter(|name| !PLUGINS.contains(name)) {
                problems.push(format!("{flag} plugin {name:?} is unknown"));
            }
        }
        let service_range = match given.value("service-cluster-ip-range").unwrap_or_default() {
            "" => ServiceRange::default(),
            text => text.parse().unwrap_or_else(|why| {
                problems.push(format!("--service-cluster-ip-range: {why}"));
                ServiceRange::default()
            }),
        };
        let bind = given
            .value("bind-address")
            .and_then(|text| text.parse().ok());
        let issuers = or_default(given.values("service-account-issuer").to_vec());
        let audiences: Vec<String> = given.items("api-audiences").map(str::to_owned).collect();
        let settings = Self {
            address: (bind.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port).into(),
            serving,
            client_authorities: path("client-ca-file"),
            tokens: path("token-auth-file"),
            rbac,
            // A server that allows everything refuses requests without credentials. (kube-apiserver: `ApplyAuthorization`.)
            anonymous: rbac && given.is_set("anonymous-auth").unwrap_or(true),
            audiences: if audiences.is_empty() {
                issuers.clone()
            } else {
                audiences
            },
            issuers,
            signing_key: path("service-account-signing-key-file"),
            account_keys: given
                .values("service-account-key-file")
                .iter()
                .map(PathBuf::from)
                .collect(),
            event_ttl: given
                .value("event-ttl")
                .and_then(|text| duration::parse(text).ok()),
            service_range,
            etcd: given.items("etcd-servers").map(str::to_owned).collect(),
            etcd_prefix: given
                .value("etcd-prefix")
                .unwrap_or(DEFAULT_PREFIX)
                .to_owned(),
            without_admission: given
                .items("disable-admission-plugins")
                .map(str::to_owned)
                .collect(),
            streaming_lists: !given
                .items("feature-gates")
                .filter_map(|gate| gate.split_once('='))
                .any(|(name, value)| {
                    name.trim_start_matches("kube:") == "WatchList"
                        && value.eq_ignore_ascii_case("false")
                }),
            verbosity: given
                .value("v")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
        };
        if problems.is_empty() {
            Ok(settings)
        } else {
            Err(problems)
        }
    }
}

fn port(given: &Given, problems: &mut Vec<String>) -> u16 {
    let text = given.value("secure-port").unwrap_or("6443");
    match text.parse() {
        Ok(port) if port > 0 => port,
        _ => {
            problems.push(format!(
                "--secure-port {text} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
            ));
            0
        }
    }
}

fn or_default(issuers: Vec<String>) -> Vec<String> {
    if issuers.is_empty() {
        vec![DEFAULT_ISSUER.to_owned()]
    } else {
        issuers
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::Line;
    use super::*;

    fn settings(line: &str) -> Result<Settings, Vec<String>> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match PROGRAM.read(&arguments).map_err(|error| vec![error])? {
            Line::Run(given) => Settings::of(&given),
            Line::Help => Err(vec!["help".to_owned()]),
        }
    }

    /// The arguments of envtest 0.15 to 0.25, which are the same.
    const ENVTEST: &str = "--allow-privileged=true --authorization-mode=RBAC --bind-address=127.0.0.1 --cert-dir=/tmp/c \
        --client-ca-file=/tmp/c/client-cert-auth-ca.crt --disable-admission-plugins=ServiceAccount \
        --etcd-servers=http://127.0.0.1:41 --secure-port=42 --service-account-issuer=https://127.0.0.1:42/ \
        --service-account-key-file=/tmp/c/sa-signer.crt --service-account-signing-key-file=/tmp/c/sa-signer.key \
        --service-cluster-ip-range=10.0.0.0/24";

    #[test]
    fn the_flags_of_envtest_are_understood() {
        let settings = settings(ENVTEST).unwrap();
        assert_eq!(settings.address, ([127, 0, 0, 1], 42).into());
        assert_eq!(settings.serving, Serving::Directory("/tmp/c".into()));
        assert_eq!(
            settings.client_authorities,
            Some("/tmp/c/client-cert-auth-ca.crt".into())
        );
        assert!(settings.rbac && settings.anonymous && settings.streaming_lists);
        assert_eq!(settings.issuers, ["https://127.0.0.1:42/"]);
        assert_eq!(settings.audiences, settings.issuers);
        assert_eq!(
            settings.account_keys,
            [PathBuf::from("/tmp/c/sa-signer.crt")]
        );
        assert_eq!(settings.service_range, "10.0.0.0/24".parse().unwrap());
        assert_eq!(settings.etcd, ["http://127.0.0.1:41"]);
        assert_eq!(settings.without_admission, ["ServiceAccount"]);
    }

    #[test]
    fn flags_that_projects_add_are_accepted() {
        let more = "--audit-policy-file=/p --audit-log-path=- --audit-log-maxage 3 --feature-gates=A=true,WatchList=false \
            --runtime-config=api/all=true --advertise-address=127.0.0.1 --endpoint-reconciler-type=none -v 4 --watch-cache=false \
            --enable-admission-plugins=PodSecurity,MutatingAdmissionWebhook --max-requests-inflight=0 --request-timeout=5m0s \
            --event-ttl=2h --profiling=false --shutdown-delay-duration=0s --goaway-chance=0.02 --emulated-version=1.35";
        let settings = settings(&format!("{ENVTEST} {more}")).unwrap();
        assert_eq!(settings.event_ttl, Some(Duration::from_secs(7200)));
        assert!(!settings.streaming_lists);
        assert_eq!(settings.verbosity, 4);
    }

    #[test]
    fn everything_is_allowed_to_users_only_and_without_rbac() {
        for (line, expected) in [
            ("", (false, false)),
            (
                "--authorization-mode=AlwaysAllow --anonymous-auth=true",
                (false, false),
            ),
            ("--authorization-mode=Node,RBAC", (true, true)),
            (
                "--authorization-mode=RBAC --anonymous-auth=false",
                (true, false),
            ),
            ("--authorization-mode=RBAC,AlwaysAllow", (false, false)),
            ("--authorization-mode=Webhook", (true, true)),
        ] {
            let settings = settings(line).unwrap();
            assert_eq!((settings.rbac, settings.anonymous), expected, "{line}");
        }
    }

    #[test]
    fn all_problems_of_a_line_are_listed() {
        let line = "--secure-port=0 --tls-cert-file=/c --authorization-mode=Foo --enable-admission-plugins=Bar \
            --service-cluster-ip-range=x";
        let problems = settings(line).unwrap_err();
        let expected = [
            "--secure-port 0 must be",
            "--tls-cert-file and",
            "authorization-mode \"Foo\"",
            "enable-admission-plugins plugin \"Bar\"",
            "--service-cluster-ip-range: ",
        ];
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
