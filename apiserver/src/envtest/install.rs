//! `reeve-apiserver envtest DIR`: writes the programs that `KUBEBUILDER_ASSETS` names.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Role;

/// The reason why the programs could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}")]
pub(crate) struct Error {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Writes `kube-apiserver` and `etcd` into `directory`: hard links to `program`, or copies where the file system has no links
/// between the two. `kubectl` is linked if `kubectl` names one. Returns the absolute path of the directory.
///
/// A program is replaced in one step, so a test that starts at the same time finds the old or the new one.
///
/// # Errors
/// When the directory cannot be written.
pub(crate) fn install(
    program: &Path,
    directory: &Path,
    kubectl: Option<&Path>,
) -> Result<PathBuf, Error> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error {
            action,
            path,
            source,
        }
    };
    fs::create_dir_all(directory).map_err(failed("create", directory))?;
    let directory = std::path::absolute(directory).map_err(failed("find", directory))?;
    for role in [Role::KubeApiserver, Role::Etcd] {
        let path = directory.join(format!("{}{EXE_SUFFIX}", role.name()));
        replace(&path, |draft| {
            fs::hard_link(program, draft).or_else(|_| fs::copy(program, draft).map(|_| ()))
        })
        .map_err(failed("write", &path))?;
    }
    if let Some(kubectl) = kubectl {
        let path = directory.join(format!("kubectl{EXE_SUFFIX}"));
        let is_itself = fs::canonicalize(&path).ok() == fs::canonicalize(kubectl).ok();
        if !is_itself {
            replace(&path, |draft| link(kubectl, draft)).map_err(failed("link", &path))?;
        }
    }
    Ok(directory)
}

/// kubectl in the folders of `PATH`.
pub(crate) fn kubectl() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut candidates =
        std::env::split_paths(&path).map(|folder| folder.join(format!("kubectl{EXE_SUFFIX}")));
    let found = candidates.find(|candidate| candidate.is_file())?;
    std::path::absolute(found).ok()
}

/// Makes a file beside `path`, and moves it there.
fn replace(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let _ = fs::remove_file(&draft);
    make(&draft)?;
    // A rename of one hard link to another of the same file does nothing, and leaves both.
    fs::rename(&draft, path)?;
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn link(target: &Path, path: &Path) -> io::Result<()> {
    fs::copy(target, path).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_are_the_one_and_are_replaced_in_place() {
        let root = std::env::temp_dir().join(format!("reeve-install-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let (program, kubectl) = (root.join("program"), root.join("kubectl"));
        fs::write(&program, "one").unwrap();
        fs::write(&kubectl, "kubectl").unwrap();
        let assets = root.join("a/b");
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&assets)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(install(&program, &assets, None).unwrap(), assets);
        assert_eq!(
            names(),
            ["etcd", "kube-apiserver"].map(|name| format!("{name}{EXE_SUFFIX}"))
        );
        fs::remove_file(&program).unwrap();
        fs::write(&program, "two").unwrap();
        for _ in 0..2 {
            install(&program, &assets, Some(&kubectl)).unwrap();
            let expected = ["etcd", "kube-apiserver", "kubectl"];
            assert_eq!(names(), expected.map(|name| format!("{name}{EXE_SUFFIX}")));
            let etcd = fs::read(assets.join(format!("etcd{EXE_SUFFIX}"))).unwrap();
            assert_eq!(etcd, b"two");
        }
        // kubectl of PATH may be the one in the directory.
        let own = assets.join(format!("kubectl{EXE_SUFFIX}"));
        install(&program, &assets, Some(&own)).unwrap();
        assert_eq!(fs::read(own).unwrap(), b"kubectl");
        fs::remove_dir_all(&root).unwrap();
    }
}
