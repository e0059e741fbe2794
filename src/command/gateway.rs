//! `ipblock-operator gateway`.

use std::io::{self, Write as _};
use std::net::SocketAddr;

use ipblock_simulator::Gateway;
use reeve_clock::Clock;

/// Runs the simulated gateway alone: both engine APIs, and what it enforces at `/` and `/enforced`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// Address to listen at; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9521")]
    listen: SocketAddr,
}

/// Why the command ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The address cannot be bound.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// The address of the flag.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The ready line cannot be printed, or the signal not be awaited.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs until Ctrl-C. Prints one line when it is ready.
///
/// # Errors
/// See [`Error`].
pub(super) async fn run(arguments: Arguments, clock: Clock) -> Result<(), Error> {
    let gateway = Gateway::new(clock);
    let address = gateway
        .listen(arguments.listen)
        .map_err(|source| Error::Listen {
            address: arguments.listen,
            source,
        })?;
    let mut out = io::stdout();
    writeln!(
        out,
        "simulated gateway ready at http://{address}/ (iptables and xdp APIs; Ctrl-C ends it)"
    )?;
    out.flush()?;
    tokio::signal::ctrl_c().await?;
    Ok(())
}
