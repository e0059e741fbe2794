//! The checks of the specs of Jobs and CronJobs. (kubernetes: `pkg/apis/batch/validation`.)

use std::collections::BTreeSet;

use serde_json::Value;

use super::check::{self, not_negative, one_of};
use super::network_rules::domain_prefixed_path;
use super::workload_rules::{labels_match, pod_template};
use super::{schedule, selectors};
use crate::field::{ErrorKind, Errors, FieldError, Path};
use crate::names;
use crate::table::cells::{items, string};

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const REPLACEMENTS: &[&str] = &["Failed", "TerminatingOrFailed"];
const CONCURRENCY: &[&str] = &["Allow", "Forbid", "Replace"];
/// The most Pods at a time, and failed indexes, of an indexed Job.
const MOST_INDEXED: i64 = 100_000;
/// The most characters of `managedBy`.
const LONGEST_MANAGER: usize = 63;
const MOST_RULES: usize = 20;

/// Checks the spec of a Job.
pub(super) fn job(spec: &Value, path: &Path, errors: &mut Errors) {
    template(spec, path, errors);
    if spec["selector"].is_null() {
        errors.push(FieldError::required(&path.child("selector"), ""));
    }
    selectors::validate(&spec["selector"], &path.child("selector"), errors);
    if selectors::is_valid(&spec["selector"]) {
        labels_match(spec, path, errors);
    }
}

/// Checks the spec of a CronJob. `old` is the spec before an update.
pub(super) fn cron_job(spec: &Value, old: Option<&Value>, path: &Path, errors: &mut Errors) {
    let (text, at) = (string(&spec["schedule"]), path.child("schedule"));
    if check::required(&spec["schedule"], "", &at, errors) {
        if let Some(problem) = schedule::problem(text) {
            errors.push(FieldError::invalid(&at, text, problem));
        }
        let allowed = old.is_some_and(|old| string(&old["schedule"]).contains("TZ"));
        let problem = match (allowed, spec["timeZone"].is_null()) {
            (true, false) => "cannot use both timeZone field and TZ or CRON_TZ in schedule",
            (true, true) => "",
            (false, _) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        };
        if text.contains("TZ") && !problem.is_empty() {
            errors.push(FieldError::invalid(&at, text, problem));
        }
    }
    for field in [
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    let zone = &spec["timeZone"];
    if old.is_none_or(|old| old["timeZone"] != *zone)
        && let Some(zone) = zone.as_str()
    {
        let problem = schedule::zone_problem(zone);
        let path = path.child("timeZone");
        errors.extend(problem.map(|problem| FieldError::invalid(&path, zone, problem)));
    }
    let policy = &spec["concurrencyPolicy"];
    one_of(
        policy,
        &path.child("concurrencyPolicy"),
        CONCURRENCY,
        errors,
    );
    let (job, path) = (
        &spec["jobTemplate"]["spec"],
        path.child("jobTemplate").child("spec"),
    );
    template(job, &path, errors);
    if !job["selector"].is_null() {
        errors.push(FieldError::invalid(
            &path.child("selector"),
            job["selector"].clone(),
            "`selector` will be auto-generated",
        ));
    }
    if job["manualSelector"] == true {
        let path = path.child("manualSelector");
        errors.push(FieldError::not_supported(&path, true, &["nil", "false"]));
    }
}

/// What the specs of a Job and of its template have in common.
fn template(spec: &Value, path: &Path, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(&spec[field], &path.child(field), errors);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let text = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(
            &path.child("backoffLimitPerIndex"),
            text,
        ));
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        let path = path.child("managedBy");
        domain_prefixed_path(manager, &path, errors);
        if manager.len() > LONGEST_MANAGER {
            errors.push(FieldError::too_long(&path, 63));
        }
    }
    let mode = &spec["completionMode"];
    check::allowed(
        mode,
        &path.child("completionMode"),
        &["NonIndexed", "Indexed"],
        errors,
    );
    if mode == "Indexed" {
        indexed(spec, path, errors);
    } else {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if !spec[field].is_null() && (mode.is_null() || mode == "NonIndexed") {
                let (value, text) = (spec[field].clone(), "requires indexed completion mode");
                errors.push(FieldError::invalid(&path.child(field), value, text));
            }
        }
    }
    failure_policy(spec, &path.child("podFailurePolicy").child("rules"), errors);
    success_policy(spec, &path.child("successPolicy"), errors);
    let replacement: &[&str] = if spec["podFailurePolicy"].is_null() {
        REPLACEMENTS
    } else {
        &REPLACEMENTS[..1]
    };
    let at = path.child("podReplacementPolicy");
    check::allowed(&spec["podReplacementPolicy"], &at, replacement, errors);
    pod_template(spec, path, errors);
    restart_policy(spec, path, errors);
}

fn indexed(spec: &Value, path: &Path, errors: &mut Errors) {
    let completions = spec["completions"].as_i64();
    if completions.is_none() {
        let text = "when completion mode is Indexed";
        errors.push(FieldError::required(&path.child("completions"), text));
    }
    let text = "must be less than or equal to 100000 when completion mode is Indexed";
    let at = path.child("parallelism");
    check::between(
        &spec["parallelism"],
        i64::MIN..=MOST_INDEXED,
        text,
        &at,
        errors,
    );
    let (failed, at) = (&spec["maxFailedIndexes"], path.child("maxFailedIndexes"));
    let most = completions.unwrap_or(i64::MAX);
    let text = "must be less than or equal to completions";
    check::between(failed, i64::MIN..=most, text, &at, errors);
    let text = "must be less than or equal to 100000";
    check::between(failed, i64::MIN..=MOST_INDEXED, text, &at, errors);
    let many = completions.is_some_and(|completions| completions > MOST_INDEXED);
    if !many || spec["backoffLimitPerIndex"].is_null() {
        return;
    }
    if failed.is_null() {
        let text = "must be specified when completions is above 100000";
        errors.push(FieldError::required(&at, text));
    }
    for field in ["parallelism", "maxFailedIndexes"] {
        let text = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index";
        check::between(
            &spec[field],
            i64::MIN..=10_000,
            text,
            &path.child(field),
            errors,
        );
    }
}

fn failure_policy(spec: &Value, path: &Path, errors: &mut Errors) {
    let rules = items(&spec["podFailurePolicy"]["rules"]);
    if rules.len() > MOST_RULES {
        errors.push(FieldError::too_many(path, rules.len(), 20));
    }
    for (at, rule) in rules.iter().enumerate() {
        let path = path.index(at);
        let action = path.child("action");
        match string(&rule["action"]) {
            "" => {
                let text = r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#;
                errors.push(FieldError::required(&action, text));
            }
            "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
                let text = "requires the backoffLimitPerIndex to be set";
                errors.push(FieldError::invalid(&action, "FailIndex", text));
            }
            _ => check::supported(&rule["action"], &action, ACTIONS, errors),
        }
        let codes = &rule["onExitCodes"];
        if !codes.is_null() {
            exit_codes(
                codes,
                &spec["template"]["spec"],
                &path.child("onExitCodes"),
                errors,
            );
        }
        let conditions = items(&rule["onPodConditions"]);
        for (at, one) in conditions.iter().enumerate() {
            let path = path.child("onPodConditions").index(at);
            let kind = string(&one["type"]);
            check::refuse(kind, names::qualified_name, &path.child("type"), errors);
            let text = r#"valid values: ["False" "True" "Unknown"]"#;
            if check::required(&one["status"], text, &path.child("status"), errors) {
                check::supported(&one["status"], &path.child("status"), STATUSES, errors);
            }
        }
        let which = match (codes.is_null(), conditions.is_empty()) {
            (true, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            (false, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            _ => continue,
        };
        errors.push(FieldError::new(ErrorKind::Invalid, &path, None, which));
    }
}

fn exit_codes(codes: &Value, pod: &Value, path: &Path, errors: &mut Errors) {
    let operator = &codes["operator"];
    let at = path.child("operator");
    if check::required(operator, r#"valid values: ["In" "NotIn"]"#, &at, errors) {
        check::supported(operator, &at, OPERATORS, errors);
    }
    if let Some(name) = codes["containerName"].as_str() {
        let lists = ["containers", "initContainers"];
        let mut known = lists.iter().flat_map(|list| items(&pod[*list]));
        if !known.any(|container| container["name"] == name) {
            let text = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(
                &path.child("containerName"),
                name,
                text,
            ));
        }
    }
    let (values, path) = (items(&codes["values"]), path.child("values"));
    match values.len() {
        0 => {
            let shown = codes["values"].clone();
            errors.push(FieldError::invalid(
                &path,
                shown,
                "at least one value is required",
            ));
        }
        more if more > 255 => errors.push(FieldError::too_many(&path, more, 255)),
        _ => {}
    }
    let numbers: Vec<i64> = values
        .iter()
        .map(|value| value.as_i64().unwrap_or(0))
        .collect();
    let mut known = BTreeSet::new();
    for (at, number) in numbers.iter().enumerate() {
        if operator == "In" && *number == 0 {
            let text = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(&path.index(at), *number, text));
        }
        if !known.insert(number) {
            errors.push(FieldError::duplicate(&path.index(at), *number));
        }
    }
    if !numbers.is_sorted() {
        let (shown, text) = (codes["values"].clone(), "must be ordered");
        errors.push(FieldError::invalid(&path, shown, text));
    }
}

fn success_policy(spec: &Value, path: &Path, errors: &mut Errors) {
    let policy = &spec["successPolicy"];
    if policy.is_null() {
        return;
    }
    if spec["completionMode"] != "Indexed" {
        let (value, text) = (policy.clone(), "requires indexed completion mode");
        errors.push(FieldError::invalid(path, value, text));
        return;
    }
    let (rules, path) = (items(&policy["rules"]), path.child("rules"));
    match rules.len() {
        0 => errors.push(FieldError::required(
            &path,
            "at least one rules must be specified when the successPolicy is specified",
        )),
        more if more > MOST_RULES => errors.push(FieldError::too_many(&path, more, 20)),
        _ => {}
    }
    for (at, rule) in rules.iter().enumerate() {
        let path = path.index(at);
        let count = &rule["succeededCount"];
        if count.is_null() && rule["succeededIndexes"].is_null() {
            let text = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(FieldError::required(&path, text));
        }
        let path = path.child("succeededCount");
        not_negative(count, &path, errors);
        let most = spec["completions"].as_i64().unwrap_or(i64::MAX);
        let text =
            format!("must be less than or equal to {most} (the number of specified completions)");
        check::between(count, i64::MIN..=most, &text, &path, errors);
    }
}

fn restart_policy(spec: &Value, path: &Path, errors: &mut Errors) {
    let path = path.child("template").child("spec").child("restartPolicy");
    let policy = string(&spec["template"]["spec"]["restartPolicy"]);
    match policy {
        "Always" | "" => errors.push(FieldError::required(
            &path,
            "valid values: \"OnFailure\", \"Never\"",
        )),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => errors.push(FieldError::invalid(
            &path,
            policy,
            "only \"Never\" is supported when podFailurePolicy is specified",
        )),
        "OnFailure" | "Never" => {}
        other => errors.push(FieldError::not_supported(
            &path,
            other,
            &["OnFailure", "Never"],
        )),
    }
}
