//! Ends the operator before its blocks are released: an operator that runs would add the finalizers again.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube_core::params::ListParams;
use reeve_controller::client::Error as ClientError;
use reeve_controller::{Client, Request};
use tokio::time::Instant;

/// How long the Pods of a Deployment may take to end. Their grace period is 40 s.
const POD_END_PATIENCE: Duration = Duration::from_secs(180);

/// How often the Pods are listed.
const POD_LIST_INTERVAL: Duration = Duration::from_secs(1);

/// Why the operator still runs.
#[derive(Debug, thiserror::Error)]
pub(in crate::command) enum Error {
    #[error("operator cannot scale the Deployment {0} to zero: {1}")]
    Scale(Request, #[source] ClientError),
    #[error("operator cannot list the Pods of the Deployment {0}: {1}")]
    Pods(Request, #[source] ClientError),
    #[error(
        "Pods of the Deployment {deployment} did not end within {} s: {pods}; delete them, and run it again",
        POD_END_PATIENCE.as_secs()
    )]
    Running { deployment: Request, pods: String },
}

/// Scales a Deployment to zero, and waits until none of its Pods is left. A Deployment that does not exist is no error.
pub(super) async fn to_zero(client: &Client, deployment: &Request) -> Result<(), Error> {
    let deployments = client.objects::<Deployment>();
    let scale = match deployments.set_replicas(deployment, 0).await {
        Ok(scale) => scale,
        Err(error) if error.is_not_found() => {
            tracing::info!(%deployment, "there is no Deployment to scale to zero");
            return Ok(());
        }
        Err(error) => return Err(Error::Scale(deployment.clone(), error)),
    };
    tracing::info!(%deployment, "scaled the Deployment to zero");
    let selector = scale.status.and_then(|status| status.selector);
    // Without a selector the list would be of all Pods of the namespace.
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
        return Ok(());
    };
    let params = ListParams::default().labels(&selector);
    let limit = Instant::now() + POD_END_PATIENCE;
    loop {
        let pods = client
            .list::<Pod>(deployment.namespace.as_deref(), &params)
            .await;
        let pods = pods.map_err(|error| Error::Pods(deployment.clone(), error))?;
        let running: Vec<&str> = pods.items.iter().filter_map(running).collect();
        if running.is_empty() {
            return Ok(());
        }
        if Instant::now() >= limit {
            return Err(Error::Running {
                deployment: deployment.clone(),
                pods: running.join(", "),
            });
        }
        tokio::time::sleep(POD_LIST_INTERVAL).await;
    }
}

/// The name of a Pod whose containers may still run. An evicted Pod is kept as `Failed`.
fn running(pod: &Pod) -> Option<&str> {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    pod.metadata.name.as_deref().filter(|_| !ended)
}

#[cfg(test)]
mod tests {
    use kube_client::Api;
    use kube_client::api::{DeleteParams, PostParams};
    use reeve_apiserver::ApiServer;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, phase: &str) -> Pod {
        let labels = json!({"app": "operator"});
        let pod: Value = json!({
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "a", "image": "a:1"}]},
            "status": {"phase": phase},
        });
        serde_json::from_value(pod).unwrap()
    }

    /// A server with the Deployment `default/operator`, and these Pods with their phases.
    async fn server(pods: &[(&str, &str)]) -> (ApiServer, Client) {
        let server = ApiServer::builder().start().await.unwrap();
        let deployment = json!({
            "metadata": {"name": "operator"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "operator"}},
                "template": {
                    "metadata": {"labels": {"app": "operator"}},
                    "spec": {"containers": [{"name": "a", "image": "a:1"}]},
                },
            },
        });
        let deployment: Deployment = serde_json::from_value(deployment).unwrap();
        let create = PostParams::default();
        let deployments: Api<Deployment> = Api::namespaced(server.client(), "default");
        deployments.create(&create, &deployment).await.unwrap();
        let api: Api<Pod> = Api::namespaced(server.client(), "default");
        for (name, phase) in pods {
            let pod = pod(name, phase);
            api.create(&create, &pod).await.unwrap();
            let status = json!({"status": {"phase": phase}});
            let patch = kube_client::api::Patch::Merge(status);
            api.patch_status(name, &Default::default(), &patch)
                .await
                .unwrap();
        }
        let client = Client::new(server.client());
        (server, client)
    }

    fn deployment() -> Request {
        Request::namespaced("default", "operator")
    }

    #[tokio::test(start_paused = true)]
    async fn the_deployment_is_scaled_to_zero_and_its_pods_are_waited_for() {
        let (server, client) = server(&[("a", "Running"), ("evicted", "Failed")]).await;
        let pods: Api<Pod> = Api::namespaced(server.client(), "default");
        let deployment = deployment();
        let waiting = to_zero(&client, &deployment);
        tokio::pin!(waiting);
        let early = tokio::time::timeout(Duration::from_secs(30), &mut waiting).await;
        assert!(early.is_err(), "a Pod still runs");
        let deployments: Api<Deployment> = Api::namespaced(server.client(), "default");
        let scaled = deployments.get("operator").await.unwrap();
        assert_eq!(scaled.spec.unwrap().replicas, Some(0));
        let now = DeleteParams::default().grace_period(0);
        pods.delete("a", &now).await.unwrap();
        waiting.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_does_not_end_is_named_after_three_minutes() {
        let (_server, client) = server(&[("stuck", "Running")]).await;
        let started = Instant::now();
        let error = to_zero(&client, &deployment())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("within 180 s: stuck;"), "{error}");
        assert!(started.elapsed() >= POD_END_PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deployment_that_is_gone_is_no_error_and_a_missing_right_is_one() {
        let (server, client) = server(&[]).await;
        let other = Request::namespaced("default", "other");
        to_zero(&client, &other).await.unwrap();
        let rule = reeve_apiserver::faults::Rule::new();
        let refused = rule.verb("patch").resource("deployments").status(403, "no");
        server.faults().add(refused);
        let error = to_zero(&client, &deployment())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("operator cannot scale the Deployment default/operator"),
            "{error}"
        );
    }
}
