//! The Ingress that a Service requests: a pure function of the Service and the defaults.
//!
//! The annotation [`ANNOTATION`] requests it. Its value may be any text, as in the original program. It may have the
//! settings `host`, `path`, `class` and `port`: `host=a.example.com,path=/x,class=nginx,port=http`.
//! A value without any of them has no meaning. A value with at least one of them is read strictly: a mistyped setting
//! is an error and does not cause an Ingress for the wrong host.

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule,
    IngressServiceBackend, IngressSpec, ServiceBackendPort,
};
use kube_core::{ObjectMeta, Resource};

/// The annotation that requests an Ingress.
pub const ANNOTATION: &str = "ingress/http";

/// The name of the port that is preferred to the first one.
const PREFERRED_PORT: &str = "http";

/// The settings of an Ingress that the annotation does not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The host, `example.com` by default.
    pub host: String,
    /// The prefix of paths, `/` by default.
    pub path: String,
    /// The IngressClass, `nginx` by default.
    pub class: String,
}

/// The reason why a Service cannot have the Ingress that it requests. The text appears in an Event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The annotation has a part that is not a setting.
    #[error(
        "the annotation {ANNOTATION} has {0:?}: the settings are host=, path=, class= and port="
    )]
    UnknownSetting(String),
    /// The annotation has a setting twice.
    #[error("the annotation {ANNOTATION} has {0} twice")]
    Twice(&'static str),
    /// The value of a setting is not valid.
    #[error("the annotation {ANNOTATION} has {setting}={value}: {expected}")]
    Value {
        /// The setting.
        setting: &'static str,
        /// The value.
        value: String,
        /// The form of a valid value.
        expected: &'static str,
    },
    /// The Service has no TCP port.
    #[error("the Service has no TCP port that an Ingress could send requests to")]
    NoPort,
    /// The Service does not have the TCP port that the annotation names.
    #[error("the annotation {ANNOTATION} has port={0}, and the Service has no such TCP port")]
    NoSuchPort(String),
}

/// The settings in an annotation; `None` if it does not set one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Settings {
    host: Option<String>,
    path: Option<String>,
    class: Option<String>,
    port: Option<String>,
}

// === impl Defaults ===

impl Default for Defaults {
    fn default() -> Self {
        Self {
            host: "example.com".to_owned(),
            path: "/".to_owned(),
            class: "nginx".to_owned(),
        }
    }
}

/// The Ingress that `service` requests: `None` if it does not request one, or is being deleted.
///
/// The Ingress has the Service's name and namespace. The Service is its controller, so both are collected together.
///
/// # Errors
/// If the requested Ingress is not possible.
pub fn ingress(service: &Service, defaults: &Defaults) -> Result<Option<Ingress>, Problem> {
    let meta = service.meta();
    let annotation = meta
        .annotations
        .as_ref()
        .and_then(|all| all.get(ANNOTATION));
    let Some(value) = annotation.filter(|_| meta.deletion_timestamp.is_none()) else {
        return Ok(None);
    };
    let settings = Settings::read(value)?;
    let port = port(service, settings.port.as_deref())?;
    let backend = IngressServiceBackend {
        name: meta.name.clone().unwrap_or_default(),
        port: Some(ServiceBackendPort {
            number: Some(port),
            ..ServiceBackendPort::default()
        }),
    };
    let path = HTTPIngressPath {
        path: Some(settings.path.unwrap_or_else(|| defaults.path.clone())),
        path_type: "Prefix".to_owned(),
        backend: IngressBackend {
            service: Some(backend),
            ..IngressBackend::default()
        },
    };
    let rule = IngressRule {
        host: Some(settings.host.unwrap_or_else(|| defaults.host.clone())),
        http: Some(HTTPIngressRuleValue { paths: vec![path] }),
    };
    Ok(Some(Ingress {
        metadata: ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            // The apiVersion is that of the Service, `v1`: with another one the Ingress would never be collected.
            owner_references: service.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: Some(IngressSpec {
            ingress_class_name: Some(settings.class.unwrap_or_else(|| defaults.class.clone())),
            rules: Some(vec![rule]),
            ..IngressSpec::default()
        }),
        status: None,
    }))
}

/// The number of the backend port: the one in the annotation, or the one with the name `http`, or the first.
fn port(service: &Service, named: Option<&str>) -> Result<i32, Problem> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let mut tcp = ports.into_iter().flatten().filter(|port| {
        let protocol = port.protocol.as_deref();
        protocol.is_none_or(|protocol| protocol == "TCP")
    });
    let called = |port: &ServicePort, name: &str| {
        port.name.as_deref() == Some(name) || port.port.to_string() == name
    };
    if let Some(name) = named {
        let found = tcp.find(|port| called(port, name));
        let missing = || Problem::NoSuchPort(name.to_owned());
        return found.map(|port| port.port).ok_or_else(missing);
    }
    let first = tcp.clone().next().ok_or(Problem::NoPort)?;
    Ok(tcp
        .find(|port| port.name.as_deref() == Some(PREFERRED_PORT))
        .unwrap_or(first)
        .port)
}

// === impl Settings ===

impl Settings {
    fn read(value: &str) -> Result<Self, Problem> {
        let mut settings = Self::default();
        let parts = || {
            value
                .split(',')
                .map(str::trim)
                .filter(|part| !part.is_empty())
        };
        let setting = |part: &str| {
            part.split_once('=')
                .map(|(name, _)| name.trim_end().to_owned())
        };
        let known = |part: &str| {
            let name = setting(part);
            name.is_some_and(|name| ["host", "path", "class", "port"].contains(&name.as_str()))
        };
        if !parts().any(known) {
            return Ok(settings);
        }
        for part in parts() {
            let unknown = || Problem::UnknownSetting(part.to_owned());
            let (name, value) = part.split_once('=').ok_or_else(unknown)?;
            let (field, name, check, expected): (_, _, fn(&str) -> bool, _) = match name.trim_end()
            {
                "host" => (&mut settings.host, "host", is_host, HOST),
                "path" => (&mut settings.path, "path", is_path, PATH),
                "class" => (&mut settings.class, "class", is_name, CLASS),
                "port" => (&mut settings.port, "port", |value| !value.is_empty(), PORT),
                _ => return Err(unknown()),
            };
            let value = value.trim_start();
            if !check(value) {
                let value = value.to_owned();
                return Err(Problem::Value {
                    setting: name,
                    value,
                    expected,
                });
            }
            if field.replace(value.to_owned()).is_some() {
                return Err(Problem::Twice(name));
            }
        }
        Ok(settings)
    }
}

const HOST: &str = "expected a DNS name in lower case, such as a.example.com or *.example.com";
const PATH: &str = "expected an absolute path, such as /shop";
const CLASS: &str = "expected the name of an IngressClass, such as nginx";
const PORT: &str = "expected the name or the number of a port of the Service";

/// A DNS name (RFC 1123), with or without a wildcard as its first label. An IP address is not valid, as for Kubernetes.
fn is_host(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    is_name(name) && text.parse::<std::net::IpAddr>().is_err()
}

fn is_name(text: &str) -> bool {
    let is_edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if is_edge(*first) && is_edge(*last))
            && bytes.iter().all(|byte| is_edge(*byte) || *byte == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Whether Kubernetes accepts the text as a path of the type Prefix.
fn is_path(text: &str) -> bool {
    let refused = ["//", "/./", "/../", "%2f", "%2F"];
    text.starts_with('/')
        && !refused.iter().any(|part| text.contains(part))
        && !text.ends_with("/.")
        && !text.ends_with("/..")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(annotation: Option<&str>, ports: Value) -> Service {
        let mut metadata = json!({"name": "web", "namespace": "shop", "uid": "u-1"});
        if let Some(value) = annotation {
            metadata["annotations"] = json!({ANNOTATION: value});
        }
        let object = json!({"metadata": metadata, "spec": {"ports": ports}});
        serde_json::from_value(object).unwrap()
    }

    fn eighty() -> Value {
        json!([{"port": 80}])
    }

    /// `class host path port`, or the problem.
    fn outcome(annotation: &str, ports: Value) -> String {
        let made = ingress(&service(Some(annotation), ports), &Defaults::default());
        let ingress = match made {
            Ok(ingress) => serde_json::to_value(ingress).unwrap(),
            Err(problem) => return problem.to_string(),
        };
        let rule = &ingress["spec"]["rules"][0];
        let path = &rule["http"]["paths"][0];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let class = text(&ingress["spec"]["ingressClassName"]);
        let port = &path["backend"]["service"]["port"]["number"];
        format!(
            "{class} {} {} {port}",
            text(&rule["host"]),
            text(&path["path"])
        )
    }

    #[test]
    fn an_annotated_service_requests_the_ingress_of_the_original() {
        let made = ingress(&service(Some("on"), eighty()), &Defaults::default()).unwrap();
        let expected = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "u-1", "controller": true},
                ],
            },
            "spec": {
                "ingressClassName": "nginx",
                "rules": [{
                    "host": "example.com",
                    "http": {"paths": [{
                        "path": "/",
                        "pathType": "Prefix",
                        "backend": {"service": {"name": "web", "port": {"number": 80}}},
                    }]},
                }],
            },
        });
        assert_eq!(serde_json::to_value(made).unwrap(), expected);
    }

    #[test]
    fn a_service_without_the_annotation_or_during_its_deletion_requests_none() {
        assert_eq!(
            ingress(&service(None, eighty()), &Defaults::default()),
            Ok(None)
        );
        let mut leaving = service(Some("on"), eighty());
        let then = "2026-01-01T00:00:00Z";
        leaving.metadata.deletion_timestamp = serde_json::from_value(json!(then)).unwrap();
        assert_eq!(ingress(&leaving, &Defaults::default()), Ok(None));
    }

    #[test]
    fn an_annotation_may_have_settings() {
        let free = "nginx example.com / 80";
        for (annotation, expected) in [
            ("", free),
            ("on", free),
            ("true", free),
            ("any text, with = and ,", free),
            ("owner=me", free),
            ("host=a.example.com", "nginx a.example.com / 80"),
            (
                "host=*.example.com,class=traefik",
                "traefik *.example.com / 80",
            ),
            (" path = /shop , port = 80 ,", "nginx example.com /shop 80"),
            ("path=/", free),
            (
                "host=a.example.com,path=/x,class=nginx,port=80",
                "nginx a.example.com /x 80",
            ),
        ] {
            assert_eq!(outcome(annotation, eighty()), expected, "{annotation:?}");
        }
    }

    #[test]
    fn an_annotation_with_a_wrong_setting_is_refused() {
        for (annotation, expected) in [
            (
                "host=a.example.com,pth=/x",
                "has \"pth=/x\": the settings are",
            ),
            (
                "host=a.example.com,nginx",
                "has \"nginx\": the settings are",
            ),
            ("host=a,host=b", "has host twice"),
            ("host=", "has host=: expected a DNS name"),
            (
                "host=A.example.com",
                "has host=A.example.com: expected a DNS name",
            ),
            ("host=192.0.2.1", "has host=192.0.2.1: expected a DNS name"),
            ("host=*", "has host=*: expected a DNS name"),
            (
                "host=-a.example.com",
                "has host=-a.example.com: expected a DNS name",
            ),
            ("path=shop", "has path=shop: expected an absolute path"),
            ("path=/a//b", "has path=/a//b: expected an absolute path"),
            ("path=/a/..", "has path=/a/..: expected an absolute path"),
            (
                "class=my class",
                "has class=my class: expected the name of an IngressClass",
            ),
            ("port=", "has port=: expected the name or the number"),
            (
                "port=https",
                "has port=https, and the Service has no such TCP port",
            ),
            (
                "port=8080",
                "has port=8080, and the Service has no such TCP port",
            ),
        ] {
            let problem = outcome(annotation, eighty());
            assert!(problem.contains(expected), "{annotation:?}: {problem}");
        }
    }

    #[test]
    fn the_port_is_the_one_of_the_annotation_or_http_or_the_first_of_tcp() {
        let ports = json!([
            {"name": "dns", "protocol": "UDP", "port": 53},
            {"name": "admin", "protocol": "TCP", "port": 9000},
            {"name": "http", "port": 8080},
        ]);
        for (annotation, expected) in [
            ("on", "nginx example.com / 8080"),
            ("port=admin", "nginx example.com / 9000"),
            ("port=9000", "nginx example.com / 9000"),
        ] {
            assert_eq!(
                outcome(annotation, ports.clone()),
                expected,
                "{annotation:?}"
            );
        }
        let first = json!([{"name": "a", "port": 81}, {"name": "b", "port": 82}]);
        assert_eq!(outcome("on", first), "nginx example.com / 81");
        for ports in [
            json!([{"protocol": "UDP", "port": 53}]),
            json!([]),
            Value::Null,
        ] {
            assert!(outcome("on", ports).contains("no TCP port that"));
        }
        let udp = outcome(
            "port=dns",
            json!([{"name": "dns", "protocol": "UDP", "port": 53}, {"port": 80}]),
        );
        assert!(udp.contains("no such TCP port"), "{udp}");
    }
}
