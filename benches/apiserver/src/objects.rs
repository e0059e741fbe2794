//! The objects that the bench writes: their paths, bodies and patches.

use crate::template::{Fill, Template};

/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "default";

/// A kind of objects, and how they are written.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// As in the rows of the table.
    pub(crate) title: &'static str,
    /// The path of the collection.
    pub(crate) path: String,
    /// A whole object, for `POST` and `PUT`.
    pub(crate) body: Template,
    /// A merge patch that changes it.
    pub(crate) merge: Template,
    /// An apply patch: the fields that one manager owns.
    pub(crate) apply: Template,
}

/// The definition of the custom kind with 20 rules in CEL.
pub(crate) fn definition() -> String {
    let rules: Vec<String> = RULES
        .iter()
        .map(|(rule, message)| serde_json::json!({"rule": rule, "message": message}).to_string())
        .collect();
    DEFINITION.replace("RULES", &rules.join(","))
}

/// The path of definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

// === impl Kind ===

impl Kind {
    /// A ConfigMap of 1 KB.
    pub(crate) fn config_map() -> Self {
        let text = "one line of configuration, as long as lines are; ".repeat(16);
        Self::new(
            "ConfigMap 1 KB",
            &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"),
            r#"{"apiVersion":"v1","kind":"ConfigMap",META,"data":{"mode":"active","step":"@STEP@","text":"TEXT"}}"#
                .replace("TEXT", &text)
                .as_str(),
            r#"{"data":{"step":"@STEP@"}}"#,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"@NAME@"},"data":{"applied":"@STEP@"}}"#,
        )
    }

    /// A Pod of 4 KB: two containers with 21 variables each, probes, volumes.
    pub(crate) fn pod() -> Self {
        Self::new(
            "Pod 4 KB",
            &format!("/api/v1/namespaces/{NAMESPACE}/pods"),
            &pod(20),
            r#"{"metadata":{"annotations":{"bench/step":"@STEP@"}}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"@NAME@","annotations":{"bench/applied":"@STEP@"}}}"#,
        )
    }

    /// A Pod that is about 2 KB as it is stored, its managed fields included.
    pub(crate) fn small_pod() -> Self {
        Self::new(
            "Pod 2 KB",
            &format!("/api/v1/namespaces/{NAMESPACE}/pods"),
            SMALL_POD,
            r#"{"metadata":{"annotations":{"bench/step":"@STEP@"}}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"@NAME@","annotations":{"bench/applied":"@STEP@"}}}"#,
        )
    }

    /// A custom resource of [`definition`].
    pub(crate) fn custom() -> Self {
        Self::new(
            "custom resource, 20 CEL rules",
            &format!("/apis/bench.example.com/v1/namespaces/{NAMESPACE}/gateways"),
            r#"{"apiVersion":"bench.example.com/v1","kind":"Gateway",META,"spec":{"host":"g.example.com","mode":"Active","minReplicas":1,"maxReplicas":9,"replicas":3,"step":"@STEP@","listeners":[{"name":"http","port":80,"protocol":"HTTP"},{"name":"https","port":443,"protocol":"HTTPS","secret":"cert"},{"name":"admin","port":9090,"protocol":"HTTP"}],"routes":[{"path":"/","weight":60},{"path":"/api","weight":30},{"path":"/static","weight":10}],"limits":{"requests":100,"burst":200},"tags":{"team":"edge","tier":"front"}}}"#,
            r#"{"spec":{"step":"@STEP@"}}"#,
            r#"{"apiVersion":"bench.example.com/v1","kind":"Gateway","metadata":{"name":"@NAME@"},"spec":{"applied":"@STEP@"}}"#,
        )
    }

    fn new(title: &'static str, path: &str, body: &str, merge: &str, apply: &str) -> Self {
        Self {
            title,
            path: path.to_owned(),
            body: Template::new(&body.replace("META", META)),
            merge: Template::new(merge),
            apply: Template::new(apply),
        }
    }

    /// The path of one object.
    pub(crate) fn object(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// The length of a body, bytes.
    pub(crate) fn size(&self) -> usize {
        let fill = Fill {
            name: "b-0-000000",
            ..Fill::default()
        };
        self.body.fill(fill).len()
    }
}

const META: &str = r#""metadata":{"name":"@NAME@","namespace":"default","resourceVersion":"@VERSION@","labels":{"app.kubernetes.io/name":"bench","app.kubernetes.io/part-of":"measurements","ten":"t@TEN@"},"annotations":{"bench/step":"@STEP@"}}"#;

const SMALL_POD: &str = r#"{"apiVersion":"v1","kind":"Pod",META,"spec":{"containers":[{"name":"main","image":"registry.example.com/app:v1","ports":[{"name":"http","containerPort":8080}],"resources":{"limits":{"memory":"64Mi"}}}]}}"#;

/// A Pod whose containers have `variables` each.
fn pod(variables: usize) -> String {
    let environment: Vec<String> = (0..variables)
        .map(|at| format!(r#"{{"name":"SETTING_{at:02}","value":"value of setting {at:02}"}}"#))
        .collect();
    let environment = environment.join(",");
    let container = |name: &str, port: u16| {
        format!(
            r#"{{"name":"{name}","image":"registry.example.com/{name}:v1.2.3","args":["--listen=:{port}","--level=info","--workers=4"],"ports":[{{"name":"{name}","containerPort":{port}}}],"env":[{environment},{{"name":"POD_NAME","valueFrom":{{"fieldRef":{{"fieldPath":"metadata.name"}}}}}}],"resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}},"limits":{{"memory":"128Mi"}}}},"readinessProbe":{{"httpGet":{{"path":"/ready","port":{port}}},"periodSeconds":5}},"livenessProbe":{{"httpGet":{{"path":"/live","port":{port}}},"initialDelaySeconds":10}},"volumeMounts":[{{"name":"config","mountPath":"/etc/config"}},{{"name":"cache","mountPath":"/var/cache"}}],"securityContext":{{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{{"drop":["ALL"]}}}}}}"#
        )
    };
    let (main, side) = (container("main", 8080), container("proxy", 9090));
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod",META,"spec":{{"containers":[{main},{side}],"volumes":[{{"name":"config","configMap":{{"name":"settings"}}}},{{"name":"cache","emptyDir":{{}}}}],"tolerations":[{{"key":"example.com/dedicated","operator":"Equal","value":"bench","effect":"NoSchedule"}}],"securityContext":{{"runAsNonRoot":true,"runAsUser":1000}}}}}}"#
    )
}

const DEFINITION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gateways.bench.example.com"},"spec":{"group":"bench.example.com","scope":"Namespaced","names":{"plural":"gateways","singular":"gateway","kind":"Gateway"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","required":["host"],"x-kubernetes-validations":[RULES],"properties":{"host":{"type":"string","maxLength":253},"mode":{"type":"string","enum":["Active","Passive"]},"step":{"type":"string","maxLength":20},"applied":{"type":"string","maxLength":20},"minReplicas":{"type":"integer","minimum":0},"maxReplicas":{"type":"integer","maximum":1000},"replicas":{"type":"integer","default":1},"listeners":{"type":"array","maxItems":16,"items":{"type":"object","required":["name","port"],"properties":{"name":{"type":"string","maxLength":63},"port":{"type":"integer","minimum":1,"maximum":65535},"protocol":{"type":"string","enum":["HTTP","HTTPS","TCP"],"default":"TCP"},"secret":{"type":"string","maxLength":63}}}},"routes":{"type":"array","maxItems":16,"items":{"type":"object","required":["path"],"properties":{"path":{"type":"string","maxLength":255},"weight":{"type":"integer","minimum":0,"maximum":100}}}},"limits":{"type":"object","properties":{"requests":{"type":"integer"},"burst":{"type":"integer"}}},"tags":{"type":"object","maxProperties":16,"additionalProperties":{"type":"string","maxLength":63}}}},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}},"subresources":{"status":{}}}]}}"#;

/// Rules as definitions have them: comparisons, texts, lists, maps, patterns, transitions.
const RULES: [(&str, &str); 20] = [
    (
        "self.minReplicas <= self.maxReplicas",
        "minReplicas above maxReplicas",
    ),
    ("self.replicas >= self.minReplicas", "too few replicas"),
    ("self.replicas <= self.maxReplicas", "too many replicas"),
    ("self.host.size() > 0", "host is empty"),
    (
        "self.host.endsWith('.example.com')",
        "host is outside of example.com",
    ),
    ("!self.host.startsWith('-')", "host begins with a hyphen"),
    (
        "self.host.matches('^[a-z0-9.-]+$')",
        "host has other characters",
    ),
    (
        "self.mode == 'Active' || self.replicas == 0",
        "a passive gateway has no replicas",
    ),
    (
        "has(self.listeners) && self.listeners.size() > 0",
        "no listeners",
    ),
    (
        "self.listeners.all(l, l.port > 0)",
        "a port is not positive",
    ),
    (
        "self.listeners.all(l, l.protocol != 'HTTPS' || has(l.secret))",
        "HTTPS needs a secret",
    ),
    (
        "self.listeners.exists(l, l.protocol == 'HTTP')",
        "no listener of HTTP",
    ),
    (
        "self.listeners.exists_one(l, l.name == 'admin')",
        "not one listener admin",
    ),
    (
        "self.listeners.map(l, l.name).size() == self.listeners.size()",
        "names are missing",
    ),
    (
        "self.routes.all(r, r.path.startsWith('/'))",
        "a path is not absolute",
    ),
    (
        "self.routes.filter(r, r.weight > 50).size() <= 1",
        "more than one main route",
    ),
    (
        "!has(self.limits) || self.limits.burst >= self.limits.requests",
        "burst below requests",
    ),
    ("self.tags.all(k, k.size() < 64)", "a tag is too long"),
    ("'team' in self.tags", "no team"),
    ("self.host == oldSelf.host", "host is immutable"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_sizes_of_their_titles() {
        for (kind, from, to) in [
            (Kind::config_map(), 1000, 1200),
            (Kind::pod(), 3900, 4300),
            (Kind::custom(), 600, 1000),
        ] {
            assert!(
                (from..to).contains(&kind.size()),
                "{}: {}",
                kind.title,
                kind.size()
            );
        }
    }

    #[test]
    fn bodies_and_the_definition_are_json() -> Result<(), serde_json::Error> {
        let fill = Fill {
            name: "a",
            ..Fill::default()
        };
        for kind in [
            Kind::config_map(),
            Kind::pod(),
            Kind::small_pod(),
            Kind::custom(),
        ] {
            for template in [&kind.body, &kind.merge, &kind.apply] {
                serde_json::from_slice::<serde_json::Value>(&template.fill(fill))?;
            }
        }
        serde_json::from_str::<serde_json::Value>(&definition())?;
        Ok(())
    }
}
