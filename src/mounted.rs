//! Files that the ConfigMap names: read only below the directories that the command line names.
//!
//! An editor of the ConfigMap chooses both a file and the place where its text is sent. Without a bound, the token of
//! the operator's own ServiceAccount could be sent to any host. So a [`MountedFile`] is made only by a [`Directory`],
//! from a path below it without `..`, and each read follows symbolic links only inside of that directory: a mounted
//! Secret consists of links to `..data`, which points to a sibling.

use std::fmt;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Where the manifests mount the Secret `ipblock-operator-secrets`.
pub const SECRETS: &str = "/etc/ipblock-operator/secrets";

/// Where the original's image has its card templates.
pub const TEMPLATES: &str = "/templates";

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// A directory whose files the ConfigMap may name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Directory(PathBuf);

/// A file below a [`Directory`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MountedFile {
    directory: Directory,
    path: PathBuf,
}

/// Why a path may not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} is not a file below {directory}; only files below it are read, and .. is refused")]
pub struct Outside {
    /// The path.
    pub path: String,
    /// The directory, or several.
    pub directory: String,
}

/// A file when it was read last: time of change and length, `None` when it cannot be read.
pub type Stamp = Option<(Option<SystemTime>, u64)>;

// === impl Directory ===

impl Directory {
    /// The directory at `path`.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The file at `path`, which must be absolute and below this directory.
    ///
    /// # Errors
    /// When it is not, or has a `..` in it. Whether the file exists is not checked.
    pub fn file(&self, path: &str) -> Result<MountedFile, Outside> {
        let path = Path::new(path);
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if plain && path.is_absolute() && path.starts_with(&self.0) && path != self.0 {
            return Ok(MountedFile {
                directory: self.clone(),
                path: path.to_owned(),
            });
        }
        Err(Outside {
            // What is no path may be the secret itself, and errors are shown.
            path: match path.is_absolute() {
                true => path.display().to_string(),
                false => "a value that is not an absolute path".to_owned(),
            },
            directory: self.to_string(),
        })
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new(SECRETS)
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0.display())
    }
}

// === impl MountedFile ===

impl MountedFile {
    /// The path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The content.
    ///
    /// # Errors
    /// When it cannot be read, when a link leads out of the directory, and when it is larger than 1 MiB.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let real = self.resolve()?;
        let mut content = Vec::new();
        std::fs::File::open(real)?
            .take(LARGEST + 1)
            .read_to_end(&mut content)?;
        if content.len() as u64 > LARGEST {
            return Err(io::Error::other("it is larger than 1 MiB"));
        }
        Ok(content)
    }

    /// The content as text.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when it is not UTF-8.
    pub fn text(&self) -> io::Result<String> {
        String::from_utf8(self.read()?).map_err(|_| io::Error::other("it is not UTF-8 text"))
    }

    /// Changes when the file does. A Secret that is rotated changes the time.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let metadata = std::fs::metadata(self.resolve().ok()?).ok()?;
        Some((metadata.modified().ok(), metadata.len()))
    }

    /// The path without symbolic links, which must be below the directory without symbolic links.
    fn resolve(&self) -> io::Result<PathBuf> {
        let real = self.path.canonicalize()?;
        if real.starts_with(self.directory.0.canonicalize()?) {
            Ok(real)
        } else {
            let text = format!("a symbolic link leads out of {}", self.directory);
            Err(io::Error::other(text))
        }
    }

    /// A file that is the only one of its directory.
    #[cfg(test)]
    pub(crate) fn alone(path: impl Into<PathBuf>) -> Self {
        let path: PathBuf = path.into();
        Self {
            directory: Directory::new(path.parent().expect("a directory")),
            path,
        }
    }
}

impl fmt::Display for MountedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory of its own, removed with the value.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mounted-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(path.join("secrets")).unwrap();
            Self(path)
        }

        fn secrets(&self) -> Directory {
            Directory::new(self.0.join("secrets"))
        }

        fn file(&self, name: &str) -> MountedFile {
            let path = self.0.join("secrets").join(name);
            self.secrets().file(path.to_str().unwrap()).unwrap()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_paths_below_the_directory_are_files_of_it() {
        let secrets = Directory::default();
        for inside in ["key", "sub/key", "..data/key"] {
            assert!(secrets.file(&format!("{SECRETS}/{inside}")).is_ok());
        }
        for outside in [
            "/var/run/secrets/kubernetes.io/serviceaccount/token",
            "/etc/ipblock-operator/secrets",
            "/etc/ipblock-operator/secrets/../../passwd",
            "/etc/ipblock-operator/secrets-of-others/key",
            "/etc/ipblock-operator/secrets/./../key",
            "etc/ipblock-operator/secrets/key",
            "key",
            "",
        ] {
            let error = secrets.file(outside).unwrap_err().to_string();
            assert!(
                error.contains("below /etc/ipblock-operator/secrets"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_links_of_a_mounted_secret_are_followed_and_no_link_out_of_the_directory_is() {
        let root = Root::new("links");
        let secrets = root.0.join("secrets");
        std::fs::create_dir(secrets.join("..2026_01_01")).unwrap();
        std::fs::write(secrets.join("..2026_01_01/key"), "s3cr3t\n").unwrap();
        symlink("..2026_01_01", secrets.join("..data")).unwrap();
        symlink("..data/key", secrets.join("key")).unwrap();
        assert_eq!(root.file("key").text().unwrap(), "s3cr3t\n");
        assert!(root.file("key").stamp().is_some());

        std::fs::write(root.0.join("token"), "of the ServiceAccount").unwrap();
        symlink("../token", secrets.join("out")).unwrap();
        let error = root.file("out").read().unwrap_err().to_string();
        assert!(error.contains("leads out of"), "{error}");
        assert_eq!(root.file("out").stamp(), None);
        symlink(&root.0, secrets.join("directory")).unwrap();
        assert!(root.file("directory/token").read().is_err());
        assert!(root.file("missing").read().is_err());
    }

    #[test]
    fn a_file_past_the_limit_is_an_error_and_its_stamp_follows_its_content() {
        let root = Root::new("large");
        let path = root.0.join("secrets/key");
        std::fs::write(&path, "one").unwrap();
        let file = root.file("key");
        let one = file.stamp();
        assert_eq!(one, file.stamp());
        std::fs::write(&path, "three").unwrap();
        assert_ne!(file.stamp(), one);
        std::fs::write(&path, vec![b'x'; 1024 * 1024]).unwrap();
        assert_eq!(file.read().unwrap().len(), 1024 * 1024);
        std::fs::write(&path, vec![b'x'; 1024 * 1024 + 1]).unwrap();
        assert!(file.read().is_err());
    }

    #[test]
    fn a_value_that_is_no_path_is_not_repeated() {
        let error = Directory::default().file("https://hooks.example/hunter2");
        let text = error.unwrap_err().to_string();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.starts_with("a value that is not an absolute path is not a file below"));
    }
}
