//! Quantities in the stored form of a real server: `1000m` is `1`, `1024Mi` is `1Gi`, the number `1` is the text `1`.
//!
//! (apimachinery: `pkg/api/resource/quantity.go`.)

use std::cmp::Ordering;

/// The suffixes of powers of ten, with the exponent.
const DECIMAL: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// The suffixes of powers of 1024.
const BINARY: &[&str] = &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Finer values are rounded up.
const NANO: i32 = -9;
/// In lists of resources, finer values than this are rounded up.
const MILLI: i32 = -3;
/// Number of digits that always fit into 64 bits.
const FAST_DIGITS: usize = 18;

/// The form of a quantity, which its canonical text keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Exponent,
    Binary,
}

/// `mantissa * 10^scale`.
#[derive(Clone, Copy)]
struct Amount {
    mantissa: i128,
    scale: i32,
}

/// A parsed quantity.
struct Written {
    negative: bool,
    form: Form,
    amount: Amount,
    /// Whether it is short and canonical enough to keep its text.
    keeps: bool,
}

/// The canonical form of `text`; `None` when it is not a quantity, or one with more digits than supported, which
/// is kept as it is. `of_list`: it is in a list of resources.
pub(super) fn canonical(text: &str, of_list: bool) -> Option<String> {
    let Written {
        negative,
        form,
        mut amount,
        keeps,
    } = read(text)?;
    let finest = if of_list { MILLI } else { NANO };
    if keeps && amount.scale >= finest {
        return Some(text.to_owned());
    }
    amount.round_up(finest)?;
    if form == Form::Binary {
        amount.cap();
    }
    let shown = amount.show(form)?;
    Some(if negative && shown != "0" {
        format!("-{shown}")
    } else {
        shown
    })
}

/// The order of two quantities; `None` when one of them is invalid, or has more digits than supported.
pub(crate) fn compare(left: &str, right: &str) -> Option<Ordering> {
    let value = |text: &str| {
        let mut written = read(text)?;
        written.amount.round_up(NANO)?;
        let power = 10_i128.checked_pow(NANO.abs_diff(written.amount.scale))?;
        let value = written.amount.mantissa.checked_mul(power)?;
        Some(if written.negative { -value } else { value })
    };
    Some(value(left)?.cmp(&value(right)?))
}

/// The mantissa with its sign, and the power of ten; `None` when the text is not a quantity, or has more digits than
/// supported.
pub(crate) fn parts(text: &str) -> Option<(i128, i32)> {
    let Written {
        negative,
        form,
        mut amount,
        ..
    } = read(text)?;
    if amount.round_up(NANO).is_none() {
        // It is that small that the power overflows.
        amount = Amount {
            mantissa: amount.mantissa.min(1),
            scale: NANO,
        };
    }
    if form == Form::Binary {
        amount.cap();
    }
    let Amount { mantissa, scale } = amount;
    Some((if negative { -mantissa } else { mantissa }, scale))
}

/// The nearest number; `None` when the text is not a quantity, or has more digits than supported.
#[expect(
    clippy::cast_precision_loss,
    reason = "the nearest number is enough for ratios"
)]
pub(crate) fn nearest(text: &str) -> Option<f64> {
    let written = read(text)?;
    let value = written.amount.mantissa as f64 * 10_f64.powi(written.amount.scale);
    Some(if written.negative { -value } else { value })
}

fn read(text: &str) -> Option<Written> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = unsigned.split_at(digits.unwrap_or(unsigned.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let (form, power) = read_suffix(suffix).filter(|_| !number.is_empty())?;
    let shifted = format!("{whole}{fraction}");
    let fraction_digits = i32::try_from(fraction.len()).ok()?;
    let mut amount = Amount {
        mantissa: shifted.parse().ok()?,
        scale: -fraction_digits,
    };
    let keeps = match form {
        Form::Binary => {
            amount.mantissa = amount.mantissa.checked_mul(1_i128.checked_shl(power)?)?;
            let is_short = whole.len() + power as usize * 3 / 10 <= 14;
            let units: i128 = whole.parse().ok()?;
            is_short && fraction.is_empty() && units & 7 != 0
        }
        Form::Decimal | Form::Exponent => {
            amount.scale = amount.scale.checked_add(power.cast_signed())?;
            shifted.len() <= FAST_DIGITS
                && amount.scale >= NANO
                && amount.scale % 3 == 0
                && !shifted.ends_with("000")
                && !shifted.starts_with('0')
        }
    };
    Some(Written {
        negative: text.starts_with('-'),
        form,
        amount,
        keeps,
    })
}

/// The form of a suffix, and its power of ten or two.
fn read_suffix(suffix: &str) -> Option<(Form, u32)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some((Form::Decimal, power.cast_unsigned()));
    }
    if let Some(at) = BINARY.iter().position(|known| *known == suffix) {
        return Some((Form::Binary, u32::try_from(at * 10).ok()?));
    }
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Form::Exponent, power.cast_unsigned()))
}

// === impl Amount ===

impl Amount {
    /// Rounds away from zero to a multiple of `10^finest`.
    fn round_up(&mut self, finest: i32) -> Option<()> {
        if self.scale < finest {
            let divisor = 10_i128.checked_pow(finest.abs_diff(self.scale))?;
            self.mantissa = self.mantissa.checked_add(divisor - 1)? / divisor;
            self.scale = finest;
        }
        Some(())
    }

    /// Limits binary quantities to 64 bits.
    fn cap(&mut self) {
        let largest = i128::from(i64::MAX);
        if self.integer().is_none_or(|value| value > largest) && self.scale >= 0 {
            *self = Self {
                mantissa: largest,
                scale: 0,
            };
        }
    }

    /// The value, if it is an integer.
    fn integer(&self) -> Option<i128> {
        let power = 10_i128.checked_pow(self.scale.unsigned_abs())?;
        if self.scale >= 0 {
            return self.mantissa.checked_mul(power);
        }
        (self.mantissa % power == 0).then(|| self.mantissa / power)
    }

    fn show(self, form: Form) -> Option<String> {
        if self.mantissa == 0 {
            return Some("0".to_owned());
        }
        if form == Form::Binary
            && let Some(mut value) = self.integer().filter(|&value| value >= 1024)
        {
            let mut power = 0;
            while value % 1024 == 0 && power + 1 < BINARY.len() {
                value /= 1024;
                power += 1;
            }
            return Some(format!("{value}{}", BINARY[power]));
        }
        let Self {
            mut mantissa,
            mut scale,
        } = self;
        while mantissa % 10 == 0 {
            mantissa /= 10;
            scale = scale.checked_add(1)?;
        }
        while scale % 3 != 0 {
            mantissa = mantissa.checked_mul(10)?;
            scale = scale.checked_sub(1)?;
        }
        if form == Form::Exponent {
            return Some(match scale {
                0 => mantissa.to_string(),
                _ => format!("{mantissa}e{scale}"),
            });
        }
        let (suffix, _) = DECIMAL.iter().find(|(_, power)| *power == scale)?;
        Some(format!("{mantissa}{suffix}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_written_as_go_writes_them() {
        let cases = [
            ("1", "1"),
            ("0", "0"),
            ("0.0", "0"),
            ("0m", "0"),
            ("0Ki", "0"),
            ("1000m", "1"),
            ("100m", "100m"),
            ("0.1", "100m"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1.500", "1.500"),
            ("1000", "1k"),
            ("1500", "1500"),
            ("10000", "10k"),
            ("1000000", "1M"),
            ("1024Mi", "1Gi"),
            ("1025Mi", "1025Mi"),
            ("1000Ki", "1000Ki"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("0.5Ki", "512"),
            ("0.3Ki", "307200m"),
            ("1e3", "1e3"),
            ("1000e0", "1e3"),
            ("12E6", "12E6"),
            ("2E", "2E"),
            ("100n", "100n"),
            ("0.1n", "1n"),
            ("-1000m", "-1"),
            ("+1", "+1"),
            ("16Ei", "9223372036854775807"),
            (".5", "500m"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(text, false).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "x", "1x", "1ki", "1e", "1 "] {
            assert_eq!(canonical(text, false), None, "{text}");
        }
    }

    #[test]
    fn in_a_list_of_resources_nothing_is_finer_than_a_thousandth() {
        for (text, expected) in [
            ("0.0001", "1m"),
            ("1500u", "2m"),
            ("1n", "1m"),
            ("1.0001", "1001m"),
            ("250m", "250m"),
            ("-1u", "-1m"),
        ] {
            assert_eq!(canonical(text, true).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn an_exponent_at_the_end_of_its_range_is_no_canonical_form_and_no_panic() {
        for text in [
            "10e2147483647",
            "1e2147483647",
            "1e-2147483648",
            "0.1e-2147483648",
            "1000e2147483646",
        ] {
            for of_list in [false, true] {
                let _ = canonical(text, of_list);
            }
            let _ = compare(text, "1");
        }
        assert_eq!(canonical("10e2147483647", false), None);
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (left, right, order) in [
            ("1", "1000m", Ordering::Equal),
            ("1Gi", "1G", Ordering::Greater),
            ("-1", "0", Ordering::Less),
            ("0.1", "100m", Ordering::Equal),
        ] {
            assert_eq!(compare(left, right), Some(order), "{left} {right}");
        }
        assert_eq!(compare("x", "1"), None);
    }

    proptest! {
        #[test]
        fn a_canonical_quantity_stays_as_it_is(
            number in 0_u32..100_000, fraction in "[0-9]{0,3}", suffix in "(n|u|m|k|M|G|Ki|Mi|Gi|e3|e-3)?",
        ) {
            let text = if fraction.is_empty() {
                format!("{number}{suffix}")
            } else {
                format!("{number}.{fraction}{suffix}")
            };
            let once = canonical(&text, true).unwrap();
            prop_assert_eq!(canonical(&once, true), Some(once.clone()), "{}", text);
        }
    }
}
