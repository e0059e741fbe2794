//! The groups `sync`, `informer` and `controller`, which need the canned server.

use crate::plan::Unit::{Bytes, Factor, Megabytes, Microseconds, PerSecond, SecondsEach};
use crate::plan::{Case, Column, Figure, Group, Program};

pub(crate) const PROTOBUF: &str = "client-go, protobuf";
const NO_COPY: &str = "controller-runtime, no deep copy";
const SCAN: &str = "floor, scan";
const META: &str = "ours, metadata";
const DYNAMIC: &str = "ours, dynamic";
const COMPACT: &str = "ours, compact";
const TEXT: &str = "ours, JSON";
const BORROWED: &str = "ours, borrowed";
const KUBE_GLIBC: &str = "kube-runtime, glibc";
const GLIBC: &str = "ours, glibc";
/// The programs have the allocator of the operator's image, jemalloc. These columns have another one, that of a program
/// which chooses none.
const ALLOCATOR: &[&str] = &["-allocator=glibc"];

const SYNC_NOTES: &str = "\
One kind is listed into a store without handlers, from the start of the informer until it is synced. The server only copies bytes; \
the client shares two cores with it. Each binary syncs twice: heap and peak memory are those of the first \
time, speed and processor time those of the second, with memory that was touched before. ConfigMaps have 363 bytes of JSON, IPBlocks \
(a custom resource) 673, Pods 4,990, a third of it managedFields. *list* is each peer's default: client-go requests everything in one \
piece, kube-runtime and ours request pages of 500. controller-runtime, the metadata clients of Go, and ours read Pods and ConfigMaps in protobuf (*JSON*: not). The \
floor reads the list and does nothing with it; *scan* passes over it with serde_json and keeps nothing. Rust programs \
have jemalloc, as the operator's image has, with its default arenas; *glibc* is the allocator of a program that chooses none.";

const INFORMER_NOTES: &str = "\
Changes: 200,000 over a store of 20,000, as fast as the server writes them, until every handler has all of them; a tenth as many run before \
and are not measured. Ours delivers every change (`Policy::Block`), as the peers do, in the informer's task (`HandlerOptions::inline`), as \
kube-runtime does. By default a handler has its own task, and changes of one object are merged when it falls behind. controller-runtime and ours read in protobuf (*JSON*: not). Latency: from the server's \
write to the handler, 5,000 changes a second at even intervals. Reads: random \
keys, and all 1,000 objects of a random namespace of 100, two seconds; *borrowed* reads with `Lister::with`. Rust programs have \
jemalloc, as the operator's image has, with its default arenas; *glibc* is the allocator of a program that chooses none. Relist: all watches end with 410 while one thread reads every \
100 µs; if a read starts late because the one before took long, its time counts from when it was due. *without* is the same reader before \
the relist.";

const CONTROLLER_NOTES: &str = "\
One controller reads its object and does nothing: 10,000 ConfigMaps from the start of the program, or after a burst that changes \
all 10,000. A *status write each*: each of 10,000 IPBlocks is patched once by its reconcile, and reconciled again when the \
watch shows the patch; then the write counts. client-go is the loop of its own example: informer, queue, workers. kube-runtime's `Controller` \
passes the object to the reconciler; workers are its `concurrency`. Rust programs have jemalloc, as the operator's \
image has, with its default arenas; *glibc* is the allocator of a program that chooses none.";

pub(crate) const SYNC: &[Figure] = &[
    Figure::value("objects", "rate", PerSecond),
    Figure::value("CPU an object", "cpu", SecondsEach),
    Figure::value("live heap an object", "heap_obj", Bytes),
    Figure::value("peak memory", "rss_mb", Megabytes),
];
pub(crate) const EVENTS: &[Figure] = &[
    Figure::value("changes", "rate", PerSecond),
    Figure::value("CPU a change", "cpu", SecondsEach),
];
const LATENCY: &[Figure] = &[
    Figure::value("p50", "p50_us", Microseconds),
    Figure::value("p99", "p99_us", Microseconds),
];
const READS: &[Figure] = &[Figure::value("reads", "rate", PerSecond)];
const RELIST: &[Figure] = &[
    Figure::value("read p99.9", "extra.p999_us", Microseconds),
    Figure::value("read p99.9 without", "extra.control_p999_us", Microseconds),
    Figure::value("longest read", "max_us", Microseconds),
    Figure::value("longest read without", "extra.control_max_us", Microseconds),
    Figure::value(
        "CPU an object, without the reads",
        "extra.cpu_obj_us",
        Microseconds,
    ),
    Figure::value(
        "peak memory of what it was before",
        "extra.mem_ratio",
        Factor,
    ),
];
pub(crate) const RECONCILES: &[Figure] = &[
    Figure::value("reconciles", "rate", PerSecond),
    Figure::value("CPU a reconcile", "cpu", SecondsEach),
    Figure::value("peak memory", "rss_mb", Megabytes),
];
const WRITES: &[Figure] = &[
    Figure::value("writes", "rate", PerSecond),
    Figure::value("CPU a write", "cpu", SecondsEach),
    Figure::value("peak memory", "rss_mb", Megabytes),
];

/// What most cases of these groups share.
fn case(
    title: &'static str,
    scenario: &'static str,
    count: usize,
    flags: &'static [&'static str],
) -> Case {
    Case {
        title,
        scenario,
        count,
        flags,
        own_flags: &[],
        secured: false,
        variants: &[],
        figures: &[],
    }
}

/// How fast a store is filled, and what it takes.
pub(crate) fn sync() -> Group {
    let all = &[
        PROTOBUF,
        "client-go, metadata",
        "controller-runtime, dynamic",
        "kube-runtime, metadata",
        "kube-runtime, dynamic",
        SCAN,
        META,
        DYNAMIC,
        COMPACT,
        TEXT,
        KUBE_GLIBC,
        GLIBC,
    ];
    let kind = |title, flags| Case {
        variants: all,
        figures: SYNC,
        ..case(title, "sync", 100_000, flags)
    };
    let go = |name, peer| Column::new(name, Program::Go, peer);
    let kube = |name, peer| Column::new(name, Program::Kube, peer);
    let ours = |name, peer| Column::new(name, Program::Ours, peer);
    Group {
        title: "Filling a store",
        notes: SYNC_NOTES,
        server: true,
        columns: vec![
            go("client-go", "client-go"),
            go(PROTOBUF, "client-go-protobuf").variant(),
            go("controller-runtime", "controller-runtime"),
            kube("kube-runtime", "kube"),
            ours("floor", "floor"),
            ours(SCAN, "floor-scan").variant(),
            ours("ours", "ours"),
            go("client-go, metadata", "client-go-meta")
                .variant()
                .against(META),
            kube("kube-runtime, metadata", "kube-meta")
                .variant()
                .against(META),
            ours(META, "ours-meta").variant().against(META),
            go("controller-runtime, dynamic", "controller-runtime-dyn")
                .variant()
                .against(DYNAMIC),
            kube("kube-runtime, dynamic", "kube-dyn")
                .variant()
                .against(DYNAMIC),
            ours(DYNAMIC, "ours-dyn").variant().against(DYNAMIC),
            ours(COMPACT, "ours-compact").variant(),
            ours(TEXT, "ours-json").variant(),
            kube(KUBE_GLIBC, "kube")
                .flags(ALLOCATOR)
                .variant()
                .against(GLIBC),
            ours(GLIBC, "ours")
                .flags(ALLOCATOR)
                .variant()
                .against(GLIBC),
        ],
        cases: vec![
            kind("100,000 ConfigMaps", &["-kind=configmaps"]),
            kind("100,000 IPBlocks", &["-kind=ipblocks"]),
            kind("100,000 Pods", &["-kind=pods"]),
            Case {
                figures: SYNC,
                ..case(
                    "100,000 ConfigMaps, streamed",
                    "sync",
                    100_000,
                    &["-mode=watchlist"],
                )
            },
        ],
    }
}

/// Changes, reads, relists.
pub(crate) fn group() -> Group {
    let with = |variants, figures, case| Case {
        variants,
        figures,
        ..case
    };
    Group {
        title: "Following, reading, listing again",
        notes: INFORMER_NOTES,
        server: true,
        columns: vec![
            Column::new("client-go", Program::Go, "client-go"),
            Column::new(PROTOBUF, Program::Go, "client-go-protobuf").variant(),
            Column::new("controller-runtime", Program::Go, "controller-runtime"),
            Column::new(NO_COPY, Program::Go, "controller-runtime-nocopy").variant(),
            Column::new("kube-runtime", Program::Kube, "kube"),
            Column::new(TEXT, Program::Ours, "ours-json").variant(),
            Column::new("ours", Program::Ours, "ours"),
            Column::new(BORROWED, Program::Ours, "ours-borrowed").variant(),
            Column::new(KUBE_GLIBC, Program::Kube, "kube")
                .flags(ALLOCATOR)
                .variant()
                .against(GLIBC),
            Column::new(GLIBC, Program::Ours, "ours")
                .flags(ALLOCATOR)
                .variant()
                .against(GLIBC),
        ],
        cases: vec![
            with(
                &[PROTOBUF, TEXT, KUBE_GLIBC, GLIBC],
                EVENTS,
                case("ConfigMaps, 1 handler", "steady", 20_000, &["-handlers=1"]),
            ),
            with(
                &[KUBE_GLIBC, GLIBC],
                EVENTS,
                case("ConfigMaps, 3 handlers", "steady", 20_000, &["-handlers=3"]),
            ),
            with(
                &[PROTOBUF, TEXT, KUBE_GLIBC, GLIBC],
                EVENTS,
                case(
                    "Pods, 1 handler",
                    "steady",
                    20_000,
                    &["-kind=pods", "-events=50000"],
                ),
            ),
            with(
                &[PROTOBUF],
                LATENCY,
                case("5,000 changes a second", "latency", 20_000, &[]),
            ),
            with(
                &[NO_COPY, BORROWED],
                READS,
                case("get by key, 1 thread", "get", 100_000, &["-threads=1"]),
            ),
            with(
                &[NO_COPY, BORROWED],
                READS,
                case("get by key, 2 threads", "get", 100_000, &["-threads=2"]),
            ),
            with(
                &[NO_COPY],
                READS,
                case("list of a namespace", "listns", 100_000, &[]),
            ),
            with(
                &[PROTOBUF],
                RELIST,
                case("relist of 100,000 ConfigMaps", "relist", 100_000, &[]),
            ),
            with(
                &[PROTOBUF],
                RELIST,
                case("relist of 100,000 Pods", "relist", 100_000, &["-kind=pods"]),
            ),
        ],
    }
}

/// Controllers that do nothing.
pub(crate) fn controller() -> Group {
    let with = |title, scenario, flags| Case {
        figures: RECONCILES,
        variants: &[KUBE_GLIBC, GLIBC],
        ..case(title, scenario, 10_000, flags)
    };
    let writing = |title, flags| Case {
        figures: WRITES,
        variants: &[KUBE_GLIBC, GLIBC],
        ..case(title, "ctrlwrite", 10_000, flags)
    };
    Group {
        title: "Controllers",
        notes: CONTROLLER_NOTES,
        server: true,
        columns: vec![
            Column::new("client-go", Program::Go, "client-go"),
            Column::new("controller-runtime", Program::Go, "controller-runtime"),
            Column::new("kube-runtime", Program::Kube, "kube"),
            Column::new("ours", Program::Ours, "ours"),
            Column::new(KUBE_GLIBC, Program::Kube, "kube")
                .flags(ALLOCATOR)
                .variant()
                .against(GLIBC),
            Column::new(GLIBC, Program::Ours, "ours")
                .flags(ALLOCATOR)
                .variant()
                .against(GLIBC),
        ],
        cases: vec![
            with("from the start, 1 worker", "ctrlcold", &["-threads=1"]),
            with("from the start, 8 workers", "ctrlcold", &["-threads=8"]),
            with("after a burst, 1 worker", "ctrlburst", &["-threads=1"]),
            with("after a burst, 8 workers", "ctrlburst", &["-threads=8"]),
            writing(
                "a status write each, 1 worker",
                &["-kind=ipblocks", "-threads=1"],
            ),
            writing(
                "a status write each, 8 workers",
                &["-kind=ipblocks", "-threads=8"],
            ),
        ],
    }
}
