//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use ipblock_operator::duration;
use ipblock_operator::target::Target;

/// Lists, bans and unbans IP addresses with IPBlock objects, and says why an address is banned.
///
/// It needs the rights on ipblocks that a command uses, and for full answers the right to get the operator's ConfigMap.
/// Exit status: 0 for success, 1 when something failed, was refused or is not as requested, 2 for a wrong command line.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-ipb",
    bin_name = "kubectl ipb",
    version,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  kubectl ipb list -A --phase active --sort-by expires
  kubectl ipb ban 192.0.2.7 --for 2h --reason 'port scan' --wait
  kubectl ipb why 192.0.2.7
  kubectl ipb unban 192.0.2.7 --wait
  kubectl ipb check addresses.txt
  kubectl ipb import decisions.json --for 4h --dry-run
  kubectl ipb import reputation.txt --as-list reputation --for 2d
  kubectl ipb export -A -o csv")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten, next_help_heading = "Global options")]
    pub(crate) access: Access,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List blocks
    List(List),
    /// Ban an address or range: create its block, or ban again with the one there is
    Ban(Ban),
    /// Lift the ban of an address, a range or a block
    Unban(Unban),
    /// Say whether an address is banned, until when, by what, and why not
    Why(Why),
    /// Check each address of a file: banned, refused by a rule, or free
    Check(Check),
    /// Count blocks by source, network and phase
    Top(Top),
    /// Ban the addresses of a file: a plain list, CSV, JSON, or decisions of CrowdSec
    Import(Import),
    /// Print the banned addresses as a plain list, CSV or JSON
    Export(Export),
    /// Print completions, as kubectl asks its plugins
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete(Complete),
}

/// How the cluster is reached, as in kubectl.
#[derive(Clone, Debug, Args)]
pub(crate) struct Access {
    /// Namespace of the blocks. Default: that of the kubeconfig's context
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,

    /// The kubeconfig
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) as_user: Option<String>,

    /// Group to impersonate; may be repeated
    #[arg(long, global = true, value_name = "GROUP", requires = "as_user")]
    pub(crate) as_group: Vec<String>,

    /// Namespace of the operator, where its ConfigMap is
    #[arg(
        long,
        global = true,
        value_name = "NAMESPACE",
        default_value = "default",
        env = "IPBLOCK_OPERATOR_NAMESPACE"
    )]
    pub(crate) operator_namespace: String,

    /// The longest time of one request: 10s, 1m
    #[arg(long, global = true, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) request_timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) which: Which,

    /// The format: wide, json, yaml or name. Default: a table
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Format>,

    /// The order. Default: by namespace and name
    #[arg(long, value_enum, value_name = "ORDER")]
    pub(crate) sort_by: Option<Order>,

    /// Leave out the head of the table
    #[arg(long)]
    pub(crate) no_headers: bool,
}

/// Which blocks.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The blocks of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    /// Only in this phase; several with commas between them
    #[arg(long, value_name = "PHASE", value_delimiter = ',')]
    pub(crate) phase: Vec<PhaseName>,

    /// Only from this source, such as manual or grafana
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,

    /// Only what overlaps this address or range
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<Target>,

    /// Labels of the blocks, as in kubectl
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Ban {
    /// The address or range: 192.0.2.7, 2001:db8::7, 192.0.2.0/24
    #[arg(value_name = "ADDRESS")]
    pub(crate) target: Target,

    #[command(flatten)]
    pub(crate) lasting: Lasting,

    /// Why it is banned, in words
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// A free label, for example for dashboards; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,

    /// The person or system that asks for the ban. Default: the user that the API server sees, or $USER
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,

    /// The source in the block
    #[arg(long, value_name = "SOURCE", default_value = "manual")]
    pub(crate) source: String,

    /// Prolong a ban that stands, so that it lasts --for from now on
    #[arg(long)]
    pub(crate) extend: bool,

    /// Make a block of its own although a block of another name bans the address already
    #[arg(long)]
    pub(crate) force: bool,

    /// Let the API server check everything and store nothing
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) wait: Wait,
}

/// How long a ban lasts.
#[derive(Clone, Debug, Args)]
pub(crate) struct Lasting {
    /// How long the ban lasts: 10m, 1h30m, 2d, 1w; forever for a ban without end
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = lasting)]
    pub(crate) length: Length,
}

/// How long a ban lasts; `None`: without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(pub(crate) Option<Duration>);

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Wait {
    /// Wait until the gateway has done it
    #[arg(long)]
    pub(crate) wait: bool,

    /// How long --wait waits
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Unban {
    /// An address, a range, or the name of a block
    #[arg(value_name = "ADDRESS|NAME")]
    pub(crate) what: String,

    /// Also lift the bans of ranges around the address and of addresses inside of the range
    #[arg(long)]
    pub(crate) overlapping: bool,

    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The address or range
    #[arg(value_name = "ADDRESS")]
    pub(crate) target: Target,

    /// The format. Default: text
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Data>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// A file with one address or range a line, or - for the standard input; # and ; begin comments
    #[arg(value_name = "FILE")]
    pub(crate) file: String,

    /// The format. Default: a table
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Data>,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The most rows of each table
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The file, or - for the standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: String,

    /// The format of the file. Default: found by its content
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) format: import_format::Format,

    /// How long an entry without a duration of its own is banned: 10m, 1h30m, 2d, 1w, forever
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = lasting)]
    pub(crate) length: Length,

    /// Write BlockLists NAME-0, NAME-1, … of 5,000 entries each, not a block for each entry. What the file does not have
    /// any more is removed from the lists that earlier imports of this name made; a file with nothing to ban removes
    /// nothing. Only set engines enforce lists
    #[arg(long, value_name = "NAME", value_parser = list_name)]
    pub(crate) as_list: Option<String>,

    /// The source in the blocks or lists
    #[arg(long, value_name = "SOURCE", default_value = "import")]
    pub(crate) source: String,

    /// The reason of entries without one
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Prolong bans that stand; without it an entry of a list keeps its end
    #[arg(long)]
    pub(crate) extend: bool,

    /// Let the API server check every entry and store nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// With --as-list: also a file that removes at least half of the bans, and at least 100
    #[arg(long, requires = "as_list")]
    pub(crate) force: bool,

    /// Requests at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) concurrency: u16,
}

/// The formats of a file of addresses.
pub(crate) mod import_format {
    use clap::ValueEnum;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
    pub(crate) enum Format {
        /// The one that the content looks like
        Auto,
        /// One address or range a line; # and ; begin comments
        Plain,
        /// Columns ip, duration, reason; or those that the first line names, as in cscli decisions list -o raw
        Csv,
        /// An export of this program, a list of decisions, cscli decisions list -o json, or kubectl get ipb -o json
        Json,
    }
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) which: Which,

    /// The format
    #[arg(short, long, value_enum, default_value = "plain")]
    pub(crate) output: ExportFormat,
}

#[derive(Debug, Args)]
pub(crate) struct Complete {
    /// The words after the plugin's name; the last one is not complete
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The table with more columns
    Wide,
    Json,
    Yaml,
    /// ipblock.ops.yiiong.top/NAME
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Data {
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One address or range a line
    Plain,
    /// With a head: ip, duration (what is left of it), reason, source, by
    Csv,
    /// What `import` reads back
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The next end first, bans without end last
    Expires,
    /// The youngest block first
    Age,
    /// By address
    Address,
    /// By name
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PhaseName {
    Pending,
    Active,
    Expired,
    Skipped,
    Failed,
}

// === impl PhaseName ===

impl PhaseName {
    /// The text in the status.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// The command line of the program, for completions and the manual page.
#[must_use]
pub fn command() -> clap::Command {
    Arguments::command()
}

fn time(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| match error {
        duration::Error::Zero(_) | duration::Error::Negative(_) => {
            "a time above zero is expected, for example 10s or 1m".to_owned()
        }
        error => error.to_string(),
    })
}

/// A name for lists: with a number behind it, the name of an object and the value of a label.
fn list_name(text: &str) -> Result<String, String> {
    let letters = text
        .chars()
        .all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '-'));
    let ends = text.starts_with('-') || text.ends_with('-');
    if text.is_empty() || text.len() > 52 || !letters || ends {
        return Err(
            "up to 52 small letters, digits and hyphens between them are expected".to_owned(),
        );
    }
    Ok(text.to_owned())
}

/// A length of a ban: a duration, or `forever`.
pub(crate) fn lasting(text: &str) -> Result<Length, String> {
    if matches!(text, "forever" | "never") {
        return Ok(Length(None));
    }
    let length = duration::parse(text).map_err(|error| match error {
        // The remedy of a block is another one: there the duration is left out.
        duration::Error::Zero(text) => {
            format!("duration {text} is zero; write for example 10m, or forever")
        }
        duration::Error::TooLong(text) => {
            format!("duration {text} is longer than 100 years; write forever for a ban without end")
        }
        error => format!("{error}; or forever"),
    })?;
    Ok(Length(Some(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_line_is_read_or_refused_with_a_reason() {
        for (line, part) in [
            ("ban 192.0.2.7 --for 2h --tag a --tag b -n web", ""),
            ("list -A --phase active,pending --sort-by expires", ""),
            ("ban 192.0.2.7 --for forever", ""),
            ("ban 192.0.2.256", "neither an IP address nor a CIDR"),
            ("ban 192.0.2.7 --for 2", "number without a unit"),
            ("ban 192.0.2.7 --for soon", "or forever"),
            (
                "ban 192.0.2.7 --for 0s",
                "is zero; write for example 10m, or forever",
            ),
            (
                "ban 192.0.2.7 --for 200000w",
                "write forever for a ban without end",
            ),
            ("ban 192.0.2.7 --wait --timeout 0s", "a time above zero"),
            ("list -A -n web", "cannot be used with"),
            ("ban 192.0.2.7 --dry-run --wait", "cannot be used with"),
            ("list --phase banned", "possible values: pending"),
            ("why 192.0.2.7 --as-group ops", "--as <USER>"),
            ("import f --as-list feed-a", ""),
            ("import f --as-list Feed", "small letters"),
            ("import f --as-list feed-", "small letters"),
        ] {
            let words = std::iter::once("ipb").chain(line.split(' '));
            match Arguments::try_parse_from(words) {
                Ok(_) => assert_eq!(part, "", "{line}"),
                Err(error) => {
                    assert!(!part.is_empty(), "{line}: {error}");
                    assert!(error.to_string().contains(part), "{line}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_length_is_a_duration_or_without_end() {
        assert_eq!(lasting("forever"), Ok(Length(None)));
        assert_eq!(lasting("90m"), Ok(Length(Some(Duration::from_secs(5400)))));
        assert!(lasting("-1h").is_err());
    }
}
