//! A [`Document`] can be hidden: the port of `kube-rs/controller-rs`, the example of kube-rs.
//!
//! The controller reports in the status whether the document is hidden, and keeps a finalizer on it, so that it sees the
//! deletion. `controller/guide/from-kube-rs.md` walks through the port.

mod document;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use reeve_controller::client::{self, Patch};
use reeve_controller::prelude::*;
use reeve_controller::{controller, manager};
use serde_json::json;

pub use document::{Document, DocumentSpec, DocumentStatus};

/// The name of the controller in logs, metrics and Events.
pub const NAME: &str = "doc-controller";

/// The finalizer of a document.
pub const FINALIZER: &str = "documents.kube.rs";

/// How often a document is checked without a change.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// The reason why the controller cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The controller is not valid.
    #[error(transparent)]
    Controller(#[from] controller::BuildError),
    /// The manager refuses it.
    #[error(transparent)]
    Manager(#[from] manager::Error),
}

/// The reason why a reconcile fails.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("a document with the title \"illegal\" is not allowed")]
    IllegalDocument,
    #[error(transparent)]
    Client(#[from] client::Error),
}

/// The failures of reconciles by their error. The manager counts reconciles and measures their time.
#[derive(Clone, Default)]
struct Failures(Family<FailureLabels, Counter>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    error: &'static str,
}

/// Adds the controller to `manager`.
///
/// # Errors
/// If the manager already has this controller.
pub fn add(manager: &Manager) -> Result<(), AddError> {
    let failures = Failures::default();
    manager.metrics().register(|registry| {
        let help = "Failed reconciles of documents";
        registry.register("doc_ctrl_failures", help, failures.0.clone());
    });
    let reconciler = reconcile::object(move |ctx: Context, document: Arc<Document>| {
        let failures = failures.clone();
        async move {
            let reconciled = reconcile_document(&ctx, document).await;
            reconciled.map_err(|error| error_policy(&failures, error))
        }
    });
    let controller = Controller::builder(NAME)
        .for_kind::<Document>()
        .complete(reconciler)?;
    manager.add_controller(controller)?;
    Ok(())
}

async fn reconcile_document(ctx: &Context, document: Arc<Document>) -> Result<Outcome, Error> {
    finalizer::apply_or_cleanup(ctx, FINALIZER, document, async |event| match event {
        finalizer::Event::Apply(document) => apply(ctx, &document).await,
        finalizer::Event::Cleanup(document) => Ok(cleanup(ctx, &document)),
    })
    .await
}

/// Brings the status to the state that the document asks for.
async fn apply(ctx: &Context, document: &Document) -> Result<Outcome, Error> {
    if document.spec.title == "illegal" {
        return Err(Error::IllegalDocument);
    }
    let hide = document.spec.hide;
    if hide && !document.is_hidden() {
        let note = format!("Hiding `{}`", document.name_any());
        let events = ctx.events();
        events.event(document, EventType::Normal, "HideRequested", "Hiding", note);
    }
    let status = DocumentStatus { hidden: hide };
    if document.status.as_ref() != Some(&status) {
        let key = ObjectKey::of(document);
        let patch = Patch::merge(json!({"status": status}));
        ctx.client().patch_status::<Document>(&key, patch).await?;
    }
    Ok(Outcome::requeue_after(PERIOD))
}

/// Reports the deletion. The document is removed after it.
fn cleanup(ctx: &Context, document: &Document) -> Outcome {
    let note = format!("Delete `{}`", document.name_any());
    let events = ctx.events();
    events.event(
        document,
        EventType::Normal,
        "DeleteRequested",
        "Deleting",
        note,
    );
    Outcome::done()
}

/// Counts the failure, and decides about the next try.
fn error_policy(failures: &Failures, error: Error) -> reconcile::Error {
    let label = match &error {
        Error::IllegalDocument => "IllegalDocument",
        Error::Client(_) => "Client",
    };
    let labels = FailureLabels { error: label };
    failures.0.get_or_create(&labels).inc();
    match error {
        // A retry cannot help until the document is edited, which requests a reconcile.
        Error::IllegalDocument => reconcile::Error::terminal(error),
        Error::Client(_) => error.into(),
    }
}
