//! Files that the program writes.

use std::io::{self, Write as _};
use std::path::Path;

/// Writes a file that only its owner may read.
pub(super) fn write_private(path: &Path, content: &str) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).write(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options.open(path)?.write_all(content.as_bytes())
}
