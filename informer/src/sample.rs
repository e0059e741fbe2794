//! Objects for unit tests, and how many cases their property tests try.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::ProptestConfig;

use crate::event::{Event, UpdateReason};
use crate::object::Stored;

/// `name@version` or `name@version/uid`.
pub(crate) fn map(text: &str) -> Arc<ConfigMap> {
    let (name, rest) = text.split_once('@').expect("name@version");
    let (version, uid) = rest.split_once('/').unwrap_or((rest, "u"));
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("n".to_owned());
    map.metadata.uid = Some(uid.to_owned());
    map.metadata.resource_version = Some(version.to_owned());
    Arc::new(map)
}

pub(crate) fn text(map: &ConfigMap) -> String {
    format!("{}@{}", map.name(), map.resource_version())
}

/// `+a@1`, `~a@1-2`, `-a@2`; `*` marks initial, `!` a tombstone, `s` a resync, `r` a relist. `-a@3<1` is the deletion at
/// version 3 of what the handler saw at version 1.
pub(crate) fn line(event: &Event<ConfigMap>) -> String {
    match event {
        Event::Added { object, initial } => {
            format!("+{}{}", text(object), if *initial { "*" } else { "" })
        }
        Event::Updated { old, new, reason } => {
            let mark = match reason {
                UpdateReason::Changed => "",
                UpdateReason::Relist => "r",
                UpdateReason::Resync => "s",
            };
            format!("~{}-{}{mark}", text(old), new.resource_version())
        }
        Event::Deleted {
            key,
            last,
            seen,
            tombstone,
        } => {
            let version = |state: &Option<Arc<ConfigMap>>| {
                let state = state.as_ref();
                state.map_or("?", |map| map.resource_version()).to_owned()
            };
            let (last, seen) = (version(last), version(seen));
            let differs = (last != seen).then(|| format!("<{seen}"));
            format!(
                "-{}@{last}{}{}",
                key.name,
                differs.unwrap_or_default(),
                if *tombstone { "!" } else { "" }
            )
        }
    }
}

pub(crate) fn added(object: &str) -> Event<ConfigMap> {
    Event::Added {
        object: map(object),
        initial: false,
    }
}

pub(crate) fn initial(object: &str) -> Event<ConfigMap> {
    Event::Added {
        object: map(object),
        initial: true,
    }
}

pub(crate) fn updated(old: &str, new: &str, reason: UpdateReason) -> Event<ConfigMap> {
    Event::Updated {
        old: map(old),
        new: map(new),
        reason,
    }
}

pub(crate) fn deleted(object: &str) -> Event<ConfigMap> {
    let last = map(object);
    Event::Deleted {
        key: last.key(),
        last: Some(Arc::clone(&last)),
        seen: Some(last),
        tombstone: false,
    }
}

/// `default` random cases, or as many as `PROPTEST_CASES` says.
pub(crate) fn cases(default: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default;
    }
    config
}
