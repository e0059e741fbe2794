//! The scenario of the original's test, those that its text promises, and faults.

use std::time::Duration;

use cronjob_controller::{CronJob, SCHEDULED_AT, add};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::params::{DeleteParams, ListParams};
use kube_core::{CustomResourceExt, Resource, ResourceExt};
use reeve_controller::client::{Client, Object, Patch};
use reeve_controller::testing::{Cluster, Rule, Running, Server, Setup};
use reeve_controller::{ObjectKey, owner};
use serde_json::{Value, json};
use tokio::time::sleep;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The start of each case, half a minute after the full hour.
const START: &str = "2026-01-01T00:00:30Z";

struct World {
    cluster: Cluster,
    client: Client,
}

/// Runs a case on the built-in server, which has the definition of the kind.
fn run(case: impl AsyncFnOnce(World)) {
    let setup = Setup::new().server(Server::BuiltIn);
    setup
        .starting_at(START.parse().unwrap())
        .run(async |cluster| {
            let client = cluster.client();
            client.create(&CronJob::crd()).await.unwrap();
            let served = async || client.list::<CronJob>(None, &ListParams::default()).await;
            cluster.eventually("the kind is served", served).await;
            case(World { cluster, client }).await;
        });
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn at(time: &str) -> Timestamp {
    format!("2026-01-01T{time}:00Z").parse().unwrap()
}

/// The name of the Job of `backup` for the run at `time`.
fn run_at(time: &str) -> String {
    format!("backup-{}", at(time).as_second())
}

// === impl World ===

impl World {
    async fn start(&self) -> Running {
        let manager = self.cluster.manager().build().await.unwrap();
        add(&manager).unwrap();
        self.cluster.start(&manager)
    }

    /// The CronJob `backup`, with these fields in its spec.
    async fn backup(&self, spec: Value) -> CronJob {
        let containers = json!([{"name": "backup", "image": "backup"}]);
        let mut spec = spec;
        spec["jobTemplate"] = json!({
            "metadata": {"labels": {"team": "data"}, "annotations": {"tier": "low"}},
            "spec": {"template": {"spec": {"containers": containers, "restartPolicy": "OnFailure"}}},
        });
        let meta = json!({"name": "backup", "namespace": "default"});
        let version = CronJob::api_version(&());
        let object =
            json!({"apiVersion": version, "kind": "CronJob", "metadata": meta, "spec": spec});
        self.cluster.create(object).await
    }

    async fn patch(&self, spec: Value) {
        let patch = Patch::merge(json!({"spec": spec}));
        let key = key("backup");
        let patched = self.client.patch::<CronJob>(&key, patch);
        patched.await.unwrap();
    }

    async fn jobs(&self) -> Vec<Job> {
        let params = ListParams::default();
        let list = self.client.list::<Job>(Some("default"), &params);
        list.await.unwrap().items
    }

    /// The names of the Jobs, in order.
    async fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.jobs().await.iter().map(Job::name_any).collect();
        names.sort();
        names
    }

    /// Ends a Job, as the Job controller of a cluster does: `Complete` or `Failed`.
    async fn finish(&self, name: &str, kind: &str) {
        let before = if kind == "Complete" {
            "SuccessCriteriaMet"
        } else {
            "FailureTarget"
        };
        let now = self.cluster.clock().now().to_string();
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let status = json!({"status": {"startTime": now, "completionTime": (kind == "Complete").then_some(&now),
            "conditions": [condition(before), condition(kind)]}});
        let patch = Patch::merge(status);
        let key = key(name);
        let patched = self.client.patch_status::<Job>(&key, patch);
        patched.await.unwrap();
    }

    /// Ends the active Jobs.
    async fn finish_all(&self) {
        for job in self.jobs().await {
            let status = job.status.as_ref();
            if status.is_none_or(|status| status.conditions.is_none()) {
                self.finish(&job.name_any(), "Complete").await;
            }
        }
    }

    async fn delete<K: Object>(&self, name: &str) {
        let params = DeleteParams::background();
        self.client.delete::<K>(&key(name), &params).await.unwrap();
    }

    /// The names of the Jobs in the status.
    async fn active(&self) -> Vec<String> {
        let cron_job: CronJob = self.client.get(&key("backup")).await.unwrap();
        let active = cron_job.status.unwrap_or_default().active;
        active.into_iter().filter_map(|job| job.name).collect()
    }

    async fn last_scheduled(&self) -> Option<Timestamp> {
        let cron_job: CronJob = self.client.get(&key("backup")).await.unwrap();
        cron_job.status?.last_schedule_time.map(|time| time.0)
    }

    async fn until_names(&self, names: &[String]) {
        let look = async || self.names().await;
        self.cluster
            .eventually_eq("the Jobs", names.to_vec(), look)
            .await;
    }

    async fn until_active(&self, names: &[String]) {
        let look = async || self.active().await;
        self.cluster
            .eventually_eq("the status", names.to_vec(), look)
            .await;
    }

    /// Sleeps until this time of the first day.
    async fn until(&self, time: &str) {
        sleep(self.cluster.clock().until(at(time))).await;
    }

    async fn event(&self, reason: &str) -> Option<Event> {
        let params = ListParams::default();
        let list = self.client.list::<Event>(Some("default"), &params);
        let mut events = list.await.unwrap().items.into_iter();
        events.find(|event| event.reason.as_deref() == Some(reason))
    }
}

/// The test of the original: `Status.Active` grows when a Job is created.
#[test]
fn an_active_job_shows_in_the_status_until_it_ends() {
    run(async |world| {
        let running = world.start().await;
        let cron_job = world.backup(json!({"schedule": "1 * * * *"})).await;
        sleep(Duration::from_secs(10)).await;
        assert!(world.active().await.is_empty());
        let containers = json!([{"name": "c", "image": "i"}]);
        let mut job: Job = serde_json::from_value(json!({
            "metadata": {"name": "test-job", "namespace": "default"},
            "spec": {"template": {"spec": {"containers": containers, "restartPolicy": "OnFailure"}}},
        }))
        .unwrap();
        owner::set_controller(&cron_job, &mut job).unwrap();
        world.client.create(&job).await.unwrap();
        world.until_active(&["test-job".to_owned()]).await;
        world.finish("test-job", "Complete").await;
        world.until_active(&[]).await;
        running.end().await;
    });
}

#[test]
fn a_run_has_the_name_the_annotation_and_the_owner_of_its_time() {
    run(async |world| {
        let running = world.start().await;
        let cron_job = world.backup(json!({"schedule": "*/10 * * * *"})).await;
        world.until("00:09").await;
        assert!(world.names().await.is_empty());
        world.until_names(&[run_at("00:10")]).await;
        let job = world.jobs().await.remove(0);
        assert_eq!(job.annotations()[SCHEDULED_AT], "2026-01-01T00:10:00Z");
        assert_eq!(
            (&*job.annotations()["tier"], &*job.labels()["team"]),
            ("low", "data")
        );
        assert!(owner::is_controlled_by(&job, &cron_job));
        world.until_active(&[run_at("00:10")]).await;
        assert_eq!(world.last_scheduled().await, Some(at("00:10")));
        running.end().await;
    });
}

#[test]
fn in_six_hours_every_run_starts_once_and_the_history_keeps_to_its_limits() {
    run(async |world| {
        let running = world.start().await;
        world.backup(json!({"schedule": "*/10 * * * *"})).await;
        for _ in 0..6 * 60 {
            sleep(MINUTE).await;
            world.finish_all().await;
        }
        let names = ["05:40", "05:50", "06:00"].map(run_at);
        world.until_names(&names).await;
        let requests = world.cluster.requests();
        assert_eq!(
            (
                requests.count("create", "jobs"),
                requests.count("delete", "jobs")
            ),
            (36, 33)
        );
        assert_eq!(
            running.metric("controller_runtime_reconcile_errors_total"),
            Some(0.0)
        );
        running.end().await;
    });
}

#[test]
fn failed_jobs_have_a_limit_of_their_own() {
    run(async |world| {
        let running = world.start().await;
        world
            .backup(json!({"schedule": "0 * * * *", "failedJobsHistoryLimit": 2}))
            .await;
        for hour in 1..=4 {
            let time = format!("0{hour}:00");
            world.until(&time).await;
            let name = run_at(&time);
            let there = async || world.names().await.contains(&name);
            world.cluster.eventually("the run", there).await;
            world
                .finish(&name, if hour == 2 { "Complete" } else { "Failed" })
                .await;
        }
        // Of the failed ones 1, 3 and 4 the oldest is gone.
        world
            .until_names(&["02:00", "03:00", "04:00"].map(run_at))
            .await;
        world
            .patch(json!({"failedJobsHistoryLimit": 0, "successfulJobsHistoryLimit": 0}))
            .await;
        world.until_names(&[]).await;
        // The latest run stays known without its Job, so it does not start again.
        sleep(MINUTE).await;
        assert_eq!(world.last_scheduled().await, Some(at("04:00")));
        assert!(world.names().await.is_empty());
        running.end().await;
    });
}

#[test]
fn with_allow_runs_are_active_together() {
    run(async |world| {
        let running = world.start().await;
        world.backup(json!({"schedule": "0 * * * *"})).await;
        world.until("02:01").await;
        world.until_active(&["01:00", "02:00"].map(run_at)).await;
        running.end().await;
    });
}

#[test]
fn with_forbid_a_run_waits_for_the_end_of_the_one_before() {
    run(async |world| {
        let running = world.start().await;
        world
            .backup(json!({"schedule": "0 * * * *", "concurrencyPolicy": "Forbid"}))
            .await;
        world.until("03:10").await;
        assert_eq!(world.names().await, [run_at("01:00")]);
        world.finish_all().await;
        // The end of a Job requests a reconcile, which finds the latest missed run.
        world.until_active(&[run_at("03:00")]).await;
        assert_eq!(world.names().await, ["01:00", "03:00"].map(run_at));
        running.end().await;
    });
}

#[test]
fn with_replace_a_run_takes_the_place_of_the_one_before() {
    run(async |world| {
        let running = world.start().await;
        world
            .backup(json!({"schedule": "0 * * * *", "concurrencyPolicy": "Replace"}))
            .await;
        world.until("01:01").await;
        assert_eq!(world.names().await, [run_at("01:00")]);
        world.until("02:01").await;
        assert_eq!(world.names().await, [run_at("02:00")]);
        world.until_active(&[run_at("02:00")]).await;
        running.end().await;
    });
}

#[test]
fn nothing_starts_while_it_is_suspended() {
    run(async |world| {
        let running = world.start().await;
        world
            .backup(json!({"schedule": "0 * * * *", "suspend": true}))
            .await;
        world.until("05:30").await;
        assert!(world.names().await.is_empty());
        world.patch(json!({"suspend": false})).await;
        world.until_names(&[run_at("05:00")]).await;
        running.end().await;
    });
}

#[test]
fn of_the_runs_that_a_stop_missed_the_latest_starts() {
    run(async |world| {
        let running = world.start().await;
        world.backup(json!({"schedule": "0 * * * *"})).await;
        world.until("01:01").await;
        world.finish_all().await;
        running.crash().await;
        world.until("04:30").await;
        let running = world.start().await;
        world.until_names(&["01:00", "04:00"].map(run_at)).await;
        world.until("05:01").await;
        assert_eq!(world.names().await, ["01:00", "04:00", "05:00"].map(run_at));
        running.end().await;
    });
}

#[test]
fn a_run_whose_deadline_has_passed_does_not_start() {
    run(async |world| {
        world
            .backup(json!({"schedule": "0 * * * *", "startingDeadlineSeconds": 600}))
            .await;
        world.until("01:11").await;
        let running = world.start().await;
        sleep(MINUTE).await;
        assert!(world.names().await.is_empty());
        running.end().await;
        world.until("02:09").await;
        let running = world.start().await;
        world.until_names(&[run_at("02:00")]).await;
        running.end().await;
    });
}

#[test]
fn after_more_than_a_hundred_missed_runs_none_starts_until_a_deadline_is_set() {
    run(async |world| {
        world.backup(json!({"schedule": "* * * * *"})).await;
        sleep(2 * HOUR).await;
        let running = world.start().await;
        let look = async || world.event("TooManyMissedTimes").await;
        let event = world.cluster.eventually("a warning", look).await;
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        sleep(MINUTE).await;
        let errors = "controller_runtime_terminal_reconcile_errors_total";
        let failures = running.metric(errors).unwrap();
        assert!(failures >= 1.0);
        sleep(HOUR).await;
        assert!(world.names().await.is_empty());
        assert_eq!(running.metric(errors), Some(failures));
        world.patch(json!({"startingDeadlineSeconds": 200})).await;
        world.until_names(&[run_at("03:01")]).await;
        running.end().await;
    });
}

#[test]
fn a_schedule_that_is_not_valid_waits_for_its_correction() {
    run(async |world| {
        let running = world.start().await;
        world.backup(json!({"schedule": "every hour"})).await;
        sleep(MINUTE).await;
        let errors = "controller_runtime_terminal_reconcile_errors_total";
        let failures = running.metric(errors).unwrap();
        assert!(failures >= 1.0);
        sleep(HOUR).await;
        assert_eq!(running.metric(errors), Some(failures));
        world.patch(json!({"schedule": "0 * * * *"})).await;
        world.until("02:01").await;
        assert_eq!(world.names().await.len(), 2);
        running.end().await;
    });
}

#[test]
fn the_jobs_of_a_deleted_cron_job_are_collected() {
    run(async |world| {
        let running = world.start().await;
        world.backup(json!({"schedule": "0 * * * *"})).await;
        world.until("02:01").await;
        assert_eq!(world.names().await.len(), 2);
        world.delete::<CronJob>("backup").await;
        world.until_names(&[]).await;
        world.until("04:01").await;
        assert!(world.names().await.is_empty());
        running.end().await;
    });
}

/// The create is stored and its answer is lost; the next try finds the Job.
#[test]
fn a_run_whose_answer_is_lost_starts_once() {
    run(async |world| {
        let creates = Rule::new().verb("create").resource("jobs");
        let lost = world.cluster.faults().add(creates.times(1).lose_answer());
        let running = world.start().await;
        world.backup(json!({"schedule": "0 * * * *"})).await;
        world.until("01:30").await;
        assert_eq!(lost.hits(), 1);
        assert_eq!(world.names().await, [run_at("01:00")]);
        assert_eq!(world.active().await, [run_at("01:00")]);
        running.end().await;
    });
}

/// The program is killed after a Job was created and before the status shows it.
#[test]
fn a_run_that_a_kill_interrupted_starts_once() {
    run(async |world| {
        let running = world.start().await;
        world.backup(json!({"schedule": "0 * * * *"})).await;
        world.until("00:59").await;
        let writes = Rule::new().verb("patch").resource("cronjobs");
        let stalled = world.cluster.faults().add(writes.stall());
        world.until_names(&[run_at("01:00")]).await;
        let stalls = async || stalled.hits() > 0;
        world
            .cluster
            .eventually("a write of the status", stalls)
            .await;
        running.crash().await;
        stalled.remove();
        assert!(world.active().await.is_empty());
        let running = world.start().await;
        world.until("01:30").await;
        assert_eq!(world.names().await, [run_at("01:00")]);
        assert_eq!(world.active().await, [run_at("01:00")]);
        assert_eq!(world.cluster.requests().count("create", "jobs"), 1);
        running.end().await;
    });
}

/// The defaults and checks of the original's webhooks are in the definition.
#[test]
fn the_server_sets_the_defaults_and_refuses_what_is_not_valid() {
    run(async |world| {
        let cron_job = world.backup(json!({"schedule": "0 * * * *"})).await;
        let spec = serde_json::to_value(&cron_job.spec).unwrap();
        assert_eq!(
            (&spec["concurrencyPolicy"], &spec["suspend"]),
            (&json!("Allow"), &json!(false))
        );
        let limits = (
            &spec["successfulJobsHistoryLimit"],
            &spec["failedJobsHistoryLimit"],
        );
        assert_eq!(limits, (&json!(3), &json!(1)));
        for wrong in [
            json!({"schedule": ""}),
            json!({"startingDeadlineSeconds": -1}),
            json!({"concurrencyPolicy": "Maybe"}),
            json!({"successfulJobsHistoryLimit": -1}),
        ] {
            let patch = Patch::merge(json!({"spec": wrong}));
            let key = key("backup");
            let write = world.client.patch::<CronJob>(&key, patch);
            assert!(write.await.unwrap_err().is_invalid(), "{wrong}");
        }
    });
}

#[test]
fn the_manifest_is_the_definition_of_the_kind() {
    let manifest: CustomResourceDefinition =
        serde_saphyr::from_str(include_str!("../crd.yaml")).unwrap();
    assert!(
        manifest == CronJob::crd(),
        "crd.yaml is not the derived definition:\n{}",
        json!(CronJob::crd())
    );
}
