//! A switch with an environment variable.

use std::ffi::OsStr;

use clap::builder::{BoolishValueParser, PossibleValue, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, Command, Error};

/// As [`BoolishValueParser`], for a switch that is on by default: with a variable that is set and empty, it is on.
#[derive(Clone, Debug, Default)]
pub(super) struct OnIfEmpty(BoolishValueParser);

// === impl OnIfEmpty ===

impl TypedValueParser for OnIfEmpty {
    type Value = bool;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<bool, Error> {
        self.0.parse_ref(command, argument, value)
    }

    fn parse_ref_(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<bool, Error> {
        if source == ValueSource::EnvVariable && value.is_empty() {
            return Ok(true);
        }
        self.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}
