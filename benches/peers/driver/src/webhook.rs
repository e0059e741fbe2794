//! The group `webhook`: calls of one webhook server as kube-apiserver makes them.

use crate::plan::Unit::{Megabytes, Microseconds, PerSecond, SecondsEach};
use crate::plan::{Case, Column, Figure, Group, Program};

const NOTES: &str = "\
One program calls the server, as kube-apiserver does: TLS 1.3 and HTTP/2, all calls at once as streams of one connection, and with *a connection \
each* another connection with a whole handshake for each call. The handlers are the same: the validating one decodes the object into its type and denies it if a label \
says so (one call of ten), the mutating one adds a label and answers with a patch. The reviews are those of creations: a Pod of 5 KB \
with its managed fields, one of 40 KB (37 containers), a Deployment of 5 KB. controller-runtime's server has \
`WithValidator` and `WithDefaulter`; both servers have their defaults, metrics included. The caller shares the two cores with the server and has \
one thread; processor time and memory are those of the server's process alone, which starts for each run. At a fixed rate the latency counts from the \
time at which a call was due, and includes the wake-up of the thread that announces the calls.";

const CALLS: &[Figure] = &[
    Figure::value("calls", "rate", PerSecond),
    CPU,
    P50,
    P99,
    P999,
    MEMORY,
];
const PACED: &[Figure] = &[CPU, P50, P99, P999, MEMORY];
const CPU: Figure = Figure::value("CPU a call", "cpu", SecondsEach);
const P50: Figure = Figure::value("p50", "p50_us", Microseconds);
const P99: Figure = Figure::value("p99", "p99_us", Microseconds);
const P999: Figure = Figure::value("p99.9", "extra.p999_us", Microseconds);
const MEMORY: Figure = Figure::value("peak memory", "rss_mb", Megabytes);

pub(crate) fn group() -> Group {
    let column = |name, measured| Column::new(name, Program::Load, name).measures(measured);
    Group {
        title: "Webhook servers",
        notes: NOTES,
        server: false,
        columns: vec![
            column("controller-runtime", Program::Go),
            column("ours", Program::Webhook),
        ],
        cases: vec![
            case("Pod, validated, 1 at once", 10_000, &["-flight=1"]),
            case("Pod, validated, 8 at once", 25_000, &["-flight=8"]),
            case("Pod, validated, 64 at once", 25_000, &["-flight=64"]),
            case(
                "Pod, mutated, 8 at once",
                12_000,
                &["-flight=8", "-handler=mutate"],
            ),
            case(
                "Pod of 40 KB, validated, 8 at once",
                6_000,
                &["-flight=8", "-review=pod40"],
            ),
            case(
                "Pod of 40 KB, mutated, 8 at once",
                2_500,
                &["-flight=8", "-review=pod40", "-handler=mutate"],
            ),
            case(
                "Deployment, validated, 8 at once",
                25_000,
                &["-flight=8", "-review=deployment"],
            ),
            case(
                "Pod, validated, a connection each, 1 at once",
                2_000,
                &["-flight=1", "-connections=new"],
            ),
            case(
                "Pod, validated, a connection each, 8 at once",
                3_000,
                &["-flight=8", "-connections=new"],
            ),
            Case {
                figures: PACED,
                ..case("Pod, validated, 500 a second", 3_000, &["-rate=500"])
            },
            Case {
                figures: PACED,
                ..case("Pod, validated, 2,000 a second", 10_000, &["-rate=2000"])
            },
        ],
    }
}

fn case(title: &'static str, count: usize, flags: &'static [&'static str]) -> Case {
    Case {
        title,
        scenario: "webhook",
        count,
        flags,
        own_flags: &[],
        secured: false,
        variants: &[],
        figures: CALLS,
    }
}
