//! Command lines as the programs of Kubernetes read them, with one table of flags for each program.
//!
//! The table is text: a flag a line, its name and the type of its value as the program's `--help` shows it. A flag without a
//! value is a `bool`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::http::duration;

/// How a program writes its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `--name=value` and `-v 2`. (Go: `spf13/pflag`.)
    Long,
    /// `--name=value` and `-name value`. (Go: `flag`.)
    Go,
}

/// The flags of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// The name of the program.
    pub(super) name: &'static str,
    pub(super) syntax: Syntax,
    /// The table of the flags.
    pub(super) table: &'static str,
    /// Names of flags that have an effect, and descriptions of it.
    pub(super) honoured: &'static [(&'static str, &'static str)],
}

/// The flags of a command line with their values, in the order of the line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given(BTreeMap<&'static str, Vec<String>>);

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A request for the list of flags.
    Help,
    /// The flags to run with.
    Run(Given),
}

// === impl Program ===

impl Program {
    fn flags(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        self.table.lines().filter_map(|line| line.split_once(' '))
    }

    /// Reads the arguments after the name of the program.
    ///
    /// # Errors
    /// The text for an unknown flag, a value of a wrong type, a missing value, and an argument that is not a flag.
    pub(super) fn read(&self, arguments: &[String]) -> Result<Line, String> {
        let flags: BTreeMap<&str, &str> = self.flags().collect();
        let mut given = Given::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(text) = self.name_and_value(argument)? else {
                return Err(self.not_a_flag(argument));
            };
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text.as_str(), None),
            };
            // Names with underscores are those of old flags with hyphens.
            let name = name.replace('_', "-");
            if name == "help" || name == "h" {
                return Ok(Line::Help);
            }
            let Some((&name, &kind)) = flags.get_key_value(name.as_str()) else {
                return Err(self.unknown(argument, &name));
            };
            let value = match value {
                Some(value) => value,
                None if matches!(kind, "bool" | "version") => "true".to_owned(),
                None => match rest.next() {
                    Some(value) => value.clone(),
                    None => return Err(format!("flag needs an argument: --{name}")),
                },
            };
            check(kind, &value).map_err(|why| {
                format!("invalid argument {value:?} for \"--{name}\" flag: {why}")
            })?;
            given.0.entry(name).or_default().push(value);
        }
        Ok(Line::Run(given))
    }

    /// `name` or `name=value` of an argument that is a flag; `None` for another one.
    fn name_and_value(&self, argument: &str) -> Result<Option<String>, String> {
        if let Some(text) = argument.strip_prefix("--") {
            let is_name = !text.is_empty() && !text.starts_with(['-', '=']);
            return if is_name {
                Ok(Some(text.to_owned()))
            } else {
                Err(format!("bad flag syntax: {argument}"))
            };
        }
        let Some(text) = argument.strip_prefix('-').filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        match (self.syntax, text) {
            (Syntax::Go, _) | (Syntax::Long, "h" | "v") => Ok(Some(text.to_owned())),
            (Syntax::Long, _) => {
                // The only short flags are `-h` and `-v`; a value may follow without a space.
                let level = text.strip_prefix('v').ok_or_else(|| {
                    let first = text.chars().next().unwrap_or('-');
                    format!("unknown shorthand flag: '{first}' in {argument}")
                })?;
                let level = level.strip_prefix('=').unwrap_or(level);
                Ok(Some(format!("v={level}")))
            }
        }
    }

    fn unknown(&self, argument: &str, name: &str) -> String {
        match self.syntax {
            Syntax::Long => format!("unknown flag: --{name}"),
            Syntax::Go => {
                let flag = argument.split('=').next().unwrap_or(argument);
                let name = flag.trim_start_matches('-');
                format!("flag provided but not defined: -{name}")
            }
        }
    }

    fn not_a_flag(&self, argument: &str) -> String {
        match self.syntax {
            Syntax::Long => format!(
                "{:?} does not take any arguments, got [{argument:?}]",
                self.name
            ),
            Syntax::Go => format!("{argument:?} is not a valid flag"),
        }
    }

    /// The list of flags: those with an effect and their descriptions, then the others.
    pub(super) fn help(&self) -> String {
        let mut text = format!(
            "reeve-apiserver in the place of {name}, for tests.\n\nUsage:\n  {name} [flags]\n\nFlags with an effect:\n",
            name = self.name
        );
        let kind_of: BTreeMap<&str, &str> = self.flags().collect();
        let shown = |name: &str| match kind_of.get(name).copied() {
            None | Some("bool") => format!("      --{name}"),
            Some(kind) => format!("      --{name} {kind}"),
        };
        for (name, description) in self.honoured {
            text.push_str(&format!("{}\n            {description}\n", shown(name)));
        }
        text.push_str("\nFlags that are accepted and have no effect:\n");
        for (name, _) in self.flags() {
            if !self.is_honoured(name) {
                text.push_str(&shown(name));
                text.push('\n');
            }
        }
        text
    }

    fn is_honoured(&self, name: &str) -> bool {
        self.honoured.iter().any(|(honoured, _)| *honoured == name)
    }

    /// The given flags that have no effect.
    pub(super) fn without_effect(&self, given: &Given) -> Vec<&'static str> {
        let names = given.0.keys().copied();
        names.filter(|name| !self.is_honoured(name)).collect()
    }
}

// === impl Given ===

impl Given {
    /// The value of a flag; of several the last one.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(String::as_str)
    }

    /// All values of a flag.
    pub(super) fn values(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The items of all values of a flag, which are lists with commas.
    pub(super) fn items(&self, name: &str) -> impl Iterator<Item = &str> {
        let items = self.values(name).iter().flat_map(|list| list.split(','));
        items.filter(|item| !item.is_empty())
    }

    /// Whether a flag is set; `None` if it is not given.
    pub(super) fn is_set(&self, name: &str) -> Option<bool> {
        boolean(self.value(name)?)
    }
}

/// A value of a flag without one. (Go: `strconv.ParseBool`.)
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn check(kind: &str, value: &str) -> Result<(), String> {
    let syntax = |function: &str| format!("{function}: parsing {value:?}: invalid syntax");
    match kind {
        "bool" if boolean(value).is_none() => Err(syntax("strconv.ParseBool")),
        "int" if value.parse::<i64>().is_err() => Err(syntax("strconv.ParseInt")),
        "float" | "float32" if value.parse::<f64>().is_err() => Err(syntax("strconv.ParseFloat")),
        "ip" if value.parse::<IpAddr>().is_err() => Err(format!("failed to parse IP: {value:?}")),
        "duration" => duration::parse(value).map(|_| ()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        name: "program",
        syntax: Syntax::Long,
        table: "bind-address ip\nevent-ttl duration\nkey-file stringArray\nlists strings\nport int\nprofiling bool\nv int\nversion version",
        honoured: &[("port", "The port.")],
    };

    fn read(line: &str) -> Result<Line, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        PROGRAM.read(&arguments)
    }

    fn given(line: &str) -> Given {
        match read(line).unwrap() {
            Line::Run(given) => given,
            Line::Help => panic!("{line} asks for help"),
        }
    }

    #[test]
    fn a_value_follows_an_equals_sign_or_is_the_next_argument() {
        let line = given("--port=1 --port 2 --profiling --key_file=a --key-file b -v=4");
        assert_eq!(line.value("port"), Some("2"));
        assert_eq!(line.is_set("profiling"), Some(true));
        assert_eq!(line.values("key-file"), ["a", "b"]);
        assert_eq!(line.value("v"), Some("4"));
        assert_eq!(given("-v 2").value("v"), Some("2"));
        assert_eq!(given("-v8").value("v"), Some("8"));
        assert_eq!(given("--profiling=false").is_set("profiling"), Some(false));
        assert_eq!(given("").is_set("profiling"), None);
        let lists = given("--lists=a,b --lists= --lists=c");
        assert_eq!(lists.items("lists").collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn a_wrong_command_line_is_refused_with_the_flag() {
        for (line, expected) in [
            ("--nosuch", "unknown flag: --nosuch"),
            ("--nosuch=1", "unknown flag: --nosuch"),
            ("-x", "unknown shorthand flag: 'x' in -x"),
            ("--port", "flag needs an argument: --port"),
            (
                "word",
                "\"program\" does not take any arguments, got [\"word\"]",
            ),
            ("--=1", "bad flag syntax: --=1"),
            (
                "--port=zz",
                "invalid argument \"zz\" for \"--port\" flag: strconv.ParseInt: parsing \"zz\": invalid syntax",
            ),
            (
                "--profiling=x",
                "invalid argument \"x\" for \"--profiling\" flag: strconv.ParseBool: parsing \"x\": invalid syntax",
            ),
            (
                "--event-ttl=5",
                "invalid argument \"5\" for \"--event-ttl\" flag: time: missing unit in duration \"5\"",
            ),
            (
                "--bind-address=x",
                "invalid argument \"x\" for \"--bind-address\" flag: failed to parse IP: \"x\"",
            ),
        ] {
            assert_eq!(read(line), Err(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_program_of_go_has_names_with_one_hyphen() {
        let program = Program {
            syntax: Syntax::Go,
            ..PROGRAM
        };
        let read = |line: &str| program.read(&[line.to_owned()]);
        let Ok(Line::Run(given)) = read("-port=3") else {
            panic!("it is a flag");
        };
        assert_eq!(given.value("port"), Some("3"));
        assert_eq!(
            read("-nosuch=1"),
            Err("flag provided but not defined: -nosuch".to_owned())
        );
        assert_eq!(read("word"), Err("\"word\" is not a valid flag".to_owned()));
    }

    #[test]
    fn the_help_has_each_flag_at_the_beginning_of_a_line() {
        assert_eq!(read("--port=1 --help"), Ok(Line::Help));
        assert_eq!(read("-h"), Ok(Line::Help));
        let help = PROGRAM.help();
        for (name, _) in PROGRAM.flags() {
            let starts = help
                .lines()
                .filter(|line| line.split_whitespace().next() == Some(&format!("--{name}")));
            assert_eq!(starts.count(), 1, "--{name} in\n{help}");
        }
    }

    #[test]
    fn flags_without_an_effect_are_named_once() {
        let line = given("--port=1 --v=1 --key-file=a --key-file=b");
        assert_eq!(PROGRAM.without_effect(&line), ["key-file", "v"]);
    }
}
