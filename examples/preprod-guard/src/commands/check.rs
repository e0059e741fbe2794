//! The decision about a review in a file, without a cluster.

use std::sync::Arc;

use parking_lot::RwLock;
use reeve_clock::Clock;
use serde_json::Value;

use crate::config::Config;
use crate::kinds;
use crate::object::{Facts, Key};
use crate::program::BoxError;
use crate::state::State;
use crate::webhook::Guard;

/// Decides about an `AdmissionReview` in JSON. `objects` are those of the cluster: a list, as `kubectl get -o json` prints it.
/// Without it, the Namespace of the request has no label, and there are no other objects. Returns whether the request is allowed, and the answer in JSON.
///
/// # Errors
/// When a text is not JSON, or the first one is not a review.
pub async fn check(
    config: Config,
    review: &str,
    objects: Option<&str>,
) -> Result<(bool, String), BoxError> {
    let mut state = State::default();
    state.synced = true;
    let list: Value = objects
        .map(serde_json::from_str)
        .transpose()?
        .unwrap_or_default();
    let guarded = kinds::all(&config);
    for object in list["items"].as_array().into_iter().flatten() {
        let (version, kind) = (&object["apiVersion"], &object["kind"]);
        let known = guarded
            .iter()
            .find(|known| *version == known.resource.api_version && *kind == known.resource.kind);
        if let Some(known) = known {
            let metadata = &object["metadata"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = Key {
                group: known.resource.group.clone(),
                resource: known.resource.plural.clone(),
                namespace: text(&metadata["namespace"]),
                name: text(&metadata["name"]),
            };
            state.put(key, Facts::of(object, &config.mark));
        }
    }
    // The Namespace of the request exists; without an object in the list it has no label.
    let request: Value = serde_json::from_str(review)?;
    let namespace = &request["request"]["namespace"];
    if let Some(namespace) = namespace.as_str().map(Key::namespace)
        && state.get(&namespace).is_none()
    {
        state.put(namespace, Facts::default());
    }
    let clock = Clock::system();
    let state = Arc::new(RwLock::new(state));
    let guard = Guard::new(Arc::new(config), state, move || clock.now(), |_| {});
    let [decide, _] = guard.webhooks();
    let response = decide.answer(review.as_bytes()).await?;
    let text = String::from_utf8(response.to_json())?;
    Ok((response.allowed, text))
}
