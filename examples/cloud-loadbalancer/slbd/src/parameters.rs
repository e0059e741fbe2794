//! The parameters of a call: names and values as text, with typed access.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::cloud::Refusal;

/// The parameters that belong to every call and not to its action: protocol, signature and account.
pub(crate) const PROTOCOL: &[&str] = &[
    "AccessKeyId",
    "Format",
    "Signature",
    "SignatureMethod",
    "SignatureNonce",
    "SignatureType",
    "SignatureVersion",
    "Timestamp",
    "Version",
    "RegionId",
    "OwnerAccount",
    "OwnerId",
    "ResourceOwnerAccount",
    "ResourceOwnerId",
    "SecurityToken",
];

/// The most items of a numbered parameter that are read, such as `Tag.20`.
const MOST_NUMBERED: usize = 100;

/// The parameters of a call. An empty value counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(BTreeMap<String, String>);

// === impl Parameters ===

impl Parameters {
    /// Parameters of `Action=action`.
    #[must_use]
    pub fn action(action: &str) -> Self {
        Self::default().with("Action", action)
    }

    /// Sets a parameter.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a parameter.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    /// Sets the tags `Tag.1.Key`, `Tag.1.Value` and so on.
    pub fn set_tags<'a>(&mut self, tags: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (index, (key, value)) in tags.into_iter().enumerate() {
            self.set(&format!("Tag.{}.Key", index + 1), key);
            self.set(&format!("Tag.{}.Value", index + 1), value);
        }
    }

    /// All parameters.
    #[must_use]
    pub fn all(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The parameters of the action only.
    pub(crate) fn own(&self) -> impl Iterator<Item = (&String, &String)> {
        let own = |(name, _): &(&String, &String)| !PROTOCOL.contains(&name.as_str());
        self.0.iter().filter(own)
    }

    /// The value of `name`.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// The value of `name`, which must be there.
    ///
    /// # Errors
    /// `MissingParameter`.
    pub fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.text(name).ok_or_else(|| Refusal::missing(name))
    }

    /// The value of `name`, of at most `longest` characters. What is only given back is bounded, too: all of it is stored.
    ///
    /// # Errors
    /// `InvalidParameter` for a longer value.
    pub fn short(&self, name: &str, longest: usize) -> Result<Option<&str>, Refusal> {
        match self.text(name) {
            Some(text) if text.chars().count() > longest => Err(Refusal::invalid(name)),
            text => Ok(text),
        }
    }

    /// The value of `name` as a number in `range`.
    ///
    /// # Errors
    /// `InvalidParameter` for another value.
    pub fn integer(&self, name: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.map(Some).ok_or_else(|| Refusal::invalid(name))
    }

    /// The value of `name`, one of `values`.
    ///
    /// # Errors
    /// `InvalidParameter` for another value.
    pub fn one_of(&self, name: &str, values: &[&str]) -> Result<Option<&str>, Refusal> {
        match self.text(name) {
            Some(value) if !values.contains(&value) => Err(Refusal::invalid(name)),
            value => Ok(value),
        }
    }

    /// The value of `name`, `on` or `off`.
    ///
    /// # Errors
    /// `InvalidParameter` for another value.
    pub fn switch(&self, name: &str) -> Result<Option<bool>, Refusal> {
        Ok(self
            .one_of(name, &["on", "off"])?
            .map(|value| value == "on"))
    }

    /// The values of `name.1`, `name.2` and so on, up to the first that is absent.
    #[must_use]
    pub fn numbered(&self, name: &str) -> Vec<&str> {
        (1..=MOST_NUMBERED)
            .map_while(|index| self.text(&format!("{name}.{index}")))
            .collect()
    }

    /// The tags `Tag.1.Key`, `Tag.1.Value` and so on. A value may be absent.
    #[must_use]
    pub fn tags(&self) -> Vec<(&str, Option<&str>)> {
        let tag = |index: usize| {
            let key = self.text(&format!("Tag.{index}.Key"))?;
            Some((key, self.text(&format!("Tag.{index}.Value"))))
        };
        (1..=MOST_NUMBERED).map_while(tag).collect()
    }
}

impl From<BTreeMap<String, String>> for Parameters {
    fn from(parameters: BTreeMap<String, String>) -> Self {
        Self(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_value_counts_as_absent() {
        let parameters = Parameters::action("X").with("A", "");
        assert_eq!(parameters.text("A"), None);
        assert_eq!(
            parameters.required("A").unwrap_err().code,
            "MissingParameter"
        );
    }

    #[test]
    fn numbers_outside_of_their_range_are_refused() {
        let parameters = Parameters::default().with("A", 7).with("B", "x");
        assert_eq!(parameters.integer("A", 1..=9).unwrap(), Some(7));
        assert!(parameters.integer("A", 8..=9).is_err());
        assert!(parameters.integer("B", 1..=9).is_err());
        assert_eq!(parameters.integer("C", 1..=9).unwrap(), None);
    }

    #[test]
    fn a_text_that_is_too_long_is_refused() {
        let parameters = Parameters::default().with("A", "äöü");
        assert_eq!(parameters.short("A", 3).unwrap(), Some("äöü"));
        assert_eq!(
            parameters.short("A", 2).unwrap_err().code,
            "InvalidParameter"
        );
        assert_eq!(parameters.short("B", 2).unwrap(), None);
    }

    #[test]
    fn numbered_values_end_at_the_first_gap() {
        let mut parameters = Parameters::default()
            .with("Id.1", "a")
            .with("Id.2", "b")
            .with("Id.4", "d");
        parameters.set_tags([("k", "v"), ("l", "")]);
        assert_eq!(parameters.numbered("Id"), ["a", "b"]);
        assert_eq!(parameters.tags(), [("k", Some("v")), ("l", None)]);
    }

    #[test]
    fn the_protocol_is_not_part_of_the_action() {
        let parameters = Parameters::action("X")
            .with("Timestamp", "now")
            .with("Name", "n");
        let own: Vec<&str> = parameters.own().map(|(name, _)| name.as_str()).collect();
        assert_eq!(own, ["Action", "Name"]);
    }
}
