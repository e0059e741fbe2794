//! Short forms of texts that resemble each other: [`Packing`].
//!
//! Objects of a kind differ in their names, numbers and times, and have the rest in common: field names, and sentences
//! that a controller writes. A text is stored as a list of literals and of copies out of what comes before it: a
//! [`Dictionary`] of earlier texts of the store, and the beginning of the text itself. The encoding is that of an LZ4
//! block with a dictionary. It is fast to read, about a gigabyte a second, and needs no other library.
//!
//! # Which texts are in the dictionary
//! The first text, and later each text that does not become half as short, at most as often as a doubling number of
//! texts allows. So a store has at most one dictionary for each power of two of the texts that it ever packed, also
//! when its texts have nothing in common. An entry holds its dictionary, and the last entry frees it. A dictionary
//! contains parts of objects that may be gone, so packing is off unless it is asked for.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Positions have two bytes, so the dictionary and a text have at most this length together. Longer texts stay as they
/// are.
const WINDOW: usize = 1 << 16;

/// The longest dictionary, and the longest part of it that comes from one text.
const MOST_BYTES: usize = 8 << 10;
const MOST_OF_ONE: usize = 4 << 10;

/// A copy takes three bytes, so a shorter one would not pay.
const LEAST_COPY: usize = 4;

/// A count up to this fits into its half of a token; further bytes follow.
const NIBBLE: usize = 15;

const TABLE_BITS: u32 = 12;

/// Packs the texts of one store.
#[derive(Default)]
pub(crate) struct Packing(Mutex<Training>);

/// A text in its short form.
#[derive(Clone)]
pub(super) struct Packed {
    pub(super) bytes: Vec<u8>,
    /// The length of the text.
    pub(super) length: u32,
    pub(super) dictionary: Arc<Dictionary>,
}

/// Earlier texts, and the last position of each sequence of four bytes in them.
pub(super) struct Dictionary {
    text: Box<[u8]>,
    table: Box<[u16; 1 << TABLE_BITS]>,
}

#[derive(Default)]
struct Training {
    current: Option<Arc<Dictionary>>,
    samples: VecDeque<Box<[u8]>>,
    /// The texts since the dictionary was made, and how many it stays for at least.
    since: u64,
    patience: u64,
}

// === impl Packing ===

impl Packing {
    /// The short form of `text`, which may also copy from `head`. `None` if that is not shorter.
    pub(super) fn pack(&self, head: &[u8], text: &[u8]) -> Option<Packed> {
        let length = u32::try_from(text.len()).ok()?;
        if MOST_BYTES + head.len() + text.len() > WINDOW {
            return None;
        }
        let dictionary = self.current(text);
        let mut bytes = dictionary.pack(head, text);
        let mut dictionary = dictionary;
        if bytes.len() > text.len() / 2
            && let Some(better) = self.learn(text)
        {
            bytes = better.pack(head, text);
            dictionary = better;
        }
        (bytes.len() < text.len()).then_some(Packed {
            bytes,
            length,
            dictionary,
        })
    }

    /// The dictionary of the next text; of the first text, one that contains it.
    fn current(&self, text: &[u8]) -> Arc<Dictionary> {
        let mut training = self.0.lock();
        training.since += 1;
        if let Some(current) = &training.current {
            return Arc::clone(current);
        }
        training.learn(text)
    }

    /// A dictionary with `text`, unless the present one was made just now.
    fn learn(&self, text: &[u8]) -> Option<Arc<Dictionary>> {
        let mut training = self.0.lock();
        (training.since > training.patience).then(|| training.learn(text))
    }
}

impl fmt::Debug for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let training = self.0.lock();
        f.debug_struct("Packing")
            .field("samples", &training.samples.len())
            .finish_non_exhaustive()
    }
}

// === impl Training ===

impl Training {
    fn learn(&mut self, text: &[u8]) -> Arc<Dictionary> {
        self.samples
            .push_back(text[..text.len().min(MOST_OF_ONE)].into());
        while self.samples.iter().map(|text| text.len()).sum::<usize>() > MOST_BYTES {
            self.samples.pop_front();
        }
        let all: Vec<u8> = self.samples.iter().flatten().copied().collect();
        let dictionary = Arc::new(Dictionary::new(all.into()));
        self.current = Some(Arc::clone(&dictionary));
        self.since = 0;
        self.patience = self.patience.saturating_mul(2).max(1);
        dictionary
    }
}

// === impl Dictionary ===

impl Dictionary {
    fn new(text: Box<[u8]>) -> Self {
        let mut table = Box::new([0; 1 << TABLE_BITS]);
        for at in 0..text.len().saturating_sub(LEAST_COPY - 1) {
            table[slot(&text, at)] = position(at);
        }
        Self { text, table }
    }

    fn pack(&self, head: &[u8], text: &[u8]) -> Vec<u8> {
        let window = [&self.text, head, text].concat();
        let mut table = self.table.clone();
        let begin = self.text.len() + head.len();
        for at in self.text.len()..begin {
            if at + LEAST_COPY <= window.len() {
                table[slot(&window, at)] = position(at);
            }
        }
        let mut packed = Vec::with_capacity(text.len() / 2);
        let (mut at, mut literals) = (begin, begin);
        while at + LEAST_COPY <= window.len() {
            let place = &mut table[slot(&window, at)];
            let from = usize::from(std::mem::replace(place, position(at)));
            // An empty place of the table names the beginning, which is compared as any other.
            let same = same_bytes(&window, from, at);
            if same < LEAST_COPY || from >= at {
                at += 1;
                continue;
            }
            sequence(&mut packed, &window[literals..at], Some((at - from, same)));
            for inner in (at + 1..at + same).step_by(2) {
                if inner + LEAST_COPY <= window.len() {
                    table[slot(&window, inner)] = position(inner);
                }
            }
            at += same;
            literals = at;
        }
        sequence(&mut packed, &window[literals..], None);
        packed.shrink_to_fit();
        packed
    }

    fn unpack(&self, head: &[u8], mut packed: &[u8], length: usize) -> Option<Vec<u8>> {
        let begin = self.text.len() + head.len();
        let mut window = Vec::with_capacity(begin + length);
        window.extend_from_slice(&self.text);
        window.extend_from_slice(head);
        while let Some((token, rest)) = packed.split_first() {
            packed = rest;
            let literals = count(usize::from(token >> 4), &mut packed)?;
            let (text, rest) = packed.split_at_checked(literals)?;
            window.extend_from_slice(text);
            packed = rest;
            if packed.is_empty() {
                break;
            }
            let (distance, rest) = packed.split_first_chunk::<2>()?;
            packed = rest;
            let distance = usize::from(u16::from_le_bytes(*distance));
            let copied = count(usize::from(token & 15), &mut packed)? + LEAST_COPY;
            if window.len() + copied > begin + length {
                return None;
            }
            let from = window.len().checked_sub(distance)?;
            if distance >= copied {
                window.extend_from_within(from..from + copied);
            } else {
                // The copy overlaps itself: a repetition.
                for at in from..from + copied {
                    window.push(*window.get(at)?);
                }
            }
        }
        window.drain(..begin);
        (window.len() == length).then_some(window)
    }
}

/// The text, if the bytes are those of [`Packing::pack`] with the same `head`.
pub(super) fn unpack(
    dictionary: &Dictionary,
    head: &[u8],
    bytes: &[u8],
    length: usize,
) -> Option<Vec<u8>> {
    dictionary.unpack(head, bytes, length)
}

/// Appends literals and a copy (distance, length) of the sequence after them; the last sequence has none.
fn sequence(packed: &mut Vec<u8>, literals: &[u8], copy: Option<(usize, usize)>) {
    let more = copy.map_or(0, |(_, length)| length - LEAST_COPY);
    let token = literals.len().min(NIBBLE) << 4 | more.min(NIBBLE);
    packed.push(token.to_le_bytes()[0]);
    further(packed, literals.len());
    packed.extend_from_slice(literals);
    if let Some((distance, _)) = copy {
        packed.extend_from_slice(&position(distance).to_le_bytes());
        further(packed, more);
    }
}

/// The bytes of a count that does not fit into a token.
fn further(packed: &mut Vec<u8>, count: usize) {
    let Some(mut rest) = count.checked_sub(NIBBLE) else {
        return;
    };
    while rest >= 255 {
        packed.push(255);
        rest -= 255;
    }
    packed.push(rest.to_le_bytes()[0]);
}

fn count(nibble: usize, packed: &mut &[u8]) -> Option<usize> {
    let mut count = nibble;
    let mut more = nibble == NIBBLE;
    while more {
        let (byte, rest) = packed.split_first()?;
        *packed = rest;
        count += usize::from(*byte);
        more = *byte == 255;
    }
    Some(count)
}

/// The length of the text at `at` that equals the text at `from`.
fn same_bytes(window: &[u8], from: usize, at: usize) -> usize {
    let pairs = window[from..].iter().zip(&window[at..]);
    pairs.take_while(|(a, b)| a == b).count()
}

/// The place of four bytes in a table.
fn slot(window: &[u8], at: usize) -> usize {
    let bytes = window[at..].first_chunk().copied().unwrap_or_default();
    (u32::from_le_bytes(bytes).wrapping_mul(2_654_435_761) >> (32 - TABLE_BITS)) as usize
}

fn position(at: usize) -> u16 {
    // The window has at most `WINDOW` bytes.
    u16::try_from(at).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample::cases;

    fn unpacked(head: &str, packed: &Packed) -> Option<String> {
        let text = unpack(
            &packed.dictionary,
            head.as_bytes(),
            &packed.bytes,
            packed.length as usize,
        );
        String::from_utf8(text?).ok()
    }

    fn record(number: usize, extent: &str) -> String {
        format!(
            r#"{{"name":"record-{number}","message":"number {number} is written {extent}","detail":"written {extent}: {number}"}}"#
        )
    }

    proptest! {
        #![proptest_config(cases(300))]

        /// Every text comes back, whatever came before it and however often the dictionary changed since.
        #[test]
        fn each_text_comes_back(
            texts in proptest::collection::vec("[a-c]{0,40}|.{0,60}|(abcd){0,200}|[a-z]{300}", 0..40),
            heads in proptest::collection::vec("[a-c]{0,9}", 40),
        ) {
            let packing = Packing::default();
            let mut all = Vec::new();
            for (text, head) in texts.iter().zip(&heads) {
                if let Some(packed) = packing.pack(head.as_bytes(), text.as_bytes()) {
                    prop_assert!(packed.bytes.len() < text.len());
                    all.push((text, head, packed));
                }
            }
            for (text, head, packed) in &all {
                let back = unpacked(head, packed);
                prop_assert_eq!(back.as_ref(), Some(*text));
            }
        }

        /// Bytes that were never packed are refused or read as some text; nothing panics, and no memory beyond the text's
        /// is taken.
        #[test]
        fn damaged_bytes_are_an_error(bytes: Vec<u8>, length in 0..300_usize, before in "[a-z]{0,30}") {
            let dictionary = Dictionary::new(before.into_bytes().into());
            let text = dictionary.unpack(b"head", &bytes, length);
            prop_assert!(text.is_none_or(|text| text.len() == length));
        }
    }

    #[test]
    fn texts_that_resemble_the_first_take_a_fraction() {
        let packing = Packing::default();
        let texts = |extent: &str| -> (usize, usize) {
            let texts: Vec<String> = (0..100)
                .map(|number| record(number, &extent.repeat(20)))
                .collect();
            let packed = texts
                .iter()
                .map(|text| packing.pack(b"", text.as_bytes()).unwrap());
            let packed = packed.map(|packed| packed.bytes.len()).sum();
            (texts.iter().map(String::len).sum(), packed)
        };
        let (long, short) = texts("at length ");
        assert!(short * 10 < long, "{short} of {long}");
        let (long, short) = texts("briefly, ");
        assert!(
            short * 8 < long,
            "another shape is learned: {short} of {long}"
        );
        assert!(packing.0.lock().samples.len() <= 3);
    }

    #[test]
    fn texts_without_likeness_make_few_dictionaries_and_those_are_bounded() {
        let packing = Packing::default();
        let mut seed = 1_u64;
        let mut dictionaries = 0;
        for _ in 0..500 {
            let text: String = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                char::from(b'!' + (seed >> 33).to_le_bytes()[0] % 90)
            })
            .take(5000)
            .collect();
            let before = packing.0.lock().current.as_ref().map(Arc::as_ptr);
            assert!(
                packing
                    .pack(b"", text.as_bytes())
                    .is_none_or(|it| it.bytes.len() < 5000)
            );
            let training = packing.0.lock();
            let now = training.current.as_ref();
            assert!(now.is_some_and(|it| it.text.len() <= MOST_BYTES));
            dictionaries += usize::from(before != now.map(Arc::as_ptr));
        }
        assert!((2..=10).contains(&dictionaries), "{dictionaries}");
    }

    #[test]
    fn a_text_that_is_too_long_for_positions_stays_as_it_is() {
        let packing = Packing::default();
        assert!(packing.pack(b"", &[b'a'; WINDOW]).is_none());
        let longest = "a".repeat(WINDOW - MOST_BYTES);
        let packed = packing.pack(b"", longest.as_bytes()).unwrap();
        assert_eq!(unpacked("", &packed), Some(longest));
    }
}
