//! `BINARY SCENARIO -peer=NAME [-flag=value …]`, as Go's flag package reads it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use crate::report::Stop;

/// The command line. A flag that the scenario did not read is an error when the report is printed: a
/// misspelt flag must not pass for a measurement.
#[derive(Debug)]
pub struct Flags {
    /// The scenario.
    pub scenario: String,
    /// The peer.
    pub peer: String,
    values: BTreeMap<String, String>,
    asked: RefCell<BTreeSet<String>>,
}

// === impl Flags ===

impl Flags {
    /// The command line of this process.
    ///
    /// # Errors
    /// If there is no scenario, or an argument is not `-name=value`.
    pub fn of_process(default_peer: &str) -> Result<Self, Stop> {
        Self::parse(std::env::args().skip(1), default_peer)
    }

    fn parse(
        mut arguments: impl Iterator<Item = String>,
        default_peer: &str,
    ) -> Result<Self, Stop> {
        let wrong = |text: &str| {
            Stop::wrong(format!(
                "{text}: expected SCENARIO -peer=NAME [-flag=value …]"
            ))
        };
        let scenario = arguments.next().ok_or_else(|| wrong("no scenario"))?;
        let mut values = BTreeMap::new();
        for argument in arguments {
            let (name, value) = argument
                .strip_prefix('-')
                .and_then(|flag| flag.strip_prefix('-').unwrap_or(flag).split_once('='))
                .ok_or_else(|| wrong(&argument))?;
            values.insert(name.to_owned(), value.to_owned());
        }
        let peer = values
            .remove("peer")
            .unwrap_or_else(|| default_peer.to_owned());
        Ok(Self {
            scenario,
            peer,
            values,
            asked: RefCell::default(),
        })
    }

    #[cfg(test)]
    pub(crate) fn parse_line(line: &str) -> Self {
        let words = line.split_whitespace().map(str::to_owned);
        Self::parse(words, "ours").expect("a command line")
    }

    /// The value of a flag, or its default.
    ///
    /// # Errors
    /// If the value cannot be read.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T, Stop> {
        self.asked.borrow_mut().insert(name.to_owned());
        match self.values.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| Stop::wrong(format!("-{name}={text}: not a value of this flag"))),
        }
    }

    /// The value of a text flag, or its default.
    pub fn text(&self, name: &str, default: &str) -> String {
        self.asked.borrow_mut().insert(name.to_owned());
        self.values
            .get(name)
            .map_or(default, String::as_str)
            .to_owned()
    }

    /// Flags that were given and not read.
    #[must_use]
    pub fn unknown(&self) -> Vec<&str> {
        let asked = self.asked.borrow();
        let unknown = self.values.keys().filter(|name| !asked.contains(*name));
        unknown.map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, Stop> {
        Flags::parse(line.split_whitespace().map(str::to_owned), "ours")
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        let flags = parse("wq -peer=floor --threads=4 -n=10").unwrap();
        assert_eq!(
            (flags.scenario.as_str(), flags.peer.as_str()),
            ("wq", "floor")
        );
        assert_eq!(flags.get("threads", 1).unwrap(), 4);
        assert_eq!(flags.get("n", 1).unwrap(), 10);
        assert!(flags.unknown().is_empty());
    }

    #[test]
    fn an_unknown_flag_is_named() {
        let flags = parse("wq -treads=4").unwrap();
        assert_eq!(flags.get("threads", 1).unwrap(), 1);
        assert_eq!(flags.unknown(), ["treads"]);
    }

    #[test]
    fn a_value_that_cannot_be_read_is_an_error() {
        assert!(parse("wq -n=many").unwrap().get("n", 1).is_err());
        assert!(parse("wq n=1").is_err());
        assert!(parse("").is_err());
    }
}
