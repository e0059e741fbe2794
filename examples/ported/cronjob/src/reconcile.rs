//! The controller: reads the caches, decides with [`plan`](crate::plan), and writes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::params::DeleteParams;
use kube_core::{Resource, ResourceExt};
use reeve_controller::cache::{IndexError, View};
use reeve_controller::client::{Patch, optional};
use reeve_controller::events::{self, EventType};
use reeve_controller::{
    Context, Controller, Manager, ObjectKey, Outcome, Request, controller, finalizer, manager,
    owner, reconcile,
};
use serde_json::json;

use crate::plan::{Children, Decision, decide};
use crate::{CronJob, CronJobStatus, NAME, SCHEDULED_AT, Schedule};

/// The index of Jobs by the uid of the CronJob that controls them.
const BY_CONTROLLER: &str = ".metadata.controller";

/// The least delay until the next reconcile. A delay of zero would mean none, and the run may have become due meanwhile.
const SOON: Duration = Duration::from_millis(10);

/// The reason why the controller cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The controller is not valid.
    #[error(transparent)]
    Controller(#[from] controller::BuildError),
    /// There is another index of this name.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The manager refuses the controller.
    #[error(transparent)]
    Manager(#[from] manager::Error),
}

/// Adds the controller to `manager`.
///
/// # Errors
/// If the manager already has this controller.
pub fn add(manager: &Manager) -> Result<(), Error> {
    manager
        .caches()
        .add_index(&View::<Job>::typed(), BY_CONTROLLER, |job: &Job| {
            let owner = owner::controller_of(job).filter(|owner| owner.kind == CronJob::kind(&()));
            owner
                .map(|owner| Arc::from(&*owner.uid))
                .into_iter()
                .collect()
        })?;
    let controller = Controller::builder(NAME)
        .for_kind::<CronJob>()
        .owns::<Job>()
        .complete(reconcile::function(reconcile_cron_job))?;
    manager.add_controller(controller)?;
    Ok(())
}

async fn reconcile_cron_job(ctx: Context, request: Request) -> Result<Outcome, reconcile::Error> {
    // 1: load the CronJob. It has to exist, because its Jobs belong to it.
    let Some(cron_job) = ctx.lister::<CronJob>()?.get(&request)? else {
        return Ok(Outcome::done());
    };
    if finalizer::is_deleting(&*cron_job) {
        return Ok(Outcome::done());
    }
    // 2: list its Jobs, and update the status.
    let uid = cron_job.uid().unwrap_or_default();
    let jobs = ctx.lister::<Job>()?.by_index(BY_CONTROLLER, &uid)?;
    let children = Children::of(&cron_job, jobs);
    update_status(&ctx, &cron_job, &children).await?;
    // 3: delete old Jobs.
    for job in children.excess(&cron_job) {
        delete(&ctx, job).await?;
    }
    // 4 and 5: not while it is suspended; else find the run that is due, and the next one.
    let now = ctx.clock().now();
    let schedule = Schedule::parse(&cron_job.spec.schedule).map_err(reconcile::Error::terminal)?;
    let decision = decide(&cron_job, &children, &schedule, now).inspect_err(|error| {
        let (reason, note) = ("TooManyMissedTimes", error.to_string());
        let events = ctx.events();
        events.event(&*cron_job, EventType::Warning, reason, "Schedule", note);
    });
    // 6: start it.
    let next = match decision.map_err(reconcile::Error::terminal)? {
        Decision::Suspended => None,
        Decision::Wait { next, skipped } => {
            tracing::debug!(?next, ?skipped, "no run");
            next
        }
        Decision::Start {
            scheduled,
            replace,
            next,
        } => {
            for job in children.active.iter().filter(|_| replace) {
                delete(&ctx, job).await?;
            }
            start(&ctx, &cron_job, scheduled).await?;
            next
        }
    };
    // 7: return at the next run. A change of the CronJob or of a Job requests a reconcile before.
    Ok(next.map_or_else(Outcome::done, |next| {
        Outcome::requeue_after(ctx.clock().until(next).max(SOON))
    }))
}

async fn update_status(
    ctx: &Context,
    cron_job: &CronJob,
    children: &Children,
) -> Result<(), reconcile::Error> {
    // Without their versions: each step of a Job would be a change of the CronJob.
    let reference = |job: &Arc<Job>| ObjectReference {
        resource_version: None,
        ..events::reference(&**job)
    };
    let status = CronJobStatus {
        active: children.active.iter().map(reference).collect(),
        last_schedule_time: children.last_scheduled.map(Time),
    };
    // A write without a change would only cause another reconcile.
    if cron_job.status.as_ref() != Some(&status) {
        let (key, patch) = (
            ObjectKey::of(cron_job),
            Patch::merge(json!({"status": status})),
        );
        let client = ctx.client();
        let write = client.patch_status::<CronJob>(&key, patch);
        // It was deleted since.
        optional(write.await)?;
    }
    Ok(())
}

/// Deletes a Job, and its Pods after it.
async fn delete(ctx: &Context, job: &Job) -> Result<(), reconcile::Error> {
    let (key, params) = (ObjectKey::of(job), DeleteParams::background());
    optional(ctx.client().delete::<Job>(&key, &params).await)?;
    tracing::info!(job = job.name_any(), "deleted");
    Ok(())
}

/// Creates the Job of one run. Its name follows from the time, so that one run never has two.
async fn start(
    ctx: &Context,
    cron_job: &CronJob,
    scheduled: Timestamp,
) -> Result<(), reconcile::Error> {
    let template = &cron_job.spec.job_template;
    let mut job = Job {
        metadata: template.metadata.clone().unwrap_or_default(),
        spec: template.spec.clone(),
        ..Job::default()
    };
    job.metadata.name = Some(format!("{}-{}", cron_job.name_any(), scheduled.as_second()));
    job.metadata.namespace = cron_job.namespace();
    let at = (SCHEDULED_AT.to_owned(), scheduled.to_string());
    job.annotations_mut().extend([at]);
    owner::set_controller(cron_job, &mut job)?;
    match ctx.client().create(&job).await {
        Ok(_) => tracing::info!(job = job.name_any(), "started"),
        Err(error) if error.is_already_exists() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
