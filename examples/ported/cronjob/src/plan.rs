//! The decisions, without I/O: which Jobs count as what, which runs were missed, which Jobs of the history go.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube_core::ResourceExt;

use crate::{ConcurrencyPolicy, CronJob, SCHEDULED_AT, Schedule};

/// The largest number of missed runs. More than that stands for a wrong clock or a forgotten object.
const MOST_MISSED: usize = 100;

/// The Jobs of one CronJob.
#[derive(Clone, Debug, Default)]
pub struct Children {
    /// Those that run.
    pub active: Vec<Arc<Job>>,
    /// Those that are complete, the oldest first.
    pub successful: Vec<Arc<Job>>,
    /// Those that failed, the oldest first.
    pub failed: Vec<Arc<Job>>,
    /// The scheduled time of the latest run.
    pub last_scheduled: Option<Timestamp>,
}

/// The decision about the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No run until the CronJob changes.
    Suspended,
    /// Nothing is due until `next`.
    Wait {
        /// The time of the next run.
        next: Option<Timestamp>,
        /// The reason why a run that is due does not start.
        skipped: Option<Skipped>,
    },
    /// The run of `scheduled` starts now.
    Start {
        /// Its time in the schedule.
        scheduled: Timestamp,
        /// Whether the active Jobs are deleted first.
        replace: bool,
        /// The time of the next run.
        next: Option<Timestamp>,
    },
}

/// The reason why a run that is due does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// Its deadline has passed.
    TooLate,
    /// Another one is active, and the policy forbids both.
    Active,
}

/// More than a hundred runs were missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "more than {MOST_MISSED} runs were missed: set or decrease spec.startingDeadlineSeconds, or check the clock"
)]
pub struct TooManyMissed;

// === impl Children ===

impl Children {
    /// Sorts the Jobs of a CronJob. The status keeps the latest run also when its Job is gone.
    #[must_use]
    pub fn of(cron_job: &CronJob, jobs: Vec<Arc<Job>>) -> Self {
        let status = cron_job.status.as_ref();
        let last = status.and_then(|status| status.last_schedule_time.as_ref());
        let mut children = Self {
            last_scheduled: last.map(|time| time.0),
            ..Self::default()
        };
        for job in jobs {
            children.last_scheduled = children.last_scheduled.max(scheduled_time(&job));
            match finished(&job) {
                None => children.active.push(job),
                Some("Complete") => children.successful.push(job),
                Some(_) => children.failed.push(job),
            }
        }
        children.successful.sort_by_key(|job| start_time(job));
        children.failed.sort_by_key(|job| start_time(job));
        children
    }

    /// The finished Jobs that exceed the limits of the history.
    pub fn excess(&self, cron_job: &CronJob) -> impl Iterator<Item = &Arc<Job>> {
        let oldest = |jobs: &[Arc<Job>], kept: u32| jobs.len().saturating_sub(kept as usize);
        let failed = oldest(&self.failed, cron_job.spec.failed_jobs_history_limit);
        let successful = oldest(
            &self.successful,
            cron_job.spec.successful_jobs_history_limit,
        );
        self.failed[..failed]
            .iter()
            .chain(&self.successful[..successful])
    }
}

/// Decides about the next run.
///
/// # Errors
/// If more than a hundred runs were missed.
pub fn decide(
    cron_job: &CronJob,
    children: &Children,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<Decision, TooManyMissed> {
    let spec = &cron_job.spec;
    if spec.suspend {
        return Ok(Decision::Suspended);
    }
    let deadline = spec
        .starting_deadline_seconds
        .map(SignedDuration::from_secs);
    let created = cron_job.creation_timestamp().map(|time| time.0);
    let earliest = children.last_scheduled.or(created).unwrap_or(now);
    // Earlier runs are too late anyway, and do not count as missed.
    let earliest = match deadline.and_then(|deadline| now.checked_sub(deadline).ok()) {
        Some(limit) => earliest.max(limit),
        None => earliest,
    };
    let next = schedule.after(now);
    let Some(scheduled) = latest_missed(schedule, earliest, now)? else {
        return Ok(Decision::Wait {
            next,
            skipped: None,
        });
    };
    let is_late = deadline.is_some_and(|deadline| now.duration_since(scheduled) > deadline);
    let policy = spec.concurrency_policy;
    let skipped = match policy {
        _ if is_late => Some(Skipped::TooLate),
        ConcurrencyPolicy::Forbid if !children.active.is_empty() => Some(Skipped::Active),
        _ => None,
    };
    Ok(match skipped {
        Some(_) => Decision::Wait { next, skipped },
        None => Decision::Start {
            scheduled,
            replace: policy == ConcurrencyPolicy::Replace,
            next,
        },
    })
}

/// The latest run after `earliest` that is due.
fn latest_missed(
    schedule: &Schedule,
    earliest: Timestamp,
    now: Timestamp,
) -> Result<Option<Timestamp>, TooManyMissed> {
    let due = |time: Timestamp| schedule.after(time).filter(|next| *next <= now);
    let mut missed = std::iter::successors(due(earliest), |time| due(*time));
    match missed.by_ref().take(MOST_MISSED).last() {
        _ if missed.next().is_some() => Err(TooManyMissed),
        latest => Ok(latest),
    }
}

/// The type of the condition that ended the Job.
fn finished(job: &Job) -> Option<&str> {
    let conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions
        .filter(|condition| condition.status == "True")
        .map(|condition| &*condition.type_)
        .find(|kind| matches!(*kind, "Complete" | "Failed"))
}

fn start_time(job: &Job) -> Option<Timestamp> {
    job.status.as_ref()?.start_time.as_ref().map(|time| time.0)
}

fn scheduled_time(job: &Job) -> Option<Timestamp> {
    job.annotations().get(SCHEDULED_AT)?.parse().ok()
}
