//! `process_*`: the resources of the process, read from /proc at each scrape (Prometheus' process collector).
//!
//! Only on Linux; empty elsewhere.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Clock ticks a second in /proc; part of the kernel's interface.
const TICKS: f64 = 100.0;

/// Reads the process at each scrape.
#[derive(Debug)]
pub(crate) struct Process;

/// The values read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Reading {
    cpu_seconds: f64,
    start_seconds: f64,
    virtual_bytes: f64,
    virtual_max_bytes: f64,
    resident_bytes: f64,
    open_fds: f64,
    max_fds: f64,
    /// Received and sent by the network namespace, which is the Pod's.
    network_bytes: Option<(f64, f64)>,
}

// === impl Process ===

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(reading) = Reading::take() else {
            return Ok(());
        };
        let (received, sent) = reading.network_bytes.unzip();
        for (name, help, value) in [
            (
                "process_cpu_seconds",
                "CPU time of the process, user and system",
                Some(reading.cpu_seconds),
            ),
            (
                "process_network_receive_bytes",
                "Bytes received by the network namespace of the process",
                received,
            ),
            (
                "process_network_transmit_bytes",
                "Bytes sent by the network namespace of the process",
                sent,
            ),
        ] {
            let Some(value) = value else { continue };
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "When the process started, since the epoch",
                reading.start_seconds,
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory of the process",
                reading.virtual_bytes,
            ),
            (
                "process_virtual_memory_max_bytes",
                "Virtual memory that the process may have",
                reading.virtual_max_bytes,
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory of the process",
                reading.resident_bytes,
            ),
            (
                "process_open_fds",
                "Open file descriptors",
                reading.open_fds,
            ),
            (
                "process_max_fds",
                "File descriptors that may be open",
                reading.max_fds,
            ),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

// === impl Reading ===

impl Reading {
    fn take() -> Option<Self> {
        let read = |path| std::fs::read_to_string(path).ok();
        let stat = read("/proc/self/stat")?;
        let boot = read("/proc/stat")?;
        let status = read("/proc/self/status")?;
        let limits = read("/proc/self/limits")?;
        let open = std::fs::read_dir("/proc/self/fd").ok()?.count();
        let mut reading = Self::parse(&stat, &boot, &status, &limits)?;
        // One of them is the directory being read.
        reading.open_fds = open.saturating_sub(1) as f64;
        reading.network_bytes = read("/proc/self/net/netstat").and_then(|text| network(&text));
        Some(reading)
    }

    fn parse(stat: &str, boot: &str, status: &str, limits: &str) -> Option<Self> {
        // The name in parentheses may hold anything; the third field follows it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let word_after = |text: &str, start: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(start))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS,
            start_seconds: word_after(boot, "btime")? + field(22)? / TICKS,
            virtual_bytes: field(23)?,
            resident_bytes: word_after(status, "VmRSS:")? * 1024.0,
            open_fds: 0.0,
            // "unlimited" is not a number; the limit is unknown then.
            max_fds: word_after(limits, "Max open files").unwrap_or(f64::INFINITY),
            // As Go's collector says "unlimited".
            virtual_max_bytes: word_after(limits, "Max address space").unwrap_or(u64::MAX as f64),
            network_bytes: None,
        })
    }
}

/// The received and sent bytes, from a file with a line of names and a line of numbers for each protocol.
fn network(netstat: &str) -> Option<(f64, f64)> {
    let mut lines = netstat
        .lines()
        .filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let number = |wanted: &str| {
        let at = names.split_whitespace().position(|name| name == wanted)?;
        numbers.split_whitespace().nth(at)?.parse().ok()
    };
    Some((number("InOctets")?, number("OutOctets")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_read_as_they_are_written() {
        let stat = "42 (odd ) name) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 3 0 2000 4096000 250 1";
        let boot = "cpu  1 2 3\nbtime 1700000000\n";
        let status = "Name:\tx\nVmRSS:\t    2048 kB\n";
        let limits = "Limit  Soft Limit\nMax open files            1024                 4096  files\n\
             Max address space         1000000              unlimited  bytes\n";
        let expected = Reading {
            cpu_seconds: 2.0,
            start_seconds: 1_700_000_020.0,
            virtual_bytes: 4_096_000.0,
            resident_bytes: 2_097_152.0,
            open_fds: 0.0,
            max_fds: 1024.0,
            virtual_max_bytes: 1_000_000.0,
            network_bytes: None,
        };
        assert_eq!(Reading::parse(stat, boot, status, limits), Some(expected));
        assert_eq!(Reading::parse("42 x", boot, status, limits), None);
    }

    #[test]
    fn the_bytes_of_the_network_are_found_by_name() {
        let text =
            "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets X\nIpExt: 0 10 20 3\n";
        assert_eq!(network(text), Some((10.0, 20.0)));
        assert_eq!(network("TcpExt: A\nTcpExt: 1\n"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_takes_memory_and_files() {
        let reading = Reading::take().expect("/proc");
        assert!(
            reading.resident_bytes > 100_000.0 && reading.open_fds >= 3.0,
            "{reading:?}"
        );
        assert!(reading.max_fds >= reading.open_fds && reading.start_seconds > 1.6e9);
    }
}
