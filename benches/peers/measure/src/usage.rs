//! Processor time and resident memory of the process, as the kernel counts them.

use std::fs;
use std::time::Instant;

/// Processor time of the process so far, in seconds, and page faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// In user and system mode together.
    pub all: f64,
    /// In system mode.
    pub system: f64,
    /// How often memory had to be mapped at its first touch.
    pub faults: f64,
}

/// A period, and the processor time used in it.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Wall time in seconds.
    pub secs: f64,
    /// Processor time.
    pub cpu: Cpu,
}

/// Measures a [`Span`].
#[derive(Debug)]
pub struct Stopwatch {
    started: Instant,
    cpu: Cpu,
}

// === impl Cpu ===

impl Cpu {
    /// Up to now.
    #[must_use]
    pub fn now() -> Self {
        // SAFETY: `rusage` has only numbers, for which zero is valid, and getrusage only
        // writes into its argument.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let system = seconds(usage.ru_stime);
        Self {
            all: seconds(usage.ru_utime) + system,
            system,
            faults: usage.ru_minflt as f64,
        }
    }
}

// === impl Stopwatch ===

impl Stopwatch {
    /// From now.
    #[must_use]
    pub fn start() -> Self {
        let cpu = Cpu::now();
        let started = Instant::now();
        Self { started, cpu }
    }

    /// Until now.
    #[must_use]
    pub fn stop(&self) -> Span {
        let secs = self.started.elapsed().as_secs_f64();
        let cpu = Cpu::now();
        Span {
            secs,
            cpu: Cpu {
                all: cpu.all - self.cpu.all,
                system: cpu.system - self.cpu.system,
                faults: cpu.faults - self.cpu.faults,
            },
        }
    }
}

/// Resident memory now, in MB (10⁶ bytes).
#[must_use]
pub fn resident() -> f64 {
    status("VmRSS:")
}

/// Resident memory now without that of files, in MB (10⁶ bytes): without the code of the program and its libraries.
#[must_use]
pub fn anonymous() -> f64 {
    status("RssAnon:")
}

/// The most that was resident since [`forget_peak`], in MB (10⁶ bytes).
#[must_use]
pub fn peak() -> f64 {
    status("VmHWM:")
}

/// Resets [`peak`] to the memory that is resident now.
///
/// # Panics
/// If the kernel refuses: the peak of the preparations would count as the peak of the run.
pub fn forget_peak() {
    fs::write("/proc/self/clear_refs", "5").expect("a kernel that forgets a peak");
}

fn status(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let kibibytes = status.lines().find_map(|line| {
        line.strip_prefix(field)?
            .trim()
            .split(' ')
            .next()?
            .parse::<f64>()
            .ok()
    });
    kibibytes.expect("a field of /proc/self/status") * 1024.0 / 1e6
}

#[cfg(test)]
mod tests {
    use std::alloc::{GlobalAlloc, Layout, System};

    use super::*;

    #[test]
    fn processor_time_grows_with_work() {
        let stopwatch = Stopwatch::start();
        let mut sum = 0_u64;
        while stopwatch.stop().secs < 0.05 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        let span = stopwatch.stop();
        assert!(span.cpu.all > 0.0 && span.cpu.all >= span.cpu.system);
    }

    #[test]
    fn a_peak_is_forgotten() {
        let layout = Layout::array::<u8>(64 << 20).expect("less than the address space");
        // Not with the allocator of this program, which keeps for a while what is freed.
        // SAFETY: the layout is not empty, all of it is written, and it is freed once with the same layout.
        unsafe {
            let large = System.alloc(layout);
            large.write_bytes(1, layout.size());
            assert!(peak() > 67.0);
            System.dealloc(std::hint::black_box(large), layout);
        }
        forget_peak();
        assert!(peak() < 67.0 && peak() >= resident() - 1.0);
    }
}
