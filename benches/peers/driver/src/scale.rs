//! The group `scale`: many objects, many informers, TLS.

use crate::informer::{EVENTS, PROTOBUF, RECONCILES, SYNC};
use crate::plan::Unit::{Megabytes, Microseconds, SecondsEach};
use crate::plan::{Case, Column, Figure, Group, Program};

const NOTES: &str = "\
1,000,000 ConfigMaps are listed as in the group `sync`. 200 informers of one client hold 100 ConfigMaps each, every one by a list and a watch of its own (*streamed*: a streaming list, which is ours by default): the processor time until all \
are synced, divided by their number; the resident memory of the process a second later, with and without the pages of its program, which has more kinds of cache in ours than in kube-runtime's; and the processor time that the process takes in a second in which nothing \
changes. *by TLS* is the same server behind TLS 1.3 with AES-GCM over HTTP/1.1, with the library that each peer has (Go's own, rustls with ring). The last rows are a controller \
with 32 workers that reads each of 100,000 objects and does nothing. Rust programs have jemalloc, as the operator's image has, with its default arenas.";

const FLEET: &[Figure] = &[
    Figure::value("CPU until synced, an informer", "cpu", SecondsEach),
    Figure::value("memory of the process", "extra.resident_mb", Megabytes),
    Figure::value("… without the program's code", "extra.own_mb", Megabytes),
    Figure::value("CPU of an idle second", "extra.idle_us", Microseconds),
];

/// The rows beside those of the other groups.
pub(crate) fn group() -> Group {
    let case = |title, scenario, count, flags, figures| Case {
        title,
        scenario,
        count,
        flags,
        own_flags: &[],
        secured: false,
        variants: &[PROTOBUF],
        figures,
    };
    let secured = |case: Case| Case {
        secured: true,
        ..case
    };
    Group {
        title: "Many objects, many informers, TLS",
        notes: NOTES,
        server: true,
        columns: vec![
            Column::new("client-go", Program::Go, "client-go"),
            Column::new(PROTOBUF, Program::Go, "client-go-protobuf").variant(),
            Column::new("controller-runtime", Program::Go, "controller-runtime"),
            Column::new("kube-runtime", Program::Kube, "kube"),
            Column::new("ours", Program::Ours, "ours"),
        ],
        cases: vec![
            case("1,000,000 ConfigMaps", "sync", 1_000_000, &[], SYNC),
            case("200 informers", "fleet", 200, &[], FLEET),
            Case {
                variants: &[],
                ..case(
                    "200 informers, streamed",
                    "fleet",
                    200,
                    &["-mode=watchlist"],
                    FLEET,
                )
            },
            secured(case(
                "100,000 ConfigMaps by TLS",
                "sync",
                100_000,
                &[],
                SYNC,
            )),
            secured(case(
                "100,000 Pods by TLS",
                "sync",
                100_000,
                &["-kind=pods"],
                SYNC,
            )),
            secured(case(
                "changes of ConfigMaps by TLS",
                "steady",
                20_000,
                &[],
                EVENTS,
            )),
            secured(case(
                "changes of Pods by TLS",
                "steady",
                20_000,
                &["-kind=pods", "-events=50000"],
                EVENTS,
            )),
            Case {
                variants: &[],
                ..case(
                    "100,000 objects, 32 workers",
                    "ctrlcold",
                    100_000,
                    &["-threads=32"],
                    RECONCILES,
                )
            },
        ],
    }
}
