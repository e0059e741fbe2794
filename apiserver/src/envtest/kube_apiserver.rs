//! `kube-apiserver`: the server of this package with the flags of the other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use reeve_serve::certificates::Certificates;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::certificate;
use super::data_directory::{self, DataDirectory, data_directory};
use super::flags::{Given, Line};
use super::settings::{PROGRAM, Serving, Settings};
use crate::authn::keys::{public_keys, signing_key};
use crate::authn::{AccountKeys, Anonymous};
use crate::builder::Builder;
use crate::{ApiServer, PersistError, ServeError, StartError, token_file};

/// The environment variable that also runs the controllers of this package: garbage collection and namespaces.
const CONTROLLERS_VARIABLE: &str = "REEVE_CONTROLLERS";

/// The reason why the server does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("--{flag} {path}: {why}")]
    File {
        flag: &'static str,
        path: PathBuf,
        why: String,
    },
    #[error(transparent)]
    Etcd(#[from] data_directory::Error),
    #[error(transparent)]
    Certificate(#[from] certificate::Error),
    #[error(transparent)]
    Certificates(#[from] reeve_serve::certificates::Error),
    #[error(transparent)]
    Tokens(#[from] token_file::Error),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Persist(#[from] PersistError),
    #[error("cannot listen for signals: {0}")]
    Signal(io::Error),
}

/// The directives of the log for `-v`.
pub(super) fn log_level(arguments: &[String]) -> &'static str {
    let verbosity = match PROGRAM.read(arguments) {
        Ok(Line::Run(given)) => Settings::of(&given).map_or(0, |settings| settings.verbosity),
        _ => 0,
    };
    match verbosity {
        ..4 => "warn",
        4..8 => "info,reeve_apiserver=debug",
        8.. => "debug,reeve_apiserver=trace",
    }
}

/// Runs until a signal.
///
/// # Errors
/// A wrong command line, a file that cannot be used, an etcd that does not answer, and an address that is in use.
pub(super) async fn run(arguments: &[String]) -> Result<(), Error> {
    let line = PROGRAM.read(arguments).map_err(Error::Usage)?;
    let Line::Run(given) = line else {
        print(&PROGRAM.help());
        return Ok(());
    };
    if let Some(text) = version(&given) {
        print(&text);
        return Ok(());
    }
    let settings =
        Settings::of(&given).map_err(|all| Error::Usage(format!("[{}]", all.join(", "))))?;
    let without_effect = PROGRAM.without_effect(&given);
    if !without_effect.is_empty() {
        let flags = without_effect.join(", --");
        tracing::warn!("flags without an effect here: --{flags}");
    }
    let certificates = certificates(&settings).await?;
    let directory = data_directory(&settings.etcd, &settings.etcd_prefix).await?;
    let server = builder(&settings, directory)?.start().await?;
    publish_authorities(&server, &settings).await?;
    let serving = server.serve_with(settings.address, certificates).await?;
    tracing::info!(url = serving.url(), "serving");
    crate::process::stop_requested()
        .await
        .map_err(Error::Signal)?;
    serving.stop().await;
    server.shutdown().await?;
    Ok(())
}

/// The answer to `--version`; other values than `true` and `raw` set the version that is shown, which has no effect here.
fn version(given: &Given) -> Option<String> {
    match given.value("version")? {
        "true" => {
            let version = crate::documents::git_version(crate::builder::MINOR);
            Some(format!("Kubernetes {version}\n"))
        }
        "raw" => {
            let version = crate::documents::version(crate::builder::MINOR);
            Some(format!("{version}\n"))
        }
        _ => None,
    }
}

fn print(text: &str) {
    #[allow(clippy::print_stdout, reason = "the output of --help and --version")]
    {
        print!("{text}");
    }
}

fn builder(settings: &Settings, directory: Option<DataDirectory>) -> Result<Builder, Error> {
    let controllers = std::env::var_os(CONTROLLERS_VARIABLE)
        .is_some_and(|value| !value.is_empty() && value != "0");
    let mut builder = ApiServer::builder()
        .record_requests(false)
        .garbage_collection(controllers)
        .namespace_controller(controllers)
        .service_range(settings.service_range)
        .streaming_lists(settings.streaming_lists)
        .account_keys(account_keys(settings)?)
        .anonymous(if settings.anonymous {
            Anonymous::Unprivileged
        } else {
            Anonymous::Refused
        });
    if settings.rbac {
        builder = builder.rbac().controller_roles();
    }
    if let Some(ttl) = settings.event_ttl {
        builder = builder.event_ttl((!ttl.is_zero()).then_some(ttl));
    }
    if let Some(directory) = directory {
        builder = builder
            .data_dir(directory.path)
            .sync_writes(!directory.unsynced);
    }
    for plugin in &settings.without_admission {
        builder = builder.without_admission(plugin);
    }
    if let Some(path) = &settings.tokens {
        for (token, user) in token_file::read("token-auth-file", path)? {
            builder = builder.token(token, user);
        }
    }
    Ok(builder)
}

fn account_keys(settings: &Settings) -> Result<AccountKeys, Error> {
    const SIGNING: &str = "service-account-signing-key-file";
    const VERIFYING: &str = "service-account-key-file";
    let signing = match &settings.signing_key {
        Some(path) => {
            let key = signing_key(&read(SIGNING, path)?);
            Some(key.map_err(unusable(SIGNING, path))?)
        }
        None => None,
    };
    let files = settings.account_keys.iter().map(|path| (VERIFYING, path));
    let files = files.chain(settings.signing_key.iter().map(|path| (SIGNING, path)));
    let mut verifying = Vec::new();
    for (flag, path) in files {
        let keys = public_keys(&read(flag, path)?);
        verifying.extend(keys.map_err(unusable(flag, path))?);
    }
    Ok(AccountKeys {
        issuers: settings.issuers.clone(),
        audiences: settings.audiences.clone(),
        signing,
        verifying,
    })
}

/// The certificate of the server, and the authorities of its clients.
async fn certificates(settings: &Settings) -> Result<Certificates, Error> {
    let certificates = match &settings.serving {
        Serving::Files { chain, key } => Certificates::from_files(chain, key).await?,
        Serving::Directory(directory) => {
            let (chain, key) = certificate::in_directory(directory, settings.address.ip())?;
            Certificates::from_files(chain, key).await?
        }
    };
    let Some(path) = &settings.client_authorities else {
        return Ok(certificates);
    };
    let refused = unusable("client-ca-file", path);
    let pem = read("client-ca-file", path)?;
    let authorities = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let authorities = authorities.map_err(|error| refused(error.to_string()))?;
    if authorities.is_empty() {
        return Err(refused("there is no certificate in it".to_owned()));
    }
    Ok(certificates.with_optional_clients(authorities)?)
}

/// Writes the authorities of clients to the ConfigMap from which controllers and extension servers read them.
async fn publish_authorities(server: &ApiServer, settings: &Settings) -> Result<(), Error> {
    let Some(path) = &settings.client_authorities else {
        return Ok(());
    };
    let pem = read("client-ca-file", path)?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {"client-ca-file": String::from_utf8_lossy(&pem)},
    });
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    let post = http::Request::post(maps).header("Content-Type", "application/json");
    let put = format!("{maps}/extension-apiserver-authentication");
    let put = http::Request::put(put).header("Content-Type", "application/json");
    // One from the data directory has the authorities of an earlier start.
    let mut refusal = None;
    for request in [put, post] {
        let Ok(request) = request.body(map.to_string().into_bytes()) else {
            continue;
        };
        match server.client().request_text(request).await {
            Ok(_) => return Ok(()),
            Err(error) => refusal = Some(error),
        }
    }
    if let Some(error) = refusal {
        tracing::warn!(%error, "could not write the ConfigMap extension-apiserver-authentication");
    }
    Ok(())
}

fn read(flag: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| unusable(flag, path)(error.to_string()))
}

fn unusable(flag: &'static str, path: &Path) -> impl Fn(String) -> Error + use<> {
    let path = path.to_owned();
    move |why| Error::File {
        flag,
        path: path.clone(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::Line;
    use super::*;

    #[test]
    fn writes_are_synced_as_etcd_was_started() {
        let Ok(Line::Run(given)) = PROGRAM.read(&[]) else {
            panic!("no flags are needed");
        };
        for unsynced in [false, true] {
            let settings = Settings::of(&given).unwrap();
            let path = "/tmp/x".into();
            let directory = Some(DataDirectory { path, unsynced });
            let builder = builder(&settings, directory).unwrap();
            assert_eq!(builder.syncs_writes(), !unsynced);
        }
    }
}
