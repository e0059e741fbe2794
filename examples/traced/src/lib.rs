//! A controller whose spans go to an OpenTelemetry collector: one for each reconcile, with its requests as children.
//!
//! The controller counts the words of every ConfigMap with a `text`, and puts the number into the annotation [`WORDS`].

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use reeve_controller::prelude::*;

#[cfg(feature = "otlp")]
mod export;

#[cfg(feature = "otlp")]
pub use export::{Exporter, spans};

/// The annotation with the number of words.
pub const WORDS: &str = "example.com/words";

/// Adds the controller to `manager`.
///
/// # Errors
/// As [`Manager::add_controller`].
pub fn add(manager: &Manager) -> Result<(), Box<dyn std::error::Error>> {
    let controller = Controller::builder("words")
        .for_kind::<ConfigMap>()
        .complete(reconcile::object(count))?;
    manager.add_controller(controller)?;
    Ok(())
}

async fn count(ctx: Context, map: Arc<ConfigMap>) -> Result<Outcome, reconcile::Error> {
    let Some(text) = map.data.as_ref().and_then(|data| data.get("text")) else {
        return Ok(Outcome::done());
    };
    let words = text.split_whitespace().count();
    if words == 0 {
        return Err(reconcile::Error::terminal("the text has no words"));
    }
    // What a reconcile logs is an event of its span.
    tracing::info!(words, "counted");
    ctx.client()
        .edit(&ObjectKey::of(&*map), |map: &mut ConfigMap| {
            let annotations = map.metadata.annotations.get_or_insert_default();
            annotations.insert(WORDS.to_owned(), words.to_string());
        })
        .await?;
    Ok(Outcome::done())
}
