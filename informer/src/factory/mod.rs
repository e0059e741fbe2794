//! One informer for each kind, scope, selector and form, shared by all its users.

mod builder;
mod informer_factory;

pub use builder::FactoryBuilder;
pub use informer_factory::{InformerFactory, NotSynced};
