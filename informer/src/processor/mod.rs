//! From the store to the handlers: each handler has a bounded queue, and a task, of its own.
//!
//! A change enters the queues of all handlers under one lock, in the same step in which it enters the store. The many
//! events of a list follow that step in turns of the task ([`Recipients`]). Handlers run later, one event after the other, each in a task of its own, or, as an option, in the informer's. The handler's
//! [`Policy`] decides what happens when it does not keep up. A panic of a handler is caught and counted, and the next
//! event is delivered.

mod fan_out;
mod handle;
mod handler;
mod listener;
mod queue;
mod replay;
mod stream;

pub(crate) use fan_out::{Processor, Recipients};
pub use handle::{HandlerEnded, HandlerHandle};
pub(crate) use handler::Receiver;
pub use handler::{AsyncEventHandler, EventHandler, Filtered, HandlerOptions, Policy};
pub(crate) use listener::Listener;
pub use stream::EventStream;
pub(crate) use stream::channel;
