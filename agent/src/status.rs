//! `ipblock-agent status`: what the kernel enforces, as a table.

use std::fmt::Write;
use std::time::Duration;

use crate::interval::Family;
use crate::netlink::Error;
use crate::nft::{Counter, Kernel, Layout};

/// The text, and whether the table is intact.
///
/// # Errors
/// The kernel's.
pub fn print(
    kernel: &mut impl Kernel,
    table: &str,
    entries: bool,
) -> Result<(String, bool), Error> {
    let layout = kernel.standing()?.layout;
    let mut text = String::new();
    let counters = match layout {
        Layout::Missing => {
            return Ok((
                format!("table inet {table}: missing; this node bans nothing\n"),
                false,
            ));
        }
        Layout::Damaged { what, .. } => {
            line(
                &mut text,
                format_args!("table inet {table}: damaged ({what})"),
            );
            None
        }
        Layout::Intact { v4, v6 } => {
            line(&mut text, format_args!("table inet {table}: intact"));
            Some([v4, v6])
        }
    };
    let observed = match kernel.observe() {
        Ok(observed) => observed,
        // The sets may be what is damaged.
        Err(error) if error.is_missing() => return Ok((text, false)),
        Err(error) => return Err(error),
    };
    line(
        &mut text,
        format_args!(
            "{:<8}{:>10}{:>18}{:>18}",
            "FAMILY", "ELEMENTS", "DROPPED PACKETS", "DROPPED BYTES"
        ),
    );
    for (family, index) in Family::ALL.into_iter().zip(0..) {
        let count = observed.of(family).len();
        let Counter { packets, bytes } = counters.map_or(Counter::default(), |both| both[index]);
        line(
            &mut text,
            format_args!("{:<8}{count:>10}{packets:>18}{bytes:>18}", family.name()),
        );
    }
    if entries {
        line(&mut text, format_args!("\n{:<44}LEFT", "ELEMENT"));
        for family in Family::ALL {
            for timed in observed.of(family) {
                let left = timed.left.time().map_or("indefinitely".into(), clock);
                line(
                    &mut text,
                    format_args!("{:<44}{left}", timed.span.text(family)),
                );
            }
        }
    }
    Ok((text, counters.is_some()))
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{arguments}");
}

/// `2d3h`, `1h5m`, `42s`: the two largest units.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_two_largest_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (3599, "59m59s"),
            (3900, "1h5m"),
            (183_600, "2d3h"),
        ] {
            assert_eq!(clock(Duration::from_secs(seconds)), text);
        }
    }
}
