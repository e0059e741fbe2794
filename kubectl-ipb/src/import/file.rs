//! A file or the standard input, within a bound.

use std::fs::File;
use std::io::{self, Read};

use crate::error::Error;

/// The largest file, in MiB: more than a million addresses.
const LIMIT: u64 = 64;

/// The text of the file at `path` without a byte order mark; `-` is the standard input.
pub(crate) fn read(path: &str) -> Result<String, Error> {
    let bytes = if path == "-" {
        take(io::stdin().lock())
    } else {
        File::open(path).and_then(take)
    };
    let file = || path.into();
    match bytes {
        Ok(Some(bytes)) => match String::from_utf8(bytes) {
            Ok(text) => Ok(match text.strip_prefix('\u{feff}') {
                Some(rest) => rest.to_owned(),
                None => text,
            }),
            Err(_) => Err(Error::Format {
                file: file(),
                problem: "the file is not UTF-8 text".to_owned(),
            }),
        },
        Ok(None) => Err(Error::TooLarge {
            file: file(),
            limit: LIMIT,
        }),
        Err(source) => Err(Error::File {
            file: file(),
            source,
        }),
    }
}

/// The content; `None` when it is larger than the bound.
fn take(reader: impl Read) -> io::Result<Option<Vec<u8>>> {
    let most = LIMIT * 1024 * 1024;
    let mut bytes = Vec::new();
    reader.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}
