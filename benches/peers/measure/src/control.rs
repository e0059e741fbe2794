//! Orders to the canned server: `POST /control/…`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::flags::Flags;
use crate::report::Stop;

/// The canned server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Such as `http://127.0.0.1:18080`.
    pub address: String,
    /// Where the objects are, such as `https://127.0.0.1:18443`. By default the same.
    pub objects: String,
    /// The kind of this run, as in a path.
    pub kind: String,
}

// === impl Server ===

impl Server {
    /// Of `-server`, `-objects` and `-kind`.
    ///
    /// # Errors
    /// If a flag cannot be read.
    pub fn of(flags: &Flags) -> Result<Self, Stop> {
        let address = flags.text("server", "http://127.0.0.1:18080");
        Ok(Self {
            objects: flags.text("objects", &address),
            address,
            kind: flags.text("kind", "configmaps"),
        })
    }

    /// Replaces the objects of the kind by `count` new ones. Returns the version of the list.
    ///
    /// # Errors
    /// If the server refuses the order.
    pub fn reset(&self, count: usize) -> Result<u64, Stop> {
        let text = self.order("reset", &format!("n={count}"))?;
        text.parse()
            .map_err(|_| Stop::wrong(format!("{text:?}: no version")))
    }

    /// Changes `count` objects, from the first on and in rotation; `rate` a second, or as fast as
    /// possible if it is 0.
    ///
    /// # Errors
    /// If the server refuses the order.
    pub fn burst(&self, count: usize, rate: usize) -> Result<(), Stop> {
        self.order("burst", &format!("n={count}&rate={rate}"))
            .map(drop)
    }

    /// Ends all watches with 410, and changes object 0 without an event.
    ///
    /// # Errors
    /// If the server refuses the order.
    pub fn expire(&self) -> Result<(), Stop> {
        self.order("expire", "touch=1").map(drop)
    }

    /// Processor time of the server in seconds.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn cpu(&self) -> Result<f64, Stop> {
        let text = self.order("cpu", "")?;
        text.parse()
            .map_err(|_| Stop::wrong(format!("{text:?}: no processor time")))
    }

    /// Appends the body of the server's answer to a GET of `path`.
    ///
    /// # Errors
    /// If it does not answer with 200.
    pub fn read(&self, path: &str, body: &mut Vec<u8>) -> Result<(), Stop> {
        let mut read = || -> std::io::Result<()> {
            let host = self.address.trim_start_matches("http://");
            let mut stream = TcpStream::connect(host)?;
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            )?;
            let mut answer = BufReader::with_capacity(1 << 18, stream);
            let mut line = String::new();
            answer.read_line(&mut line)?;
            if !line.starts_with("HTTP/1.1 200") {
                return Err(std::io::Error::other(line));
            }
            while line.trim_end() != "" {
                line.clear();
                answer.read_line(&mut line)?;
            }
            answer.read_to_end(body).map(drop)
        };
        read().map_err(|error| Stop::wrong(format!("{}{path}: {error}", self.address)))
    }

    fn order(&self, order: &str, query: &str) -> Result<String, Stop> {
        let failed = |why: &dyn std::fmt::Display| {
            Stop::wrong(format!("{}/control/{order}: {why}", self.address))
        };
        let host = self.address.trim_start_matches("http://");
        let kind = &self.kind;
        let answer = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(host)?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            write!(
                stream,
                "POST /control/{order}?kind={kind}&{query} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        let answer = answer().map_err(|error| failed(&error))?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            _ => Err(failed(&answer)),
        }
    }
}
