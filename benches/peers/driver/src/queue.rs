//! The group `queue`: wq, wqdedup, wqdelay, wqlimit, wqmem, starve.

use crate::plan::Unit::{
    Bytes, Megabytes, Microseconds, Nanoseconds, PerSecond, Seconds, SecondsEach,
};
use crate::plan::{Case, Column, Figure, Group, Program};

const NOTES: &str = "\
Keys are 23 bytes of text that are shared, not copied: Go's `string`, Rust's `Arc<str>`. Producers are threads (goroutines \
in Go), as many as workers. *ours* is `get().await` on a multi-thread runtime with as many worker threads; the variants are \
`done_and_get`, which ends an item and takes the next in one operation, `get_blocking` on threads, `get_batch` of up to 32, and Prometheus metrics on. client-go's queue has no metrics by default. controller-runtime's \
always has; the column without metrics is a queue without a name. kube-runtime's scheduler is one task, which also handles what it yields; \
starvation is measured on its applier. The floor is a mutex around a `VecDeque` and two hash sets, with no delays, priorities or \
limits; for the limiter, a mutex around a hash map. Throughput and limiters are measured the second time that the same queue is \
filled and drained; timers and bytes the first time. Ours keeps failures in the queue's slots, so its *limiter alone* is measured \
through the item: `retry` and `forget`, which settle it as well. Rust programs have jemalloc, as the operator's image has, with its default arenas.";

const NO_METRICS: &str = "controller-runtime, no metrics";
const BLOCKING: &str = "ours, blocking";
const CHAIN: &str = "ours, `done_and_get`";
const BATCHES: &str = "ours, batches";
const METRICS: &str = "ours, metrics";

const THROUGHPUT: &[Figure] = &[
    Figure::value("items", "rate", PerSecond),
    Figure::value("CPU an item", "cpu", SecondsEach),
];
const HOT: &[Figure] = &[
    Figure::value("adds", "rate", PerSecond),
    Figure::value("CPU an add", "cpu", SecondsEach),
];
const TIMERS: &[Figure] = &[
    Figure::value("CPU", "cpu", Seconds),
    Figure::value("lateness p50", "p50_us", Microseconds),
    Figure::value("lateness p99", "p99_us", Microseconds),
    Figure::value("lateness, longest", "max_us", Microseconds),
    Figure::value(
        "peak memory above what was before",
        "extra.mem_mb",
        Megabytes,
    ),
];
const LIMITER: &[Figure] = &[
    Figure::value("a failure", "extra.when_ns", Nanoseconds),
    Figure::value("a success", "extra.forget_ns", Nanoseconds),
];
const MEMORY: &[Figure] = &[Figure::value("live heap", "heap_obj", Bytes)];

pub(crate) fn group() -> Group {
    Group {
        title: "Queue",
        notes: NOTES,
        server: false,
        columns: vec![
            Column::new("client-go", Program::Go, "client-go"),
            Column::new("controller-runtime", Program::Go, "controller-runtime"),
            Column::new(NO_METRICS, Program::Go, "controller-runtime")
                .flags(&["-metrics=off"])
                .variant(),
            Column::new("kube-runtime", Program::Kube, "kube"),
            Column::new("floor", Program::Ours, "floor"),
            Column::new("ours", Program::Ours, "ours"),
            Column::new(CHAIN, Program::Ours, "ours")
                .flags(&["-mode=chain"])
                .variant(),
            Column::new(BLOCKING, Program::Ours, "ours")
                .flags(&["-mode=blocking"])
                .variant(),
            Column::new(BATCHES, Program::Ours, "ours")
                .flags(&["-mode=batch"])
                .variant(),
            Column::new(METRICS, Program::Ours, "ours")
                .flags(&["-metrics=on"])
                .variant(),
        ],
        cases: cases(),
    }
}

fn cases() -> Vec<Case> {
    let crowd = Case {
        title: "add → get → done, 1 + 1 threads",
        scenario: "wq",
        count: 1_000_000,
        flags: &["-threads=1"],
        own_flags: &[],
        secured: false,
        variants: &[NO_METRICS, CHAIN, BLOCKING, BATCHES, METRICS],
        figures: THROUGHPUT,
    };
    let limiter = Case {
        title: "limiter alone",
        scenario: "wqlimit",
        flags: &[],
        own_flags: &[
            ("client-go", "-mode=limiter"),
            ("controller-runtime", "-mode=limiter"),
            ("floor", "-mode=limiter"),
            ("ours", "-mode=item"),
        ],
        secured: false,
        variants: &[],
        figures: LIMITER,
        ..crowd.clone()
    };
    let memory = Case {
        title: "a key that is ready",
        scenario: "wqmem",
        flags: &["-mode=ready"],
        variants: &[NO_METRICS, METRICS],
        figures: MEMORY,
        ..crowd.clone()
    };
    let starve = Case {
        title: "1,000 keys that all ask to run again at once, 10,000 runs",
        scenario: "starve",
        count: 1000,
        variants: &[],
        figures: &[Figure::Runs {
            title: "runs a key",
        }],
        ..crowd.clone()
    };
    let crowded = Case {
        title: "add → get → done, 4 + 4 threads",
        flags: &["-threads=4"],
        ..crowd.clone()
    };
    let hot = Case {
        title: "4 + 4 threads, 1,000 hot keys",
        scenario: "wqdedup",
        figures: HOT,
        ..crowded.clone()
    };
    let timers = Case {
        title: "timers over 5 s",
        scenario: "wqdelay",
        flags: &[],
        variants: &[BLOCKING],
        figures: TIMERS,
        ..crowd.clone()
    };
    let through_queue = Case {
        title: "limiter through the queue",
        count: 250_000,
        flags: &["-mode=item"],
        own_flags: &[],
        secured: false,
        ..limiter.clone()
    };
    let memory_delayed = Case {
        title: "a key that is delayed",
        flags: &["-mode=delayed"],
        ..memory.clone()
    };
    let starve_working = Case {
        title: "… with 1 ms of work and 4 workers",
        flags: &["-threads=4", "-work=1000"],
        ..starve.clone()
    };
    vec![
        crowd,
        crowded,
        hot,
        timers,
        limiter,
        through_queue,
        memory,
        memory_delayed,
        starve,
        starve_working,
    ]
}
