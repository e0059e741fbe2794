//! A netlink socket: transactions, requests and dumps, each with its answers.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto,
    socket_with,
};

use super::{ACK, DUMP, Error, Message, REQUEST, Writer};

/// `NLMSG_ERROR`: an error number, 0 for an acknowledgement.
const ERROR: u16 = 2;
/// `NLMSG_DONE`: the end of a dump.
const DONE: u16 = 3;
/// `NLM_F_DUMP_INTR`: the tables changed during the dump.
const CHANGED: u16 = 0x10;

/// The limit of one transaction that is requested of the kernel, which allocates nothing for it in advance.
const SEND_BUFFER: usize = 256 << 20;
/// The buffer for answers.
const RECEIVE_BUFFER: usize = 16 << 20;
/// How long an answer may take that is not there when `send` returns.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a dump is begun again while the tables change.
const DUMPS: usize = 8;
/// The kernel's dumps come in pieces of at most 32 KiB, its errors repeat a refused message of at most that size.
const RECEIVE: usize = 256 << 10;

/// A socket of one netlink protocol.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
    /// The name of a message type, for errors.
    names: fn(u16) -> &'static str,
}

// === impl Socket ===

impl Socket {
    /// Opens a socket in the network namespace of the calling thread; without a protocol, of routes and addresses
    /// (`NETLINK_ROUTE`, which is 0).
    ///
    /// # Errors
    /// When the kernel has no such protocol.
    pub(crate) fn open(
        protocol: Option<Protocol>,
        names: fn(u16) -> &'static str,
    ) -> io::Result<Self> {
        let descriptor = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        bind(&descriptor, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&descriptor, Timeout::Recv, Some(PATIENCE))?;
        // Beyond net.core.wmem_max only with CAP_NET_ADMIN of the machine: in a container's user namespace the limit stays.
        if sockopt::set_socket_send_buffer_size_force(&descriptor, SEND_BUFFER).is_err() {
            sockopt::set_socket_send_buffer_size(&descriptor, SEND_BUFFER)?;
        }
        if sockopt::set_socket_recv_buffer_size_force(&descriptor, RECEIVE_BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&descriptor, RECEIVE_BUFFER)?;
        }
        Ok(Self {
            descriptor,
            sequence: 0,
            buffer: vec![0; RECEIVE],
            names,
        })
    }

    /// The bytes that one transaction may have.
    ///
    /// # Errors
    /// When the kernel does not report it.
    pub(crate) fn limit(&self) -> io::Result<usize> {
        Ok(sockopt::socket_send_buffer_size(&self.descriptor)? / 2)
    }

    /// The number of the next message.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        // 0 is the number of messages that no request caused.
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    /// Sends a whole transaction, of which the message with the number `acknowledged` has [`ACK`] set.
    ///
    /// # Errors
    /// The kernel's first error: nothing of the transaction is in force then.
    pub(crate) fn transact(&mut self, writer: &Writer, acknowledged: u32) -> Result<(), Error> {
        self.drain();
        self.send(writer)?;
        let mut done = false;
        let mut refused = None;
        // All answers are there already, so the first read without one is the end.
        loop {
            match self.receive(RecvFlags::DONTWAIT) {
                Ok(length) => {
                    for message in Message::all(&self.buffer[..length])? {
                        match outcome(&message, self.names) {
                            Some(Ok(())) => done |= message.sequence == acknowledged,
                            Some(Err(error)) => refused = refused.or(Some(error)),
                            None => {}
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // More messages were refused than the buffer has room for; the first ones are there.
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match refused {
            Some(error) => Err(error),
            None if done => Ok(()),
            None => Err(Error::NoAnswer),
        }
    }

    /// Sends one request, and passes each message of its answer to `each`.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn request(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Writer),
        mut each: impl FnMut(&Message<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.drain();
        let sequence = self.next_sequence();
        let mut writer = Writer::default();
        writer.message(kind, REQUEST | ACK, sequence, body);
        self.send(&writer)?;
        self.answers(sequence, &mut each)
    }

    /// Sends a dump request, and returns what `read` makes of its messages.
    ///
    /// # Errors
    /// The kernel's; [`Error::Interrupted`] when the tables changed during each of several dumps.
    pub(crate) fn dump<T>(
        &mut self,
        kind: u16,
        body: impl Fn(&mut Writer),
        mut read: impl FnMut(&Message<'_>, &mut Vec<T>) -> Result<(), Error>,
    ) -> Result<Vec<T>, Error> {
        for _ in 0..DUMPS {
            self.drain();
            let sequence = self.next_sequence();
            let mut writer = Writer::default();
            writer.message(kind, REQUEST | DUMP, sequence, &body);
            self.send(&writer)?;
            let mut found = Vec::new();
            match self.answers(sequence, &mut |message| read(message, &mut found)) {
                Err(Error::Interrupted) => {}
                result => return result.map(|()| found),
            }
        }
        Err(Error::Interrupted)
    }

    /// Reads until the end of the answer to `sequence`.
    fn answers(
        &mut self,
        sequence: u32,
        each: &mut dyn FnMut(&Message<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut changed = false;
        loop {
            let length = match self.receive(RecvFlags::empty()) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Error::NoAnswer);
                }
                Err(error) => return Err(error.into()),
            };
            for message in Message::all(&self.buffer[..length])? {
                if message.sequence != sequence {
                    continue;
                }
                changed |= message.flags & CHANGED != 0;
                match outcome(&message, self.names) {
                    Some(Ok(())) if changed => return Err(Error::Interrupted),
                    Some(result) => return result,
                    None => each(&message)?,
                }
            }
        }
    }

    fn send(&self, writer: &Writer) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        let sent = sendto(
            &self.descriptor,
            writer.bytes(),
            SendFlags::empty(),
            &kernel,
        )?;
        if sent == writer.len() {
            Ok(())
        } else {
            Err(io::Error::other("the kernel took a part of the request"))
        }
    }

    fn receive(&mut self, flags: RecvFlags) -> io::Result<usize> {
        loop {
            match recv(&self.descriptor, &mut self.buffer[..], flags) {
                Ok((length, _)) if length > RECEIVE => {
                    return Err(io::Error::other(
                        "an answer of the kernel exceeds the buffer",
                    ));
                }
                Ok((length, _)) => return Ok(length),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Discards what an earlier request left behind.
    fn drain(&mut self) {
        while self.receive(RecvFlags::DONTWAIT).is_ok() {}
    }
}

/// The end of an answer: an acknowledgement, the end of a dump, or an error.
fn outcome(message: &Message<'_>, names: fn(u16) -> &'static str) -> Option<Result<(), Error>> {
    let number = message
        .body
        .first_chunk::<4>()
        .map(|bytes| i32::from_ne_bytes(*bytes));
    if message.kind == DONE {
        // A dump that fails midway ends with its error.
        return Some(match number {
            Some(number) if number < 0 => Err(Error::Refused {
                message: "a dump",
                cause: io::Error::from_raw_os_error(number.saturating_neg()),
            }),
            _ => Ok(()),
        });
    }
    if message.kind != ERROR {
        return None;
    }
    let refused = message
        .body
        .get(8..10)
        .map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    Some(match number {
        Some(0) => Ok(()),
        Some(number) => Err(Error::Refused {
            message: refused.map_or("a message", names),
            cause: io::Error::from_raw_os_error(number.saturating_neg()),
        }),
        None => Err(Error::Malformed("an error")),
    })
}
