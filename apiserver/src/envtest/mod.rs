//! The programs that a test on envtest starts: this program as `kube-apiserver` and as `etcd`, with their flags.
//!
//! One binary has three names. [`install`](install::install) writes it into a directory under the other two, and its name
//! decides what it does ([`Role::of`]). `etcd` holds the data directory and answers health checks; `kube-apiserver` keeps the
//! objects there, so they outlive it as on a real pair. Like a real server without kube-controller-manager it leaves
//! garbage collection and namespaces to controllers.
//!
//! Each flag of the real programs is accepted. [`settings`] and [`etcd`] list those with an effect; the others are named in one
//! line of the log. An unknown flag is an error, as there.

mod certificate;
mod data_directory;
mod etcd;
mod flags;
pub(crate) mod install;
mod kube_apiserver;
mod settings;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use tokio::runtime;

/// The program of envtest that this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    KubeApiserver,
    Etcd,
}

// === impl Role ===

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KubeApiserver => "kube-apiserver",
            Self::Etcd => "etcd",
        }
    }

    /// The role of a process that was started as `program`; `None`: none of envtest.
    pub(crate) fn of(program: &OsStr) -> Option<Self> {
        let name = Path::new(program).file_name()?.to_str()?;
        let name = name
            .strip_suffix(std::env::consts::EXE_SUFFIX)
            .unwrap_or(name);
        [Self::KubeApiserver, Self::Etcd]
            .into_iter()
            .find(|role| role.name() == name)
    }

    /// Runs the program with these arguments.
    pub(crate) fn run(self, arguments: &[String]) -> ExitCode {
        let level = match self {
            Self::KubeApiserver => kube_apiserver::log_level(arguments),
            Self::Etcd => "warn",
        };
        crate::process::log(level);
        // One thread is enough for health checks.
        let mut builder = match self {
            Self::KubeApiserver => runtime::Builder::new_multi_thread(),
            Self::Etcd => runtime::Builder::new_current_thread(),
        };
        let runtime = match builder.enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return failure(&error),
        };
        runtime.block_on(async {
            match self {
                Self::KubeApiserver => match kube_apiserver::run(arguments).await {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => failure(&error),
                },
                Self::Etcd => match etcd::run(arguments).await {
                    Ok(()) => ExitCode::SUCCESS,
                    Err(error) => failure(&error),
                },
            }
        })
    }
}

fn failure(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("Error: {error}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_is_its_role() {
        let suffix = std::env::consts::EXE_SUFFIX;
        let of = |text: String| Role::of(OsStr::new(&text));
        assert_eq!(
            of(format!("/a/kube-apiserver{suffix}")),
            Some(Role::KubeApiserver)
        );
        assert_eq!(of("etcd".to_owned()), Some(Role::Etcd));
        assert_eq!(of(format!("/etcd/reeve-apiserver{suffix}")), None);
        assert_eq!(of(String::new()), None);
    }
}
