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
        "W-3: a watch resumes after a compaction, as its history is the server's own",
        "compact() makes watches forget too, so that a test can have its 410 when it wants one",
    ),
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
    ("SSA-1: an apply without a field manager is invalid", APPLY),
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
        "CRD-4: a schema with a pattern that is none",
        "what is wrong with it is said in the words of another regular-expression engine",
    ),
    (
        "CRD-1: a definition without versions or with two stored versions",
        "both are refused for the right reasons, but an empty list is quoted as null, and so is the status",
    ),
    (
        "CRD-5: owner references must be whole",
        "the references quoted in the text have their fields in order of name, not of the Go type",
    ),
];
