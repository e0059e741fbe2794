//! Certificates of servers: from files, read again when they change, or self-signed.
//!
//! The counterpart of controller-runtime's certwatcher, with its metrics: `certwatcher_read_certificate_total` and
//! `certwatcher_read_certificate_errors_total`. Files are looked at every 10 s and followed through symbolic links, as
//! the kubelet and cert-manager renew them. What is new is used when all of it is readable and key and certificate fit;
//! until then what was there before stays (an update in two steps is seen half-way now and then).
//!
//! [`Certificates::with_client_authorities`] takes connections only of clients that have a certificate, too.

mod authorities;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use reeve_clock::Clock;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::metrics::{CertificateMetrics, Metrics};
use authorities::Authorities;

/// How often files are looked at (controller-runtime: the same).
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Larger files are no certificates.
const LARGEST: u64 = 1024 * 1024;

/// How many years a self-signed certificate is valid; a process ends sooner.
const YEARS: i16 = 10;

/// The certificate of a server and its key, as they are now. Clones are one.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
    /// Whose clients alone are taken, if not everybody is.
    clients: Option<Arc<Authorities>>,
}

struct Shared {
    files: Option<Files>,
    current: RwLock<Arc<CertifiedKey>>,
    /// How often another certificate came into use.
    changes: watch::Sender<u64>,
    metrics: RwLock<Option<CertificateMetrics>>,
}

struct Files {
    chain: PathBuf,
    key: PathBuf,
    seen: Mutex<Seen>,
}

/// What was read last, so that nothing is done or said twice.
#[derive(Default)]
struct Seen {
    in_use: [u8; 32],
    problem: Option<String>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read.
    #[error("the certificate file {path} cannot be read: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file has no certificate, or no key, in it.
    #[error("{path} is no PEM file with {what}: {source}")]
    Pem {
        /// Which.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// Why it was not found.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key are not for each other, or of a kind that is not supported.
    #[error("{chain} and {key} are not usable together: {source}")]
    Pair {
        /// The file of the certificate.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// The certificates of the clients' authorities are not usable.
    #[error("{path} has no usable authorities: {problem}")]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// None could be made.
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
    /// What was made is refused, or TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

// === impl Certificates ===

impl Certificates {
    /// Of these PEM files: the certificate with its chain, and its key.
    ///
    /// # Errors
    /// When they cannot be used now.
    pub async fn from_files(
        chain: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, Error> {
        let (chain, key) = (chain.into(), key.into());
        let (digest, read) = read(&chain, &key).await?;
        let seen = Seen {
            in_use: digest,
            problem: None,
        };
        let files = Files {
            chain,
            key,
            seen: Mutex::new(seen),
        };
        Ok(Self::new(Some(files), read?))
    }

    /// One for `localhost`, 127.0.0.1 and ::1 that nobody signed: for scrapers that do not check.
    ///
    /// # Errors
    /// When none can be made.
    pub fn self_signed(clock: &Clock) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params
            .distinguished_name
            .push(DnType::CommonName, "localhost");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for address in [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ] {
            params.subject_alt_names.push(SanType::IpAddress(address));
        }
        // From yesterday on, for those whose clock is behind.
        let today = jiff::tz::TimeZone::UTC.to_datetime(clock.now()).date();
        let date = |year, month, day| {
            let part = |number: i8| u8::try_from(number).unwrap_or(1);
            rcgen::date_time_ymd(i32::from(year), part(month), part(day))
        };
        let from = today.yesterday().unwrap_or(today);
        params.not_before = date(from.year(), from.month(), from.day());
        // The 28th exists in every month.
        params.not_after = date(today.year() + YEARS, today.month(), today.day().min(28));
        let certificate = params.self_signed(&key)?;
        let chain = vec![certificate.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Self::new(
            None,
            CertifiedKey::from_der(chain, key, &provider())?,
        ))
    }

    fn new(files: Option<Files>, current: CertifiedKey) -> Self {
        Self {
            shared: Arc::new(Shared {
                files,
                current: RwLock::new(Arc::new(current)),
                changes: watch::channel(0).0,
                metrics: RwLock::new(None),
            }),
            clients: None,
        }
    }

    /// Takes connections only of clients with a certificate that one of the authorities in this PEM file signed, for the
    /// use `clientAuth`; others are refused in the handshake. The file is read again when it changes; connections that are
    /// there go on. Sessions are not resumed, so that a change counts for every new connection.
    ///
    /// # Errors
    /// When the file cannot be used now.
    pub async fn with_client_authorities(
        mut self,
        file: impl Into<PathBuf>,
    ) -> Result<Self, Error> {
        let authorities = Authorities::from_file(file.into()).await?;
        self.clients = Some(Arc::new(authorities));
        Ok(self)
    }

    /// Counts reads there.
    #[must_use]
    pub fn counted_in(self, metrics: &Metrics) -> Self {
        let counters = metrics.certificates();
        // The reads that made it.
        let files = usize::from(self.shared.files.is_some()) + usize::from(self.clients.is_some());
        counters.reads.inc_by(files as u64);
        *self.shared.metrics.write() = Some(counters);
        self
    }

    /// The certificate in use and its chain, leaf first.
    #[must_use]
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.shared.current.read().cert.clone()
    }

    /// Tells when another certificate comes into use: for who hands it on (controller-runtime: `RegisterCallback`).
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Reads the files now, and uses what is in them if it is new. True if it was. Without files nothing is done.
    ///
    /// # Errors
    /// When they cannot be used; what was there before stays in use.
    pub async fn reload(&self) -> Result<bool, Error> {
        let (certificate, clients) = (self.reload_certificate().await, self.reload_clients().await);
        Ok(certificate? | clients?)
    }

    async fn reload_certificate(&self) -> Result<bool, Error> {
        let Some(files) = &self.shared.files else {
            return Ok(false);
        };
        let result = self.try_reload(files).await;
        self.count(&result);
        result
    }

    async fn try_reload(&self, files: &Files) -> Result<bool, Error> {
        let (digest, read) = read(&files.chain, &files.key).await?;
        if files.seen.lock().in_use == digest {
            return Ok(false);
        }
        *self.shared.current.write() = Arc::new(read?);
        files.seen.lock().in_use = digest;
        self.shared.changes.send_modify(|changes| *changes += 1);
        Ok(true)
    }

    async fn reload_clients(&self) -> Result<bool, Error> {
        let Some(clients) = &self.clients else {
            return Ok(false);
        };
        let result = clients.reload().await;
        self.count(&result);
        result
    }

    fn count(&self, result: &Result<bool, Error>) {
        if let Some(metrics) = &*self.shared.metrics.read() {
            metrics.reads.inc();
            if result.is_err() {
                metrics.errors.inc();
            }
        }
    }

    /// Reads the files every [`LOOK_EVERY`], for ever.
    pub async fn watch(&self) {
        if self.shared.files.is_none() && self.clients.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(LOOK_EVERY).await;
            if let Some(files) = &self.shared.files {
                let result = self.reload_certificate().await;
                files.seen.lock().tell(&files.chain, result);
            }
            if let Some(clients) = &self.clients {
                let result = self.reload_clients().await;
                clients.seen.lock().tell(clients.path(), result);
            }
        }
    }

    /// What a server is configured with: TLS 1.2 and 1.3 with ring, always the certificate and the authorities in use.
    pub(crate) fn server_config(&self, http2: bool) -> Result<rustls::ServerConfig, Error> {
        let builder = rustls::ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?;
        let builder = match &self.clients {
            Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients) as _),
            None => builder.with_no_client_auth(),
        };
        let resolver = Arc::clone(&self.shared) as Arc<dyn ResolvesServerCert>;
        let mut config = builder.with_cert_resolver(resolver);
        if self.clients.is_some() {
            // A session that is resumed is not verified again.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        if http2 {
            config.alpn_protocols.push(b"h2".to_vec());
        }
        config.alpn_protocols.push(b"http/1.1".to_vec());
        Ok(config)
    }
}

// === impl Seen ===

impl Seen {
    /// Says what a look at `path` came to, and each problem once.
    fn tell(&mut self, path: &Path, result: Result<bool, Error>) {
        match result {
            Ok(changed) => {
                if changed {
                    tracing::info!(certificate = %path.display(), "another certificate is in use");
                }
                self.problem = None;
            }
            Err(error) => {
                let problem = error.to_string();
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!(
                        error = problem,
                        "the certificate was not renewed; the one before stays"
                    );
                    self.problem = Some(problem);
                }
            }
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("files", &self.shared)
            .field("clients", &self.clients)
            .finish()
    }
}

// === impl Shared ===

impl ResolvesServerCert for Shared {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read()))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.as_ref();
        f.debug_struct("Shared")
            .field("chain", &files.map(|files| &files.chain))
            .field("key", &files.map(|files| &files.key))
            .finish_non_exhaustive()
    }
}

fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

/// A digest of what is in the files, and what it makes.
async fn read(chain: &Path, key: &Path) -> Result<([u8; 32], Result<CertifiedKey, Error>), Error> {
    let (chain_pem, key_pem) = (content(chain).await?, content(key).await?);
    let mut digest = Sha256::new();
    digest.update((chain_pem.len() as u64).to_le_bytes());
    digest.update(&chain_pem);
    digest.update(&key_pem);
    Ok((
        digest.finalize().into(),
        certified(chain, &chain_pem, key, &key_pem),
    ))
}

fn certified(
    chain: &Path,
    chain_pem: &[u8],
    key: &Path,
    key_pem: &[u8],
) -> Result<CertifiedKey, Error> {
    let no = |path: &Path, what| {
        let path = path.to_owned();
        move |source| Error::Pem { path, what, source }
    };
    let certificates = CertificateDer::pem_slice_iter(chain_pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(no(chain, "a certificate"))?;
    if certificates.is_empty() {
        let nothing = rustls::pki_types::pem::Error::NoItemsFound;
        return Err(no(chain, "a certificate")(nothing));
    }
    let private = PrivateKeyDer::from_pem_slice(key_pem).map_err(no(key, "a private key"))?;
    CertifiedKey::from_der(certificates, private, &provider()).map_err(|source| Error::Pair {
        chain: chain.to_owned(),
        key: key.to_owned(),
        source,
    })
}

async fn content(path: &Path) -> Result<Vec<u8>, Error> {
    let read = async {
        let mut bytes = Vec::new();
        let file = tokio::fs::File::open(path).await?;
        file.take(LARGEST).read_to_end(&mut bytes).await?;
        Ok(bytes)
    };
    read.await.map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory of its own, gone at the end.
    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            let unique = Clock::system().random().next_u64();
            let path = std::env::temp_dir().join(format!("reeve-certificates-{unique:016x}"));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn write(&self, (chain, key): &(String, String)) {
            fs::write(self.file("tls.crt"), chain).unwrap();
            fs::write(self.file("tls.key"), key).unwrap();
        }

        async fn read(&self) -> Result<Certificates, Error> {
            Certificates::from_files(self.file("tls.crt"), self.file("tls.key")).await
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_certificate_is_in_use_after_ten_seconds_however_it_was_changed() {
        let directory = Directory::new();
        let first = pair();
        directory.write(&first);
        let metrics = Metrics::new();
        let certificates = directory.read().await.unwrap().counted_in(&metrics);
        let changes = certificates.changes();
        let watching = {
            let certificates = certificates.clone();
            tokio::spawn(async move { certificates.watch().await })
        };
        assert_eq!(certificates.chain(), [der(&first.0)]);
        let counted = |name: &str| {
            let (text, name) = (metrics.encode(), format!("certwatcher_{name}_total "));
            let line = text.lines().find(|line| line.starts_with(&name)).unwrap();
            line[name.len()..].parse::<u64>().unwrap()
        };

        // Written over: looked at after ten seconds, and not before.
        let (look, moment) = (Duration::from_secs(10), Duration::from_millis(1));
        let second = pair();
        directory.write(&second);
        sleep(look - moment).await;
        assert_eq!(certificates.chain(), [der(&first.0)]);
        assert_eq!(counted("read_certificate"), 1);
        sleep(moment * 2).await;
        assert_eq!(certificates.chain(), [der(&second.0)]);

        // Moved into place, with a chain.
        let third = pair();
        let chain = format!("{}{}", third.0, first.0);
        fs::write(directory.file("new.crt"), &chain).unwrap();
        fs::write(directory.file("new.key"), &third.1).unwrap();
        fs::rename(directory.file("new.key"), directory.file("tls.key")).unwrap();
        fs::rename(directory.file("new.crt"), directory.file("tls.crt")).unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&third.0), der(&first.0)]);

        // Of the chain alone, too.
        fs::write(
            directory.file("tls.crt"),
            format!("{}{}", third.0, second.0),
        )
        .unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&third.0), der(&second.0)]);
        assert_eq!(*changes.borrow(), 3);

        // Half an update: what was there stays, until the other half comes.
        let fourth = pair();
        fs::write(directory.file("tls.crt"), &fourth.0).unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&third.0), der(&second.0)]);
        assert_eq!(counted("read_certificate"), 5);
        assert_eq!(counted("read_certificate_errors"), 1);
        fs::write(directory.file("tls.key"), &fourth.1).unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&fourth.0)]);

        // Away: what was there stays.
        fs::remove_file(directory.file("tls.key")).unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&fourth.0)]);
        assert_eq!(*changes.borrow(), 4);
        // One read at the start, and one a look.
        assert_eq!(counted("read_certificate"), 7);
        assert_eq!(counted("read_certificate_errors"), 2);
        watching.abort();
    }

    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_secret_that_the_kubelet_swaps_is_read_again() {
        use std::os::unix::fs::symlink;
        let directory = Directory::new();
        let put = |version: &str| {
            let pair = pair();
            fs::create_dir(directory.file(version)).unwrap();
            fs::write(directory.file(version).join("tls.crt"), &pair.0).unwrap();
            fs::write(directory.file(version).join("tls.key"), &pair.1).unwrap();
            symlink(version, directory.file("..new")).unwrap();
            fs::rename(directory.file("..new"), directory.file("..data")).unwrap();
            pair
        };
        put("..2026_1");
        for name in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{name}"), directory.file(name)).unwrap();
        }
        let certificates = directory.read().await.unwrap();
        let second = put("..2026_2");
        assert!(certificates.reload().await.unwrap());
        assert_eq!(certificates.chain(), [der(&second.0)]);
        assert!(!certificates.reload().await.unwrap(), "nothing new");
    }

    #[tokio::test]
    async fn what_is_wrong_at_the_start_is_said() {
        let directory = Directory::new();
        let error = directory.read().await.unwrap_err().to_string();
        assert!(error.contains("tls.crt cannot be read"), "{error}");
        directory.write(&("no PEM".into(), pair().1));
        let error = directory.read().await.unwrap_err().to_string();
        assert!(
            error.contains("tls.crt is no PEM file with a certificate"),
            "{error}"
        );
        directory.write(&(pair().0, String::new()));
        let error = directory.read().await.unwrap_err().to_string();
        assert!(
            error.contains("tls.key is no PEM file with a private key"),
            "{error}"
        );
        directory.write(&(pair().0, pair().1));
        let error = directory.read().await.unwrap_err().to_string();
        assert!(error.contains("not usable together"), "{error}");
    }
}
