//! Elements of a set as messages, and back.
//!
//! The kernel keeps an interval as two elements: its first address, which has the time-out, and the address after its
//! last with the flag `NFT_SET_ELEM_INTERVAL_END`. An interval up to the last address of all has no end.

use std::time::Duration;

use super::{Body, FIXED, INET, Sink, fixed, kind};
use crate::interval::{Family, Left, Span, Timed};
use crate::netlink::{Attributes, CREATE, EXCLUSIVE, Error, Socket, Writer};

/// `NFT_SET_ELEM_INTERVAL_END`.
const END: u32 = 1;
/// Bytes of elements in one message. An attribute has at most 65,535, and kernels repeat a refused message in their error.
const MESSAGE: usize = 24 << 10;

/// One element as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edge {
    key: u128,
    end: bool,
    left: Left,
}

/// Writes messages that add `elements`. None may overlap another, or one that the set has.
pub(super) fn add(table: &str, family: Family, elements: &[Timed], message: &mut Sink<'_>) {
    write(table, family, elements, &mut |body| {
        message(kind::NEW_ELEMENT, CREATE | EXCLUSIVE, body);
    });
}

/// Writes messages that delete the elements of `spans`.
pub(super) fn delete(table: &str, family: Family, spans: &[Span], message: &mut Sink<'_>) {
    let elements: Vec<Timed> = spans
        .iter()
        .map(|span| Timed::new(*span, Left::INDEFINITE))
        .collect();
    write(table, family, &elements, &mut |body| {
        message(kind::DELETE_ELEMENT, 0, body);
    });
}

fn write(table: &str, family: Family, elements: &[Timed], message: &mut dyn FnMut(&Body<'_>)) {
    // Two elements, each with headers, key, and time-out or flags.
    let each = 2 * (24 + family.bytes().next_multiple_of(4));
    for some in elements.chunks(MESSAGE / each) {
        message(&|writer| {
            fixed(writer, INET, 0);
            writer.text(1, table);
            writer.text(2, family.name());
            writer.nested(3, |writer| {
                for timed in some {
                    write_one(writer, family, *timed);
                }
            });
        });
    }
}

fn write_one(writer: &mut Writer, family: Family, timed: Timed) {
    writer.nested(1, |writer| {
        write_key(writer, family, timed.span.first);
        if let Some(time) = timed.left.time() {
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            writer.attribute(4, &millis.to_be_bytes());
        }
    });
    if timed.span.last < family.last() {
        writer.nested(1, |writer| {
            write_key(writer, family, timed.span.last + 1);
            writer.number(3, END);
        });
    }
}

fn write_key(writer: &mut Writer, family: Family, key: u128) {
    let bytes = key.to_be_bytes();
    let key = &bytes[bytes.len() - family.bytes()..];
    writer.nested(1, |writer| writer.attribute(1, key));
}

/// The intervals of a set, sorted.
///
/// # Errors
/// The kernel's; where the set is missing, too.
pub(super) fn read(socket: &mut Socket, table: &str, family: Family) -> Result<Vec<Timed>, Error> {
    let edges = socket.dump(
        kind::GET_ELEMENT,
        |writer| {
            fixed(writer, INET, 0);
            writer.text(1, table);
            writer.text(2, family.name());
        },
        |message, edges| {
            for (_, element) in message.attributes(FIXED).inside(3) {
                edges.push(
                    read_one(Attributes::of(element), family)
                        .ok_or(Error::Malformed("an element of a set"))?,
                );
            }
            Ok(())
        },
    )?;
    Ok(intervals(edges, family))
}

fn read_one(element: Attributes<'_>, family: Family) -> Option<Edge> {
    let key = element.inside(1).get(1)?;
    if key.len() != family.bytes() {
        return None;
    }
    let key = key
        .iter()
        .fold(0, |number: u128, byte| number << 8 | u128::from(*byte));
    let end = element.number(3).unwrap_or_default() & END != 0;
    // What is left; else the whole time-out; without both it stays indefinitely.
    let left = element.long(5).or_else(|| element.long(4));
    let left = left.map_or(Left::INDEFINITE, |millis| {
        Left::of(Duration::from_millis(millis))
    });
    Some(Edge { key, end, left })
}

/// Joins beginnings and ends. An end without a beginning is skipped: `nft` adds one at zero, and one stays for a moment
/// where an element has ended.
fn intervals(mut edges: Vec<Edge>, family: Family) -> Vec<Timed> {
    // At one address the end of an interval comes before the beginning of the next.
    edges.sort_unstable_by_key(|edge| (edge.key, !edge.end));
    let mut found = Vec::new();
    let mut open: Option<Edge> = None;
    let close = |open: &mut Option<Edge>, found: &mut Vec<Timed>, last: u128| {
        if let Some(edge) = open.take() {
            let first = edge.key;
            found.push(Timed::new(Span { first, last }, edge.left));
        }
    };
    for edge in edges {
        // A beginning before the end of another: the set was written by another program, and is read as two intervals.
        close(&mut open, &mut found, edge.key.saturating_sub(1));
        if !edge.end {
            open = Some(edge);
        }
    }
    close(&mut open, &mut found, family.last());
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::interval::flatten;
    use crate::netlink::Message;

    /// Writes elements, and reads them from the messages as from a dump.
    fn round_trip(family: Family, elements: &[Timed]) -> (Vec<Timed>, usize) {
        let mut writer = Writer::default();
        let mut count = 0;
        add("t", family, elements, &mut |kind, flags, body| {
            writer.message(kind, flags, 1, body);
            count += 1;
        });
        let mut edges = Vec::new();
        for message in Message::all(writer.bytes()).unwrap() {
            for (_, element) in message.attributes(FIXED).inside(3) {
                edges.push(read_one(Attributes::of(element), family).unwrap());
            }
        }
        (intervals(edges, family), count)
    }

    #[test]
    fn many_elements_take_several_messages() {
        let elements: Vec<Timed> = (0..2000_u128)
            .map(|at| {
                let span = Span {
                    first: at * 2,
                    last: at * 2,
                };
                Timed::new(span, Left::of(Duration::from_secs(60)))
            })
            .collect();
        for family in Family::ALL {
            let (read, messages) = round_trip(family, &elements);
            assert_eq!(read, elements);
            assert!((2000 / 512..2000 / 100).contains(&messages), "{messages}");
        }
    }

    #[test]
    fn an_interval_up_to_the_last_address_has_no_end() {
        for family in Family::ALL {
            let all = Span {
                first: 0,
                last: family.last(),
            };
            let elements = [Timed::new(all, Left::INDEFINITE)];
            assert_eq!(round_trip(family, &elements).0, elements);
        }
    }

    #[test]
    fn an_end_without_a_beginning_is_skipped() {
        let edge = |key, end| Edge {
            key,
            end,
            left: Left::INDEFINITE,
        };
        let found = intervals(
            vec![edge(0, true), edge(9, true), edge(7, false), edge(20, true)],
            Family::V4,
        );
        assert_eq!(
            found,
            [Timed::new(Span { first: 7, last: 8 }, Left::INDEFINITE)]
        );
    }

    proptest! {
        #[test]
        fn intervals_are_read_as_they_are_written(
            entries in prop::collection::vec((any::<u32>(), 0_u32..9, 0_u64..4), 0..40)
        ) {
            let pieces = flatten(entries.into_iter().map(|(first, size, hours)| {
                let last = u128::from(first.saturating_add(size));
                let left = if hours == 0 { Left::INDEFINITE } else { Left::of(Duration::from_secs(hours * 3600)) };
                Timed::new(Span { first: first.into(), last }, left)
            }));
            for family in Family::ALL {
                prop_assert_eq!(&round_trip(family, &pieces).0, &pieces);
            }
        }
    }
}
