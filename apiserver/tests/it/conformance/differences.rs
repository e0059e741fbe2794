//! Where the built-in server is known to answer otherwise: the case's title and the reason.
//!
//! Strict: a case of this table that passes fails the run, so that the table says what is true.

const PROTOBUF: &str = "answers are not written in protobuf";
const MANAGED: &str = "managedFields are not kept";
const APPLY: &str = "server-side apply is not there: 415 with a text that says so";

/// A case that is answered otherwise.
pub struct Difference {
    /// Its title.
    pub case: &'static str,
    pub reason: &'static str,
    /// Each line that differs contains one of these, and each of these is in one.
    pub expected: &'static [&'static str],
}

impl Difference {
    /// Whether the `lines` of a comparison are those that are expected. Lines that do not differ begin with two blanks.
    /// Where the code of an answer differs, its body is another one: only what it says counts.
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

/// Of the built-in server.
pub const BUILT_IN: &[Difference] = &[
    Difference {
        case: "MF-1: managedFields name the manager, by default the user agent",
        reason: MANAGED,
        expected: &["+ .metadata.managedFields: (absent)"],
    },
    Difference {
        case: "MF-1: managedFields of a custom resource and of its status",
        reason: MANAGED,
        expected: &["+ .metadata.managedFields: (absent)"],
    },
    Difference {
        case: "SSA-1: an apply creates what is absent, and again changes nothing",
        reason: APPLY,
        expected: &[
            "+ < 415",
            "+ .message: \"server-side apply (application/apply-patch+yaml) is not supported",
        ],
    },
    Difference {
        case: "SSA-1: a conflicting apply names the other manager, and force takes over",
        reason: APPLY,
        expected: &[
            "+ < 415",
            "+ .message: \"server-side apply (application/apply-patch+yaml) is not supported",
        ],
    },
    Difference {
        case: "T-1: an Accept that cannot be served",
        reason: PROTOBUF,
        expected: &[
            "Available representations: application/json, application/yaml\"",
            "types are accepted: application/json, application/yaml\"",
        ],
    },
    Difference {
        case: "E-3: a protobuf answer is not forced",
        reason: PROTOBUF,
        expected: &["types are accepted: application/json, application/yaml\",\"metadata\""],
    },
    Difference {
        case: "CRD-6: a rule that is estimated to cost too much",
        reason: "what a rule may cost is not estimated when its definition is written; what it costs is bounded when it runs",
        expected: &["- < 422\n+ < 201"],
    },
    Difference {
        case: "E-1 CRD-5: labels that are none, in an update",
        reason: "a real server checks the metadata of an update three or four times, and lists each cause as often",
        expected: &["+ .details.causes: [{\"field\":\"metadata.labels\""],
    },
];
