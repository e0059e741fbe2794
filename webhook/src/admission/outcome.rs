//! What handlers may return.

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result of a handler: a decision `D`, or a `Result` of one.
///
/// An error is not a denial. The API server gets status 500 and applies the failure policy of the webhook, as when it cannot
/// reach the webhook at all.
#[diagnostic::on_unimplemented(
    message = "a handler returns `{D}` or a `Result` of it, and not `{Self}`"
)]
pub trait Outcome<D>: Send + 'static {
    /// The decision, or the error.
    ///
    /// # Errors
    /// The handler's.
    fn into_decision(self) -> Result<D, BoxError>;
}

impl Outcome<super::Verdict> for super::Verdict {
    fn into_decision(self) -> Result<Self, BoxError> {
        Ok(self)
    }
}

impl<K: Send + 'static> Outcome<super::Mutation<K>> for super::Mutation<K> {
    fn into_decision(self) -> Result<Self, BoxError> {
        Ok(self)
    }
}

impl<D: Send + 'static, E: Into<BoxError> + Send + 'static> Outcome<D> for Result<D, E> {
    fn into_decision(self) -> Result<D, BoxError> {
        self.map_err(Into::into)
    }
}
