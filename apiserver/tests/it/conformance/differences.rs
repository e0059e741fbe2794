//! The known differences of the built-in server: the title of the case and the reason.
//!
//! The table is strict: a listed case that passes fails the run.

/// A case with another answer.
pub struct Difference {
    /// The title of the case.
    pub case: &'static str,
    pub reason: &'static str,
    /// Each differing line contains one of these, and each of these occurs in one.
    pub expected: &'static [&'static str],
}

impl Difference {
    /// Whether the `lines` of a comparison are the expected ones. Equal lines begin with two blanks.
    /// If the code of an answer differs, its body differs, too: then only its message counts.
    pub fn explains(&self, lines: &[String]) -> bool {
        let mut other_answer = false;
        let mut differing = Vec::new();
        for line in lines {
            if line.starts_with("  ") {
                other_answer = false;
                continue;
            }
            let says = line.contains("+ .message: \"");
            if !other_answer || says {
                differing.push(line);
            }
            other_answer |= line.contains("\n+ < ");
        }
        let is_expected = |line: &&String| self.expected.iter().any(|part| line.contains(part));
        let occurs = |part: &&str| differing.iter().any(|line| line.contains(part));
        differing.iter().all(is_expected) && self.expected.iter().all(occurs)
    }
}

/// The differences of the built-in server.
pub const BUILT_IN: &[Difference] = &[
    Difference {
        case: "E-3: odd YAML: keys that are not text, duplicate keys, and unreadable documents",
        reason: "YAML is read by serde-saphyr: a key that is not text stays as it is written, and a duplicate key is not reported",
        expected: &[
            ".data.true: ",
            ".data.y: ",
            "already set in map",
            "cannot unmarshal bool",
            "< ",
            "yaml: unclosed bracket",
        ],
    },
    Difference {
        case: "CRD-6: a rule that is estimated to cost too much",
        reason: "the cost of a rule is not estimated when its definition is written; it is bounded when the rule runs",
        expected: &["- < 422\n+ < 201"],
    },
    Difference {
        case: "E-1 CRD-5: illegal labels in an update",
        reason: "a real server checks the metadata of an update three or four times, and lists each cause as often",
        expected: &["+ .details.causes: [{\"field\":\"metadata.labels\""],
    },
];
