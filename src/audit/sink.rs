//! Where lines go: a file that may be moved away at any time, or the standard output.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The place of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file, which is appended to.
    File(PathBuf),
    /// The standard output.
    Standard,
}

/// What a writer writes to. The calls block.
pub(super) trait Sink: Send + fmt::Debug {
    /// Opens what is not open, or was moved. Returns whether it is another file than at the last call.
    fn prepare(&mut self, reopen: bool) -> io::Result<bool>;
    /// Writes a part of `bytes`, and returns its length.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Has what was written stored.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file by its path.
#[derive(Debug)]
struct Appended {
    path: PathBuf,
    file: Option<File>,
    /// The last line of the file has no end: the next one must not go on with it.
    torn: bool,
}

/// The standard output.
#[derive(Debug)]
struct Standard;

// === impl Destination ===

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("a path, or - for the standard output".to_owned()),
            "-" => Ok(Self::Standard),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Standard => formatter.write_str("the standard output"),
        }
    }
}

impl Destination {
    /// Opens it.
    pub(super) fn open(&self) -> io::Result<Box<dyn Sink>> {
        let mut sink: Box<dyn Sink> = match self {
            Self::File(path) => Box::new(Appended {
                path: path.clone(),
                file: None,
                torn: false,
            }),
            Self::Standard => Box::new(Standard),
        };
        sink.prepare(false)?;
        Ok(sink)
    }
}

// === impl Appended ===

impl Sink for Appended {
    fn prepare(&mut self, reopen: bool) -> io::Result<bool> {
        if let Some(file) = &self.file
            && !reopen
            && is_at(file, &self.path)
        {
            return Ok(false);
        }
        self.file = None;
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // It names addresses and persons.
            options.mode(0o640);
        }
        // A pipe has no end to look at, and a file that may not be read is appended to all the same.
        let readable = self.path.is_file();
        let readable = readable.then(|| options.clone().read(true).open(&self.path).ok());
        let mut file = match readable.flatten() {
            Some(file) => file,
            None => options.open(&self.path)?,
        };
        self.torn = is_torn(&mut file).unwrap_or_default();
        self.file = Some(file);
        Ok(true)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        if self.torn {
            file.write_all(b"\n")?;
            self.torn = false;
        }
        file.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.file.as_ref().map_or(Ok(()), File::sync_data) {
            // A pipe and a terminal have nothing to write through to.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
                ) =>
            {
                Ok(())
            }
            result => result,
        }
    }
}

/// Whether the last line of `file` has no end: a crash tore it.
fn is_torn(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Whether `path` still names `file`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |of: io::Result<std::fs::Metadata>| of.ok().map(|it| (it.dev(), it.ino()));
    let named = identity(std::fs::metadata(path));
    named.is_some() && named == identity(file.metadata())
}

#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}

// === impl Standard ===

impl Sink for Standard {
    fn prepare(&mut self, _: bool) -> io::Result<bool> {
        Ok(false)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}
