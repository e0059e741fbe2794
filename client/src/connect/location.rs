//! The location of a client's configuration.
//!
//! The order is that of controller-runtime's `config.GetConfig`. The first source that exists is used; it is an error if
//! it is invalid:
//!
//! 1. the file set by the program ([`Location::kubeconfig`], the flag `--kubeconfig`);
//! 2. the files in `KUBECONFIG`, merged as kubectl does;
//! 3. the service account of the Pod, if there is one (without a context);
//! 4. `~/.kube/config`.
//!
//! kube-client's own `Config::infer` takes 4 before 3: a Pod whose image has a `~/.kube/config` would use that.

use std::path::{Path, PathBuf};

use kube_client::Config;
use kube_client::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::Error;

/// The location set by the program; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", group(skip))]
pub struct Location {
    /// The kubeconfig to use. Unset: the files of the environment variable KUBECONFIG, the service account of the
    /// Pod, or ~/.kube/config, whichever is there first.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig; unset, its current one.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    context: Option<String>,
}

/// The source of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Variable,
    ServiceAccount,
    Home,
}

/// The sources in the environment.
#[derive(Clone, Copy, Debug, Default)]
struct Offers {
    variable: bool,
    service_account: bool,
}

// === impl Location ===

impl Location {
    /// Nothing set: the environment decides.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the kubeconfig.
    #[must_use]
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(path.into());
        self
    }

    /// Sets the context of the kubeconfig, instead of its current one.
    #[must_use]
    pub fn context(mut self, name: impl Into<String>) -> Self {
        self.context = Some(name.into());
        self
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// When there is no configuration, or the first one is invalid.
    pub async fn load(&self) -> Result<Config, Error> {
        let in_cluster = Config::incluster();
        let offers = Offers {
            variable: std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()),
            service_account: in_cluster.is_ok(),
        };
        let chosen = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let place = self.place(offers);
        let wrong = |fault| Error::Kubeconfig {
            place: place.to_string(),
            fault: Box::new(without_text(fault, &place)),
        };
        let read = match &place {
            Place::ServiceAccount => return in_cluster.map_err(no_service_account),
            Place::File(path) => Kubeconfig::read_from(path),
            Place::Variable | Place::Home => Kubeconfig::read(),
        };
        let kubeconfig = match (read, in_cluster) {
            (Ok(kubeconfig), _) => kubeconfig,
            (Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath), Err(in_cluster))
                if place == Place::Home =>
            {
                return Err(no_service_account(in_cluster));
            }
            (Err(error), _) => return Err(wrong(error)),
        };
        Config::from_custom_kubeconfig(kubeconfig, &chosen)
            .await
            .map_err(wrong)
    }

    /// The first source that exists.
    fn place(&self, offers: Offers) -> Place {
        match &self.kubeconfig {
            // An empty flag counts as unset, as in Go.
            Some(path) if path != Path::new("") => Place::File(path.clone()),
            _ if offers.variable => Place::Variable,
            _ if offers.service_account => Place::ServiceAccount,
            _ => Place::Home,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Variable => f.write_str("named by KUBECONFIG"),
            Self::ServiceAccount => f.write_str("of the service account"),
            Self::Home => f.write_str("~/.kube/config"),
        }
    }
}

/// The error of a kubeconfig at `place`. That of its syntax quotes the lines around the fault, which may have a token or a key.
fn without_text(fault: KubeconfigError, place: &Place) -> KubeconfigError {
    let KubeconfigError::Parse(error) = fault else {
        return fault;
    };
    let at = error.location();
    let at = at.map(|at| format!(" (line {}, column {})", at.line(), at.column()));
    let text = format!(
        "its YAML is not that of a kubeconfig{}",
        at.unwrap_or_default()
    );
    let error = std::io::Error::new(std::io::ErrorKind::InvalidData, text);
    KubeconfigError::ReadConfig(error, place.to_string().into())
}

fn no_service_account(source: InClusterError) -> Error {
    Error::NoCluster {
        in_cluster: Box::new(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_the_variable_the_pod_and_home_come_in_this_order() {
        let file = Some("/some/file");
        for (flag, variable, service_account, expected) in [
            (file, true, true, Place::File("/some/file".into())),
            (file, false, false, Place::File("/some/file".into())),
            (None, true, true, Place::Variable),
            (Some(""), true, true, Place::Variable),
            (None, true, false, Place::Variable),
            (None, false, true, Place::ServiceAccount),
            (None, false, false, Place::Home),
        ] {
            let location = Location {
                kubeconfig: flag.map(PathBuf::from),
                context: None,
            };
            let offers = Offers {
                variable,
                service_account,
            };
            assert_eq!(location.place(offers), expected);
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_shown_without_its_content() {
        let unique = reeve_clock::Clock::system().random().next_u64();
        let path = std::env::temp_dir().join(format!("reeve-kubeconfig-{unique:016x}"));
        let text =
            "users:\n- name: me\n  user:\n    token: hunter2\n    token: [hunter2\nkind: Config\n";
        std::fs::write(&path, text).unwrap();
        let error = Location::new().kubeconfig(&path).load().await.unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(
            shown.contains("its YAML is not that of a kubeconfig (line "),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn a_file_that_is_named_is_used_with_its_context_or_is_the_error() {
        let unique = reeve_clock::Clock::system().random().next_u64();
        let path = std::env::temp_dir().join(format!("reeve-kubeconfig-{unique:016x}"));
        let text = "{apiVersion: v1, kind: Config, current-context: a, \
            contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u}}], \
            users: [{name: u, user: {}}], clusters: [\
            {name: a, cluster: {server: 'https://192.0.2.1:6443'}}, \
            {name: b, cluster: {server: 'https://192.0.2.2:6443'}}]}";
        std::fs::write(&path, text).unwrap();
        let current = Location::new().kubeconfig(&path);
        let host = |config: &Config| config.cluster_url.host().unwrap().to_owned();
        assert_eq!(host(&current.load().await.unwrap()), "192.0.2.1");
        let chosen = current.clone().context("b");
        assert_eq!(host(&chosen.load().await.unwrap()), "192.0.2.2");
        let missing = current.context("c").load().await.unwrap_err().to_string();
        assert!(missing.contains("reeve-kubeconfig"), "{missing}");
        std::fs::remove_file(&path).unwrap();
        let gone = Location::new().kubeconfig(&path).load().await.unwrap_err();
        assert!(gone.to_string().contains("cannot be used"), "{gone}");
    }
}
