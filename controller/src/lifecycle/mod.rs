//! Runnables of a manager and their life: names, states, tickets and handles. Independent of controllers.

mod handle;
mod inspect;
mod names;
mod runnable;
mod state;
mod ticket;

pub use handle::Handle;
pub(crate) use handle::Owner;
pub use inspect::WatchError;
pub(crate) use inspect::{Id, Inspect};
pub(crate) use names::{Name, Names};
pub use runnable::Runnable;
pub(crate) use runnable::{Contend, Group, Planned};
pub use state::{RunnableHealth, State, Unavailable};
pub(crate) use ticket::{Board, Ending, Ticket, WeakBoard};
