//! The lines of `whitelist`: a range, and perhaps an end and a reason.
//!
//! ```text
//! 203.0.113.0/24 until=2026-12-31T00:00:00Z reason="office, until the move"   # a comment
//! ```

use jiff::{SignedDuration, Timestamp};

use super::Errors;
use super::parse::lines;
use crate::policy::Allowed;
use crate::prefix::Prefixes;
use crate::target::Target;

/// The longest reason, in characters: it is repeated in each refusal.
const LONGEST_REASON: usize = 200;

/// How long before its end an entry is reported.
const WARNING: SignedDuration = SignedDuration::from_hours(24);

/// One line.
pub(crate) type Entry = (Target, Allowed);

/// The entries of `text`. Lines that are wrong go to `errors` as those of `key`, or to `dropped` if what the original
/// reads of them is no address and a place for those is given.
pub(super) fn read(
    text: &str,
    key: &str,
    errors: &mut Errors,
    mut dropped: Option<&mut Errors>,
) -> Prefixes<Allowed> {
    let mut all = Prefixes::new();
    for (line, content) in lines(text) {
        let entry = match words(content).and_then(|words| entry(&words)) {
            Ok(Some(entry)) => entry,
            Ok(None) => continue,
            Err(error) => {
                // An entry with a wrong field protects its address all the same: to drop it would open the gate.
                let first = content.split_whitespace().next().unwrap_or_default();
                let foreign = first.parse::<Target>().is_err();
                let dropped = dropped.as_deref_mut().filter(|_| foreign);
                dropped.unwrap_or(errors).add(key, Some(line), error);
                continue;
            }
        };
        if all.get(&entry.0).is_some_and(|known| *known != entry.1) {
            let message = format!(
                "{} is in the list twice, with different ends or reasons",
                entry.0
            );
            errors.add(key, Some(line), message);
        }
        all.add(entry.0, entry.1);
    }
    all
}

/// The part of `all` that protects at `now`, and the first later moment at which that changes.
pub(crate) fn at(
    all: &Prefixes<Allowed>,
    now: Timestamp,
) -> (Prefixes<Allowed>, Option<Timestamp>) {
    let stands = |allowed: &Allowed| allowed.until.is_none_or(|until| until > now);
    let standing = all.iter().filter(|(_, allowed)| stands(allowed));
    let next = standing
        .clone()
        .filter_map(|(_, allowed)| allowed.until)
        .min();
    let standing = standing.map(|(target, allowed)| (target, allowed.clone()));
    (standing.collect(), next)
}

/// The entries that end within a day of `now`, or have ended.
pub(crate) fn ending(all: &Prefixes<Allowed>, now: Timestamp) -> Vec<Entry> {
    let soon = now.saturating_add(WARNING).unwrap_or(Timestamp::MAX);
    let ends = |allowed: &Allowed| allowed.until.is_some_and(|until| until <= soon);
    let ending = all.iter().filter(|(_, allowed)| ends(allowed));
    ending
        .map(|(target, allowed)| (target, allowed.clone()))
        .collect()
}

fn entry(words: &[Word]) -> Result<Option<Entry>, String> {
    let Some((first, fields)) = words.split_first() else {
        return Ok(None);
    };
    let target = first.text.parse::<Target>();
    let target = target.map_err(|error| error.to_string())?;
    let mut allowed = Allowed::default();
    for Word { text } in fields {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        match name {
            "until" if allowed.until.is_none() => allowed.until = Some(end(value)?),
            "reason" if allowed.reason.is_none() => allowed.reason = Some(reason(value)?.into()),
            "until" | "reason" => return Err(format!("{name} is given twice")),
            _ => {
                return Err(format!(
                    "{name:?} is not known here: an entry is an address or a range, then perhaps until=2026-12-31T00:00:00Z and reason=\"…\"; a comment begins with #"
                ));
            }
        }
    }
    Ok(Some((target, allowed)))
}

fn end(value: &str) -> Result<Timestamp, String> {
    value.parse().map_err(|_| {
        format!(
            "until={value} is not a time with a zone; write for example until=2026-12-31T00:00:00Z"
        )
    })
}

fn reason(value: &str) -> Result<String, String> {
    let length = value.chars().count();
    if value.is_empty() || length > LONGEST_REASON || value.chars().any(char::is_control) {
        return Err(format!(
            "reason has {length} characters; a text of 1 to {LONGEST_REASON} characters on one line is expected"
        ));
    }
    Ok(value.to_owned())
}

/// A word of a line, without its quotes.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    text: String,
}

/// The words of a line up to a `#` outside of quotes.
fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '#' if !quoted => break,
            blank if blank.is_whitespace() && !quoted => {
                words.extend(word.take().map(|text| Word { text }));
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word.map(|text| Word { text }));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> Result<Prefixes<Allowed>, String> {
        let mut errors = Errors::default();
        let all = read(text, "whitelist", &mut errors, None);
        if errors.0.is_empty() {
            Ok(all)
        } else {
            Err(errors.to_string())
        }
    }

    #[test]
    fn a_line_holds_a_range_and_perhaps_an_end_and_a_reason() {
        let text = "192.0.2.1\n# none\n\n203.0.113.0/24 until=2026-12-31T00:00:00Z reason=\"office #3\" # moves\n198.51.100.7 reason=partner#x";
        let all = read_all(text).unwrap();
        assert_eq!(all.len(), 3);
        let get = |text: &str| all.get(&text.parse().unwrap()).unwrap().clone();
        assert_eq!(get("192.0.2.1"), Allowed::default());
        let office = get("203.0.113.0/24");
        assert_eq!(office.reason.as_deref(), Some("office #3"));
        assert_eq!(office.until, Some("2026-12-31T00:00:00Z".parse().unwrap()));
        assert_eq!(get("198.51.100.7").reason.as_deref(), Some("partner"));
    }

    #[test]
    fn a_takeover_drops_what_is_no_address_and_never_an_entry_with_a_wrong_field() {
        let text = "10.0.0.0/8 until=soon\nthe office\n192.0.2.1 reason=\"x\n192.0.2.2";
        let (mut errors, mut dropped) = (Errors::default(), Errors::default());
        let all = read(text, "whitelist", &mut errors, Some(&mut dropped));
        assert_eq!((all.len(), errors.0.len(), dropped.0.len()), (1, 2, 1));
    }

    #[test]
    fn a_wrong_line_is_an_error_with_its_number_and_what_to_write() {
        for (text, expected) in [
            (
                "192.0.2.1 until=tomorrow",
                "whitelist, line 1: until=tomorrow is not a time",
            ),
            ("192.0.2.1 until=2026-12-31", "write for example until="),
            ("\n192.0.2.1 office", "line 2: \"office\" is not known here"),
            ("192.0.2.1 reason=", "reason has 0 characters"),
            ("192.0.2.1 reason=\"a", "a quote is not closed"),
            ("192.0.2.1 reason=a reason=b", "reason is given twice"),
            (
                "192.0.2.1 reason=a\n192.0.2.1/32 reason=b",
                "line 2: 192.0.2.1 is in the list twice",
            ),
            ("nonsense reason=a", "neither an IP address"),
        ] {
            let error = read_all(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = format!("192.0.2.1 reason={}", "x".repeat(201));
        assert!(read_all(&long).unwrap_err().contains("201 characters"));
    }

    #[test]
    fn an_entry_protects_until_its_end_and_the_next_end_is_known() {
        let all = read_all(
            "192.0.2.1\n192.0.2.2 until=2026-01-02T00:00:00Z\n192.0.2.3 until=2026-01-03T00:00:00Z",
        )
        .unwrap();
        for (now, count, next) in [
            ("2026-01-01T00:00:00Z", 3, Some("2026-01-02T00:00:00Z")),
            ("2026-01-02T00:00:00Z", 2, Some("2026-01-03T00:00:00Z")),
            ("2026-01-03T00:00:00Z", 1, None),
        ] {
            let (standing, found) = at(&all, now.parse().unwrap());
            assert_eq!(standing.len(), count, "{now}");
            assert_eq!(found, next.map(|next| next.parse().unwrap()), "{now}");
        }
    }
}
