//! Finds Pods, and forwards a port of each, by running kubectl.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::command::{Place, Source};
use crate::error::Error;

/// The time until kubectl has forwarded a port: it connects to the API server, perhaps after a login.
const FORWARD_LIMIT: Duration = Duration::from_secs(30);

/// A Pod of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) name: String,
    /// `Running`, `Pending`, or `Terminating`.
    pub(crate) phase: String,
    /// It has a container port named `metrics`.
    pub(crate) names_metrics: bool,
}

/// A forwarded port. Dropping it kills kubectl.
#[derive(Debug)]
pub(crate) struct Forward {
    /// Kept, because its drop kills the process.
    _kubectl: Child,
    /// The port on 127.0.0.1.
    pub(crate) port: u16,
    /// The last line of kubectl's errors.
    complaint: Arc<Mutex<String>>,
}

// === impl Source ===

impl Source {
    /// A kubectl with the flags of the kubeconfig.
    fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut kubectl = Command::new("kubectl");
        if let Some(file) = &self.kubeconfig {
            kubectl.arg("--kubeconfig").arg(file);
        }
        if let Some(context) = &self.context {
            kubectl.args(["--context", context]);
        }
        if let Some(namespace) = &self.namespace {
            kubectl.args(["--namespace", namespace]);
        }
        kubectl
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        kubectl
    }

    /// The Pods of `place`, by name.
    ///
    /// # Errors
    /// When kubectl fails, the object has no selector, or there are no Pods.
    pub(crate) async fn pods(&self, place: &Place) -> Result<Vec<Pod>, Error> {
        let (labels, place) = match place {
            Place::Address(_) => return Ok(Vec::new()),
            Place::Pod(name) => {
                let pod = self.json(&["get", "pod", name, "-o", "json"]).await?;
                return Ok(vec![pod_of(&pod)]);
            }
            Place::Selector(labels) => (labels.clone(), labels.clone()),
            Place::Object(kind, name) => {
                let object = self.json(&["get", kind, name, "-o", "json"]).await?;
                let place = format!("{kind}/{name}");
                let labels =
                    selector_of(&object).ok_or_else(|| Error::NoSelector(place.clone()))?;
                (labels, place)
            }
        };
        let list = self
            .json(&["get", "pods", "-l", &labels, "-o", "json"])
            .await?;
        let items = list["items"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        // One that was evicted, or completed, has no program any more.
        let has_ended = |pod: &Pod| matches!(&*pod.phase, "Succeeded" | "Failed");
        let mut pods: Vec<Pod> = items.iter().map(pod_of).collect();
        pods.retain(|pod| !has_ended(pod));
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        if pods.is_empty() {
            return Err(Error::NoPods(place));
        }
        Ok(pods)
    }

    async fn json(&self, arguments: &[&str]) -> Result<Value, Error> {
        let command = || arguments.join(" ");
        let output = self.kubectl(arguments).output().await.map_err(started)?;
        if !output.status.success() {
            return Err(Error::Kubectl {
                command: command(),
                message: without_log(&String::from_utf8_lossy(&output.stderr)),
            });
        }
        serde_json::from_slice(&output.stdout).map_err(|source| Error::KubectlJson {
            command: command(),
            source,
        })
    }

    /// Forwards the metrics port of `pod` to a free one of this machine.
    ///
    /// # Errors
    /// When kubectl fails, or forwards nothing within 30 seconds.
    pub(crate) async fn forward(&self, pod: &Pod) -> Result<Forward, Error> {
        let by_name = if pod.names_metrics { "metrics" } else { "8080" };
        let port = format!(":{}", self.port.as_deref().unwrap_or(by_name));
        let pod = format!("pod/{}", pod.name);
        let arguments = ["port-forward", "--address", "127.0.0.1", &pod, &port];
        let mut kubectl = self.kubectl(&arguments);
        kubectl.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut kubectl = kubectl.spawn().map_err(started)?;
        let (stdout, stderr) = (kubectl.stdout.take(), kubectl.stderr.take());
        let (Some(stdout), Some(stderr)) = (stdout, stderr) else {
            return Err(Error::Start(std::io::ErrorKind::BrokenPipe.into()));
        };
        let complaint = Arc::new(Mutex::new(String::new()));
        // Ends with the process, which closes the pipe.
        tokio::spawn(listen(stderr, Arc::clone(&complaint)));
        let mut lines = BufReader::new(stdout).lines();
        let forwarded = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(port) = port_of(&line) {
                    return Some(port);
                }
            }
            None
        };
        match timeout(FORWARD_LIMIT, forwarded).await {
            Err(_) => Err(Error::ForwardTimeout(FORWARD_LIMIT)),
            Ok(Some(port)) => {
                // kubectl prints a line for each connection: the pipe must not fill up.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                Ok(Forward {
                    _kubectl: kubectl,
                    port,
                    complaint,
                })
            }
            Ok(None) => {
                // Its errors are complete when it has ended.
                let _ = timeout(FORWARD_LIMIT, kubectl.wait()).await;
                tokio::task::yield_now().await;
                let message = complaint.lock().clone();
                Err(Error::Kubectl {
                    command: arguments.join(" "),
                    message,
                })
            }
        }
    }
}

// === impl Forward ===

impl Forward {
    /// kubectl's last error, which says why the port of the Pod refused the connection.
    pub(crate) fn complaint(&self) -> Option<String> {
        let complaint = self.complaint.lock();
        (!complaint.is_empty()).then(|| complaint.clone())
    }
}

fn started(error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::NoKubectl;
    }
    Error::Start(error)
}

/// kubectl's errors without the lines of its log, as `E1123 13:46:03.970538   22826 memcache.go:265] …`.
fn without_log(errors: &str) -> String {
    let is_log = |line: &&str| {
        let mut letters = line.chars();
        letters.next().is_some_and(|level| "EWI".contains(level))
            && letters.take(4).filter(char::is_ascii_digit).count() == 4
    };
    let lines: Vec<&str> = errors.trim().lines().collect();
    let kept: Vec<&str> = lines.iter().copied().filter(|line| !is_log(line)).collect();
    if kept.is_empty() { lines } else { kept }.join("; ")
}

/// Keeps the last line of kubectl's errors.
async fn listen(stderr: impl AsyncRead + Unpin, complaint: Arc<Mutex<String>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.trim().is_empty() {
            *complaint.lock() = line.trim().to_owned();
        }
    }
}

/// The port in `Forwarding from 127.0.0.1:40123 -> 8080`.
fn port_of(line: &str) -> Option<u16> {
    let (from, _) = line.strip_prefix("Forwarding from ")?.split_once(" -> ")?;
    from.rsplit_once(':')?.1.parse().ok()
}

fn pod_of(pod: &Value) -> Pod {
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.filter_map(|container| container["ports"].as_array());
    let deleted = pod["metadata"]["deletionTimestamp"].is_string();
    Pod {
        name: text(&pod["metadata"]["name"]),
        phase: if deleted {
            "Terminating".to_owned()
        } else {
            text(&pod["status"]["phase"])
        },
        names_metrics: ports.any(|ports| ports.iter().any(|port| port["name"] == "metrics")),
    }
}

/// The label selector of a workload or of a Service, as kubectl writes it.
fn selector_of(object: &Value) -> Option<String> {
    let selector = &object["spec"]["selector"];
    let is_workload =
        selector["matchLabels"].is_object() || selector["matchExpressions"].is_array();
    let labels = if is_workload {
        &selector["matchLabels"]
    } else {
        selector
    };
    let labels = labels.as_object().into_iter().flatten();
    let equal = labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    let terms: Vec<String> = equal.chain(expressions.filter_map(expression)).collect();
    (!terms.is_empty()).then(|| terms.join(","))
}

fn expression(expression: &Value) -> Option<String> {
    let key = expression["key"].as_str()?;
    let values = expression["values"].as_array().into_iter().flatten();
    let values: Vec<&str> = values.filter_map(Value::as_str).collect();
    let values = values.join(",");
    match expression["operator"].as_str()? {
        "In" => Some(format!("{key} in ({values})")),
        "NotIn" => Some(format!("{key} notin ({values})")),
        "Exists" => Some(key.to_owned()),
        "DoesNotExist" => Some(format!("!{key}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_port_is_read_from_the_first_line_of_kubectl() {
        for (line, port) in [
            ("Forwarding from 127.0.0.1:40123 -> 8080", Some(40123)),
            ("Forwarding from [::1]:40123 -> 8080", Some(40123)),
            ("Handling connection for 40123", None),
            ("", None),
        ] {
            assert_eq!(port_of(line), port, "{line}");
        }
    }

    #[test]
    fn an_error_of_kubectl_is_without_the_lines_of_its_log() {
        let log = "E1123 13:46:03.970538   22826 memcache.go:265] \"Unhandled Error\" err=\"…\"";
        let error = "Error from server (NotFound): deployments.apps \"a\" not found";
        assert_eq!(without_log(&format!("{log}\n{log}\n{error}\n")), error);
        assert_eq!(without_log(log), log, "a log alone is better than nothing");
    }

    #[test]
    fn selectors_of_workloads_and_services_become_label_selectors() {
        for (selector, wanted) in [
            (
                json!({"matchLabels": {"app": "a", "tier": "b"}}),
                Some("app=a,tier=b"),
            ),
            (
                json!({"matchExpressions": [
                    {"key": "app", "operator": "In", "values": ["a", "b"]},
                    {"key": "canary", "operator": "DoesNotExist"},
                ]}),
                Some("app in (a,b),!canary"),
            ),
            (json!({"app": "a"}), Some("app=a")),
            (json!({}), None),
            (json!(null), None),
        ] {
            let object = json!({"spec": {"selector": selector}});
            assert_eq!(selector_of(&object).as_deref(), wanted, "{object}");
        }
    }
}
