//! Netlink, as far as the agent needs it: messages and attributes as bytes, a socket, transactions and dumps.
//!
//! The kernel answers a request before `send` returns, so a socket is used by one thread at a time, and waits only when
//! an answer is missing.

mod message;
mod socket;

pub(crate) use message::{Attributes, Message, Writer, text};
pub(crate) use socket::Socket;

use std::io;

/// `NLM_F_REQUEST`.
pub(crate) const REQUEST: u16 = 0x1;
/// `NLM_F_ACK`.
pub(crate) const ACK: u16 = 0x4;
/// `NLM_F_DUMP`: `NLM_F_ROOT` and `NLM_F_MATCH`.
pub(crate) const DUMP: u16 = 0x300;
/// `NLM_F_EXCL`: fails where the object exists.
pub(crate) const EXCLUSIVE: u16 = 0x200;
/// `NLM_F_CREATE`.
pub(crate) const CREATE: u16 = 0x400;
/// `NLM_F_APPEND`.
pub(crate) const APPEND: u16 = 0x800;

/// Why a request to the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// The kernel refused a message.
    #[error("the kernel refused {message}: {cause}")]
    Refused {
        /// The message, as it is named in the kernel's header files.
        message: &'static str,
        /// Its error.
        cause: io::Error,
    },
    /// The tables changed during a dump, each time it was tried.
    #[error("the tables changed while they were read")]
    Interrupted,
    /// The kernel's answer ends early or lacks an attribute.
    #[error("an answer of the kernel cannot be read: {0}")]
    Malformed(&'static str),
    /// The kernel has not answered.
    #[error("the kernel did not answer")]
    NoAnswer,
}

// === impl Error ===

impl Error {
    /// The error number of the kernel.
    #[must_use]
    pub fn number(&self) -> Option<i32> {
        match self {
            Self::Socket(cause) | Self::Refused { cause, .. } => cause.raw_os_error(),
            Self::Interrupted | Self::Malformed(_) | Self::NoAnswer => None,
        }
    }

    /// Whether the object or element does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.number() == Some(rustix::io::Errno::NOENT.raw_os_error())
    }

    /// Whether the tables are not as they were read: an element ended or was added meanwhile. Another look resolves it.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_missing()
            || matches!(self, Self::Interrupted)
            || self.number() == Some(rustix::io::Errno::EXIST.raw_os_error())
    }

    /// A name for metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "netlink_refused",
            Self::Interrupted => "netlink_interrupted",
            Self::Socket(_) | Self::Malformed(_) | Self::NoAnswer => "netlink",
        }
    }
}
