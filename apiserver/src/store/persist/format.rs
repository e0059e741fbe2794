//! The lines of the files: a checksum and one JSON document each.
//!
//! `3f2a90c1 {"version":…}`: eight digits of CRC-32 over the document, a blank, the document. A file begins with a
//! [`Head`]. Lines are independent: a missing line is one missing write, and all others are unaffected.
//!
//! The third format is written, and all are read: the second had no `apiVersion` in its lines, and the first had
//! neither checksums nor heads.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::object::shared;
use super::super::scan;
use super::{Content, Found, Key, Object, PersistError};

/// The written format.
pub(super) const NEWEST: u32 = 3;
/// The format without heads.
const FIRST: u32 = 1;
/// The start of a head.
const HEAD: &[u8] = b"{\"format\":";

/// The first line of a file, and in a log each line that reserves versions.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    format: u32,
    /// The newest version at the time of writing; a snapshot holds no newer one.
    pub(super) revision: u64,
    /// Versions up to this one may have been used.
    pub(super) reserved: u64,
    /// For a snapshot: the number of following lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) objects: Option<usize>,
    /// For a log: where the log before it ended when this one began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) follows: Option<End>,
}

/// The end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// The number of the log.
    pub(super) log: u64,
    /// The end of its last line.
    pub(super) at: u64,
}

/// The first line of a file.
pub(super) enum Start {
    Head(Head),
    /// A line of the first format, or a damaged one.
    Other,
    /// The file is empty, or its first line is incomplete: it never had a whole line.
    Nothing,
}

/// One write.
pub(in crate::store) struct Line<'a> {
    pub(in crate::store) version: u64,
    pub(in crate::store) storage: &'a str,
    pub(in crate::store) key: &'a Key,
    /// `None` for a removal.
    pub(in crate::store) object: Option<&'a Object>,
}

/// One write, as it is written: without the value, which follows as it is.
#[derive(Serialize)]
struct Written<'a> {
    version: u64,
    storage: &'a str,
    key: &'a str,
    /// The `apiVersion` that the value has the form of, if it is known.
    #[serde(rename = "apiVersion", skip_serializing_if = "is_empty")]
    api_version: &'a str,
}

/// One write, as it is read.
#[derive(Deserialize)]
struct Read<'a> {
    version: u64,
    #[serde(borrow)]
    storage: Cow<'a, str>,
    #[serde(borrow)]
    key: Cow<'a, str>,
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    /// Absent for a removal; and in the head of a snapshot of the first format, whose `storage` is empty.
    value: Option<IgnoredAny>,
}

fn is_empty(text: impl AsRef<str>) -> bool {
    text.as_ref().is_empty()
}

/// The extent of a file.
#[derive(Debug, Default)]
pub(super) struct Extent {
    /// Whole lines.
    pub(super) lines: usize,
    /// The end of the last whole line.
    pub(super) end: u64,
    /// Whether there is an incomplete line behind that.
    pub(super) torn: bool,
    /// Whole lines behind the incomplete one.
    pub(super) lost: usize,
}

// === impl Head ===

impl Head {
    pub(super) fn new(revision: u64, reserved: u64, objects: Option<usize>) -> Self {
        Self {
            format: NEWEST,
            revision,
            reserved,
            objects,
            follows: None,
        }
    }

    /// The head of a log that continues another one.
    pub(super) fn after(self, follows: Option<End>) -> Self {
        Self { follows, ..self }
    }
}

/// Appends the line of a write.
pub(super) fn encode_write(line: &Line<'_>, lines: &mut Vec<u8>) -> io::Result<()> {
    let object = line.object;
    let written = Written {
        version: line.version,
        storage: line.storage,
        key: line.key.as_str(),
        api_version: object.map_or("", Object::api_version),
    };
    lines.reserve(object.map_or(0, |object| object.encoded().len()) + 128);
    let start = begin(lines);
    serde_json::to_writer(&mut *lines, &written)?;
    if let Some(object) = object {
        lines.pop();
        lines.extend_from_slice(b",\"value\":");
        lines.extend_from_slice(object.encoded());
        lines.push(b'}');
    }
    finish(lines, start);
    Ok(())
}

/// A line with its checksum.
pub(super) fn encode(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let start = begin(&mut bytes);
    serde_json::to_writer(&mut bytes, line)?;
    finish(&mut bytes, start);
    Ok(bytes)
}

/// Leaves room for a checksum; returns where the line starts.
fn begin(lines: &mut Vec<u8>) -> usize {
    lines.extend_from_slice(b"00000000 ");
    lines.len() - 9
}

/// Sets the checksum of the line that starts at `start`, and ends it.
fn finish(lines: &mut Vec<u8>, start: usize) {
    let sum = format!("{:08x}", crc32(&lines[start + 9..]));
    lines[start..start + 8].copy_from_slice(sum.as_bytes());
    lines.push(b'\n');
}

/// Reads the first line of a file.
pub(super) fn start(path: &Path) -> Result<Start, PersistError> {
    let file = File::open(path).map_err(PersistError::new("open", path))?;
    let mut line = Vec::new();
    BufReader::new(file)
        .read_until(b'\n', &mut line)
        .map_err(PersistError::new("read", path))?;
    if !line.ends_with(b"\n") || line.contains(&0) {
        return Ok(Start::Nothing);
    }
    let head = document(&line).ok().filter(|line| line.starts_with(HEAD));
    let head = head.and_then(|line| serde_json::from_slice(line).ok());
    Ok(head.map_or(Start::Other, Start::Head))
}

/// Applies the lines of `path` above `floor`. Those of a log that was `unsynced` end where a power failure left zeroes.
///
/// # Errors
/// When a line is damaged otherwise and whole ones follow, or the format is newer than this program.
pub(super) fn read(
    path: &Path,
    found: &mut Found,
    floor: u64,
    unsynced: bool,
) -> Result<Extent, PersistError> {
    let file = File::open(path).map_err(PersistError::new("open", path))?;
    let mut reader = BufReader::new(file);
    let mut extent = Extent::default();
    let mut damage: Option<(usize, String)> = None;
    let (mut number, mut expected) = (0, None);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let failed = PersistError::new("read", path);
        let read = reader.read_until(b'\n', &mut bytes).map_err(failed)?;
        if read == 0 {
            break;
        }
        number += 1;
        if unsynced && (extent.torn || bytes.contains(&0)) {
            extent.lost += usize::from(extent.torn && document(&bytes).is_ok());
            extent.torn = true;
            continue;
        }
        match apply(&bytes, number, found, floor) {
            Ok(objects) => {
                if let Some((line, why)) = damage {
                    return Err(damaged(path, line, &why));
                }
                expected = expected.or(objects);
                extent.lines += 1;
                extent.end += read as u64;
            }
            Err(Refusal::Damaged(why)) => damage = damage.or(Some((number, why))),
            Err(Refusal::Newer(format)) => {
                return Err(PersistError::new("read", path)(io::Error::other(format!(
                    "its format {format} is newer than {NEWEST}, the newest that this program reads; \
                     start the program that wrote it"
                ))));
            }
        }
    }
    extent.torn |= damage.is_some();
    if let Some(objects) = expected
        && objects + 1 != extent.lines
    {
        return Err(cut_short(path, extent.lines, Some(objects + 1)));
    }
    Ok(extent)
}

/// The error of an incomplete snapshot.
pub(super) fn cut_short(path: &Path, lines: usize, expected: Option<usize>) -> PersistError {
    let of = expected.map_or(String::new(), |expected| format!(" of {expected}"));
    PersistError::new("read", path)(io::Error::other(format!(
        "it ends after {lines}{of} whole lines; restore the directory from a copy, or delete the first line and what \
         follows the last whole one to go on without the objects that are missing"
    )))
}

fn damaged(path: &Path, line: usize, why: &str) -> PersistError {
    PersistError::new("read", path)(io::Error::other(format!(
        "line {line} is damaged: {why}, and it is not the last one; delete this line to go on without the write that \
         it held, or restore the directory from a copy"
    )))
}

/// The reason why a line was not applied.
enum Refusal {
    Damaged(String),
    Newer(u32),
}

/// Applies the line of this number in its file; returns the number of following objects, if it has one.
fn apply(
    bytes: &[u8],
    number: usize,
    found: &mut Found,
    floor: u64,
) -> Result<Option<usize>, Refusal> {
    let document = document(bytes).map_err(|why| Refusal::Damaged(why.to_owned()))?;
    let malformed = |error: serde_json::Error| Refusal::Damaged(error.to_string());
    if document.starts_with(HEAD) {
        let head: Head = serde_json::from_slice(document).map_err(malformed)?;
        if head.format > NEWEST {
            return Err(Refusal::Newer(head.format));
        }
        found.oldest = found.oldest.min(head.format);
        found.revision = found.revision.max(head.revision);
        found.reserved = found.reserved.max(head.reserved);
        return Ok(head.objects);
    }
    let line: Read<'_> = serde_json::from_slice(document).map_err(malformed)?;
    if number == 1 {
        found.oldest = FIRST;
    }
    if line.storage.is_empty() {
        found.revision = found.revision.max(line.version);
        return Ok(None);
    }
    if line.version <= floor && floor > 0 {
        return Ok(None);
    }
    found.revision = found.revision.max(line.version);
    let key = Key::from(&*line.key);
    match line.value {
        Some(_) => {
            let content = Content {
                api_version: shared(&mut found.api_versions, &line.api_version),
                json: value(bytes, document)
                    .ok_or_else(|| Refusal::Damaged("it has no value".to_owned()))?,
            };
            let table = found.tables.entry(line.storage.into_owned());
            table.or_default().insert(key, content);
        }
        None => {
            if let Some(table) = found.tables.get_mut(&*line.storage) {
                table.remove(&key);
            }
        }
    }
    Ok(None)
}

/// The JSON of the object in a line.
fn value(line: &[u8], document: &[u8]) -> Option<Bytes> {
    if line.first() == Some(&b'{') {
        // The first format has no checksum, so that the line may be edited.
        let line: Value = serde_json::from_slice(document).ok()?;
        return Some(line.get("value")?.to_string().into());
    }
    let place = scan::field(document, 0..document.len(), "value")?;
    Some(Bytes::copy_from_slice(&document[place]))
}

/// The document of a line.
fn document(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let line = bytes.strip_suffix(b"\n").ok_or("it has no end")?;
    if line.first() == Some(&b'{') {
        return Ok(line);
    }
    let (sum, rest) = line.split_at_checked(8).ok_or("it is too short")?;
    let document = rest.strip_prefix(b" ").ok_or("it has no checksum")?;
    let sum = std::str::from_utf8(sum).ok();
    match sum.and_then(|sum| u32::from_str_radix(sum, 16).ok()) {
        Some(sum) if sum == crc32(document) => Ok(document),
        _ => Err("its checksum does not match"),
    }
}

/// CRC-32 of zlib, by tables for eight bytes at once.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLES: [[u32; 256]; 8] = tables();
    let mut sum = u32::MAX;
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        let [a, b, c, d, e, f, g, h] = (u64::from_le_bytes(*eight) ^ u64::from(sum)).to_le_bytes();
        sum = [h, g, f, e, d, c, b, a]
            .iter()
            .zip(&TABLES)
            .fold(0, |sum, (&byte, table)| sum ^ table[usize::from(byte)]);
    }
    let step = |sum: u32, &byte: &u8| TABLES[0][usize::from((sum as u8) ^ byte)] ^ (sum >> 8);
    !rest.iter().fold(sum, step)
}

/// In the n-th table, a byte with n zeroes behind it.
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut at = 0;
    while at < 256 {
        let mut sum = at as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 {
                (sum >> 1) ^ 0xedb8_8320
            } else {
                sum >> 1
            };
            bit += 1;
        }
        tables[0][at] = sum;
        at += 1;
    }
    let mut zeroes = 1;
    while zeroes < 8 {
        let mut at = 0;
        while at < 256 {
            let before = tables[zeroes - 1][at];
            tables[zeroes][at] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            at += 1;
        }
        zeroes += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(
            crc32(b"The quick brown fox jumps over the lazy dog"),
            0x414f_a339
        );
    }

    #[test]
    fn every_flipped_bit_of_a_line_is_found() {
        let line = Line {
            version: 7,
            storage: "things",
            key: &Key::from("a/x"),
            object: None,
        };
        let mut whole = Vec::new();
        encode_write(&line, &mut whole).unwrap();
        assert!(apply(&whole, 2, &mut Found::default(), 0).is_ok());
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // The case of a digit of the sum has no meaning.
            let same = flipped.eq_ignore_ascii_case(&whole) && bit / 8 < 8;
            let refused = apply(&flipped, 2, &mut Found::default(), 0).is_err();
            assert!(refused || same, "bit {bit}");
        }
    }
}
