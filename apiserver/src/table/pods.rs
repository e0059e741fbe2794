//! The columns of Pods: their status is computed from their containers.

use jiff::Timestamp;
use serde_json::Value;

use super::{Now, count};
use crate::store::wanted::Wanted;

/// The state of a container, as far as columns show it.
const STATE: Wanted = Wanted::Fields(&[
    ("running", Wanted::Fields(&[])),
    ("terminated", TERMINATED),
    ("waiting", Wanted::Fields(&[("reason", Wanted::Whole)])),
]);

const TERMINATED: Wanted = Wanted::Fields(&[
    ("exitCode", Wanted::Whole),
    ("finishedAt", Wanted::Whole),
    ("reason", Wanted::Whole),
    ("signal", Wanted::Whole),
]);

const CONTAINER_STATUSES: Wanted = Wanted::Each(&Wanted::Fields(&[
    ("lastState", Wanted::Fields(&[("terminated", TERMINATED)])),
    ("name", Wanted::Whole),
    ("ready", Wanted::Whole),
    ("restartCount", Wanted::Whole),
    ("started", Wanted::Whole),
    ("state", STATE),
]));

/// What the columns read: most of a Pod describes its containers, of which they show the number.
pub(crate) const READ: Wanted = Wanted::Fields(&[
    (
        "metadata",
        Wanted::Fields(&[
            ("name", Wanted::Whole),
            ("creationTimestamp", Wanted::Whole),
            ("deletionTimestamp", Wanted::Whole),
        ]),
    ),
    (
        "spec",
        Wanted::Fields(&[
            ("containers", Wanted::Each(&Wanted::Presence)),
            (
                "initContainers",
                Wanted::Each(&Wanted::Fields(&[
                    ("name", Wanted::Whole),
                    ("restartPolicy", Wanted::Whole),
                ])),
            ),
            ("nodeName", Wanted::Whole),
            ("readinessGates", Wanted::Whole),
        ]),
    ),
    (
        "status",
        Wanted::Fields(&[
            (
                "conditions",
                Wanted::Each(&Wanted::Fields(&[
                    ("reason", Wanted::Whole),
                    ("status", Wanted::Whole),
                    ("type", Wanted::Whole),
                ])),
            ),
            ("containerStatuses", CONTAINER_STATUSES),
            ("initContainerStatuses", CONTAINER_STATUSES),
            ("nominatedNodeName", Wanted::Whole),
            ("phase", Wanted::Whole),
            ("podIPs", Wanted::Whole),
            ("reason", Wanted::Whole),
        ]),
    ),
]);

/// What a Pod's row shows of its containers.
struct Summary {
    status: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

/// The cells `Ready`, `Status` and `Restarts`.
pub(crate) fn shown(pod: &Value, now: &Now) -> Vec<Value> {
    let summary = summarise(pod);
    let ready = format!("{}/{}", summary.ready, summary.total);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts > 0 => {
            format!("{} ({} ago)", summary.restarts, now.since(last))
        }
        _ => summary.restarts.to_string(),
    };
    vec![ready.into(), summary.status.into(), restarts.into()]
}

pub(crate) fn readiness_gates(pod: &Value, _: &Now) -> Value {
    let gates = items(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let passed = gates
        .iter()
        .filter(|gate| condition_is_true(pod, gate["conditionType"].as_str().unwrap_or_default()))
        .count();
    format!("{passed}/{}", gates.len()).into()
}

fn summarise(pod: &Value) -> Summary {
    let status = &pod["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let phase = text(&status["phase"]);
    let mut summary = Summary {
        status: phase.clone(),
        ready: 0,
        total: items(&pod["spec"]["containers"]).len(),
        restarts: 0,
        last_restart: None,
    };
    if status["reason"]
        .as_str()
        .is_some_and(|reason| !reason.is_empty())
    {
        summary.status = text(&status["reason"]);
    }
    let gated = items(&status["conditions"]).iter().any(|condition| {
        condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
    });
    if gated {
        summary.status = "SchedulingGated".to_owned();
    }
    let initializing = initialise(pod, &mut summary);
    if !initializing || condition_is_true(pod, "Initialized") {
        run(pod, &mut summary);
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        if status["reason"] == "NodeLost" {
            summary.status = "Unknown".to_owned();
        } else if phase != "Failed" && phase != "Succeeded" {
            summary.status = "Terminating".to_owned();
        }
    }
    summary
}

/// Summarises the init containers; true when one of them is still running or failed.
fn initialise(pod: &Value, summary: &mut Summary) -> bool {
    let containers = items(&pod["spec"]["initContainers"]);
    let is_sidecar = |name: &Value| {
        containers
            .iter()
            .any(|container| container["name"] == *name && container["restartPolicy"] == "Always")
    };
    summary.total += containers
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .count();
    // Restarts of ordinary init containers count only while they run.
    let mut ordinary = (0, None);
    let mut initializing = false;
    for (index, container) in items(&pod["status"]["initContainerStatuses"])
        .iter()
        .enumerate()
    {
        let sidecar = is_sidecar(&container["name"]);
        let finished = last_finished(container);
        if sidecar {
            summary.restarts += count(&container["restartCount"]);
            summary.last_restart = summary.last_restart.max(finished);
        } else {
            ordinary.0 += count(&container["restartCount"]);
            ordinary.1 = ordinary.1.max(finished);
        }
        let state = &container["state"];
        let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
        if state["terminated"].is_object() && count(&state["terminated"]["exitCode"]) == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            summary.ready += usize::from(container["ready"] == true);
            continue;
        }
        summary.status = if state["terminated"].is_object() {
            format!("Init:{}", end_of(&state["terminated"]))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", containers.len())
        };
        initializing = true;
        break;
    }
    if initializing && !condition_is_true(pod, "Initialized") {
        summary.restarts += ordinary.0;
        summary.last_restart = summary.last_restart.max(ordinary.1);
    }
    initializing
}

fn run(pod: &Value, summary: &mut Summary) {
    let mut running = false;
    for container in items(&pod["status"]["containerStatuses"]).iter().rev() {
        summary.restarts += count(&container["restartCount"]);
        summary.last_restart = summary.last_restart.max(last_finished(container));
        let state = &container["state"];
        let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
        if !waiting.is_empty() {
            summary.status = waiting.to_owned();
        } else if state["terminated"].is_object() {
            summary.status = end_of(&state["terminated"]);
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.status == "Completed" && running {
        summary.status = if condition_is_true(pod, "Ready") {
            "Running".to_owned()
        } else {
            "NotReady".to_owned()
        };
    }
}

fn end_of(terminated: &Value) -> String {
    match terminated["reason"].as_str() {
        Some(reason) if !reason.is_empty() => reason.to_owned(),
        _ if count(&terminated["signal"]) != 0 => {
            format!("Signal:{}", count(&terminated["signal"]))
        }
        _ => format!("ExitCode:{}", count(&terminated["exitCode"])),
    }
}

fn last_finished(container: &Value) -> Option<Timestamp> {
    container["lastState"]["terminated"]["finishedAt"]
        .as_str()
        .and_then(|time| time.parse().ok())
}

fn condition_is_true(pod: &Value, kind: &str) -> bool {
    items(&pod["status"]["conditions"])
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Now {
        Now::new("2026-11-21T11:46:11Z".parse().unwrap())
    }

    #[test]
    fn a_pod_is_as_its_containers_are() {
        let one = |state: Value| json!({"spec": {"containers": [{}]}, "status": {"phase": "Running", "containerStatuses": [state]}});
        let cases = [
            (
                "pending",
                json!({"spec": {"containers": [{}, {}]}, "status": {"phase": "Pending"}}),
                "0/2",
                "Pending",
                "0",
            ),
            (
                "running",
                one(json!({"ready": true, "state": {"running": {}}})),
                "1/1",
                "Running",
                "0",
            ),
            (
                "crashing",
                one(
                    json!({"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}),
                ),
                "0/1",
                "CrashLoopBackOff",
                "3",
            ),
            (
                "exited",
                one(json!({"state": {"terminated": {"exitCode": 2}}})),
                "0/1",
                "ExitCode:2",
                "0",
            ),
            (
                "killed",
                one(json!({"state": {"terminated": {"signal": 9}}})),
                "0/1",
                "Signal:9",
                "0",
            ),
            (
                "two containers, one crashing",
                json!({
                    "spec": {"containers": [{}, {}], "initContainers": [{"name": "i"}]},
                    "status": {
                        "phase": "Running",
                        "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}],
                        "containerStatuses": [
                            {"ready": true, "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-21T10:00:00Z"}}},
                            {"ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                        ],
                    },
                }),
                "1/2",
                "CrashLoopBackOff",
                "2 (106m ago)",
            ),
            (
                "initialising",
                json!({
                    "spec": {"containers": [{}], "initContainers": [{"name": "i"}, {"name": "j"}]},
                    "status": {"phase": "Pending", "initContainerStatuses": [
                        {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                        {"name": "j", "restartCount": 1, "state": {"running": {}}},
                    ]},
                }),
                "0/1",
                "Init:1/2",
                "1",
            ),
            (
                "init failed",
                json!({
                    "spec": {"containers": [{}], "initContainers": [{"name": "i"}]},
                    "status": {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]},
                }),
                "0/1",
                "Init:Error",
                "0",
            ),
            (
                "sidecar",
                json!({
                    "spec": {"containers": [{}], "initContainers": [{"name": "i", "restartPolicy": "Always"}]},
                    "status": {
                        "phase": "Running",
                        "initContainerStatuses": [{"name": "i", "started": true, "ready": true, "state": {"running": {}}}],
                        "containerStatuses": [{"ready": true, "state": {"running": {}}}],
                    },
                }),
                "2/2",
                "Running",
                "0",
            ),
            (
                "terminating",
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"containers": [{}]}, "status": {"phase": "Running"}}),
                "0/1",
                "Terminating",
                "0",
            ),
            (
                "gated",
                json!({"spec": {"containers": [{}]}, "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}),
                "0/1",
                "SchedulingGated",
                "0",
            ),
        ];
        for (name, pod, expected_ready, expected_status, expected_restarts) in cases {
            let mut whole = pod.clone();
            whole["metadata"]["managedFields"] = json!([{"manager": "m"}]);
            whole["spec"]["volumes"] = json!([{"name": "v"}]);
            let pod = crate::store::wanted::read(whole.to_string().as_bytes(), READ);
            assert_eq!(pod["metadata"].get("managedFields"), None);
            let expected = [expected_ready, expected_status, expected_restarts];
            assert_eq!(shown(&pod, &now()), expected, "{name}");
            assert_eq!(shown(&whole, &now()), expected, "{name}");
        }
    }

    #[test]
    fn readiness_gates_count_those_that_passed() {
        let pod = json!({
            "spec": {"readinessGates": [{"conditionType": "g"}, {"conditionType": "h"}]},
            "status": {"conditions": [{"type": "g", "status": "True"}, {"type": "h", "status": "False"}]},
        });
        let read = crate::store::wanted::read(pod.to_string().as_bytes(), READ);
        assert_eq!(readiness_gates(&read, &now()), "1/2");
        assert_eq!(readiness_gates(&json!({}), &now()), "<none>");
    }
}
