//! What is run, and which figures are shown.

/// Scenarios that share one table.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) notes: &'static str,
    /// The canned server is needed.
    pub(crate) server: bool,
    pub(crate) columns: Vec<Column>,
    pub(crate) cases: Vec<Case>,
}

/// A peer, or a variant of one.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    pub(crate) peer: &'static str,
    pub(crate) flags: &'static [&'static str],
    /// The program that `program` starts and measures, by the flag `-program`.
    pub(crate) measures: Option<Program>,
    /// A variant runs only in the cases that name it.
    pub(crate) variant: bool,
    /// The column to compare with; its own name if others are compared with it.
    pub(crate) against: &'static str,
}

/// A binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    Ours,
    /// Ours of an earlier state, by `--before`.
    Before,
    Kube,
    Go,
    Server,
    Webhook,
    Load,
}

/// A scenario with its flags.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) title: &'static str,
    pub(crate) scenario: &'static str,
    /// The value of `-n`, before `--scale`.
    pub(crate) count: usize,
    pub(crate) flags: &'static [&'static str],
    /// Flags of one column, by its name.
    pub(crate) own_flags: &'static [(&'static str, &'static str)],
    /// The objects are read by TLS.
    pub(crate) secured: bool,
    /// The variants that take part.
    pub(crate) variants: &'static [&'static str],
    pub(crate) figures: &'static [Figure],
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Figure {
    /// A field of the report, or `extra.NAME`; compared with ours.
    Value {
        title: &'static str,
        field: &'static str,
        unit: Unit,
    },
    /// How often keys ran: the fewest runs, the most, and how many keys ran at all.
    Runs { title: &'static str },
}

/// How a figure is written, and whether more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A rate: more is better.
    PerSecond,
    /// Seconds that are divided by the count of the run and written as time an item.
    SecondsEach,
    Seconds,
    Nanoseconds,
    Microseconds,
    Megabytes,
    Bytes,
    /// A number without a unit: less is better.
    Factor,
}

// === impl Case ===

impl Case {
    /// Whether `column` takes part.
    pub(crate) fn includes(&self, column: &Column) -> bool {
        !column.variant || self.variants.contains(&column.name)
    }
}

// === impl Column ===

impl Column {
    /// A peer that takes part in every case, and is compared with ours.
    pub(crate) fn new(name: &'static str, program: Program, peer: &'static str) -> Self {
        Self {
            name,
            program,
            peer,
            flags: &[],
            measures: None,
            variant: false,
            against: "ours",
        }
    }

    /// Runs with these flags.
    pub(crate) fn flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    /// Starts and measures this program.
    pub(crate) fn measures(mut self, program: Program) -> Self {
        self.measures = Some(program);
        self
    }

    /// Runs only in the cases that name it.
    pub(crate) fn variant(mut self) -> Self {
        self.variant = true;
        self
    }

    /// Is compared with this column.
    pub(crate) fn against(mut self, name: &'static str) -> Self {
        self.against = name;
        self
    }
}

// === impl Figure ===

impl Figure {
    /// A field of the report.
    pub(crate) const fn value(title: &'static str, field: &'static str, unit: Unit) -> Self {
        Self::Value { title, field, unit }
    }
}
