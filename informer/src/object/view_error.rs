//! The error of a view that an entry cannot give.

/// A view that this form of the object cannot return.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The object has no JSON form.
    #[error("the object cannot be written as JSON: {0}")]
    Encode(String),
    /// The stored form holds the text of the object, which is not of the requested type.
    #[error("the object cannot be read as its {view}: {error}")]
    Undecodable {
        /// The requested view.
        view: &'static str,
        /// The error, without any of the object's content.
        error: String,
    },
    /// The stored form does not hold what the view needs.
    #[error("the stored form holds no {view}; store the kind as {option} to have it")]
    NotHeld {
        /// The requested view.
        view: &'static str,
        /// The store option that keeps it.
        option: &'static str,
    },
}
