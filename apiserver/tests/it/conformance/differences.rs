//! Where the built-in server is known to answer otherwise: the case's title and the reason.
//!
//! Strict: a case of this table that passes fails the run, so that the table says what is true.

const PROTOBUF: &str =
    "protobuf is neither read nor written, and so not named among the media types";
const MANAGED: &str = "managedFields are not kept";
const APPLY: &str = "server-side apply is not there: 415 with a text that says so";

/// Of the built-in server.
pub const BUILT_IN: &[(&str, &str)] = &[
    (
        "MF-1: managedFields name the manager, by default the user agent",
        MANAGED,
    ),
    (
        "MF-1: managedFields of a custom resource and of its status",
        MANAGED,
    ),
    (
        "SSA-1: an apply creates what is absent, and again changes nothing",
        APPLY,
    ),
    (
        "SSA-1: a conflicting apply names the other manager, and force takes over",
        APPLY,
    ),
    ("T-1: an Accept that cannot be served", PROTOBUF),
    (
        "E-3: a body of another media type is not supported",
        PROTOBUF,
    ),
    ("E-3: a protobuf answer is not forced", PROTOBUF),
    (
        "CRD-6: a rule that is estimated to cost too much",
        "what a rule may cost is not estimated when its definition is written; what it costs is bounded when it runs",
    ),
    (
        "E-1 CRD-5: labels that are none, in an update",
        "a real server checks the metadata of an update three or four times, and lists each cause as often",
    ),
];
