//! The certificate in use: read again, and given to each new connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use reeve_clock::Clock;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio::time::sleep;

use super::authorities::Authorities;
use super::optional::OptionalClients;
use super::pem::{provider, read};
use super::seen::Seen;
use super::{Error, Metrics, self_signed};
use crate::http::ClientCertificate;

/// Interval between two reads of the files (controller-runtime: the same).
pub const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The certificate of a server and its key, as they are now. Clones share it.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
    /// The authorities of the clients, if clients must have a certificate.
    clients: Option<Arc<Authorities>>,
    /// The verifier of clients that may have a certificate.
    optional: Option<Arc<OptionalClients>>,
}

struct Shared {
    files: Option<Files>,
    /// None until there is a certificate: handshakes fail.
    current: RwLock<Option<Arc<CertifiedKey>>>,
    /// How often another certificate came into use.
    changes: watch::Sender<u64>,
    metrics: RwLock<Option<Metrics>>,
}

struct Files {
    chain: PathBuf,
    key: PathBuf,
    seen: Mutex<Seen>,
}

// === impl Certificates ===

impl Certificates {
    /// The pair in these PEM files: the certificate with its chain, and its key.
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
        Ok(Self::new(Some(files), Some(read?)))
    }

    /// A pair that the program has: the chain, leaf first, and the key.
    ///
    /// # Errors
    /// When they do not fit, or are of a kind that is not supported.
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, Error> {
        let pair = CertifiedKey::from_der(chain, key, &provider())?;
        Ok(Self::new(None, Some(pair)))
    }

    /// A self-signed certificate for `localhost`, 127.0.0.1 and ::1, for clients that do not verify it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn self_signed(clock: &Clock) -> Result<Self, Error> {
        let (certificate, key) = self_signed::pair(clock)?;
        Self::from_der(vec![certificate], key)
    }

    fn new(files: Option<Files>, current: Option<CertifiedKey>) -> Self {
        Self {
            shared: Arc::new(Shared {
                files,
                current: RwLock::new(current.map(Arc::new)),
                changes: watch::channel(0).0,
                metrics: RwLock::new(None),
            }),
            clients: None,
            optional: None,
        }
    }

    /// Accepts only clients with a certificate that one of the authorities in this PEM file signed, for the use
    /// `clientAuth`. The handshake refuses other clients. The file is read again when it changes; open connections go on.
    /// Sessions are not resumed, so that a change holds for every new connection. A handler finds the certificate as the
    /// extension [`ClientCertificate`], to check its names.
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

    /// Asks each client for a certificate, and accepts clients without one. A handler finds the certificate as the extension
    /// [`ClientCertificate`], with the verdict of these authorities. The handshake accepts a certificate of another
    /// authority, too: the handler decides what follows from it. (kube-apiserver: `--client-ca-file`.)
    ///
    /// # Errors
    /// When an authority cannot be used, or there is none.
    pub fn with_optional_clients(
        mut self,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<Self, Error> {
        self.optional = Some(Arc::new(OptionalClients::new(authorities)?));
        Ok(self)
    }

    /// The certificate of a client that was asked for one.
    pub(crate) fn client(&self, chain: &[CertificateDer<'_>]) -> Option<ClientCertificate> {
        match (&self.clients, &self.optional) {
            // The handshake has verified it.
            (Some(_), _) => {
                let chain = chain.iter().map(|certificate| certificate.to_vec());
                Some(ClientCertificate::new(chain, None))
            }
            (None, optional) => optional.as_ref()?.verified(chain),
        }
    }

    /// Counts reads in `metrics`, including the first ones.
    #[must_use]
    pub fn counted_in(self, metrics: &Metrics) -> Self {
        let files = usize::from(self.shared.files.is_some()) + usize::from(self.clients.is_some());
        metrics.reads.inc_by(files as u64);
        *self.shared.metrics.write() = Some(metrics.clone());
        self
    }

    /// No certificate yet: handshakes fail until [`Certificates::replace`] sets one.
    #[must_use]
    pub fn pending() -> Self {
        Self::new(None, None)
    }

    /// Uses another pair from the next handshake on: the chain, leaf first, and the key. For certificates that the program
    /// makes or gets; those of files are read again by themselves.
    ///
    /// # Errors
    /// When they do not fit, or are of a kind that is not supported; the pair in use stays.
    pub fn replace(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), Error> {
        let pair = CertifiedKey::from_der(chain, key, &provider())?;
        *self.shared.current.write() = Some(Arc::new(pair));
        self.shared.changes.send_modify(|changes| *changes += 1);
        Ok(())
    }

    /// Whether there is a certificate.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.shared.current.read().is_some()
    }

    /// The certificate in use and its chain, leaf first. Empty while there is none.
    #[must_use]
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        let current = self.shared.current.read();
        current
            .as_ref()
            .map(|pair| pair.cert.clone())
            .unwrap_or_default()
    }

    /// Counts the changes of the certificate in use: for code that passes it on (controller-runtime: `RegisterCallback`).
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Reads the files now, and uses their contents if they are new. Returns whether they were. Does nothing without files.
    ///
    /// # Errors
    /// When the files cannot be used; the certificate in use stays.
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
        *self.shared.current.write() = Some(Arc::new(read?));
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

    /// Reads the files every [`LOOK_EVERY`], until the future is dropped.
    pub async fn watch(&self) {
        if self.shared.files.is_none() && self.clients.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(LOOK_EVERY).await;
            if let Some(files) = &self.shared.files {
                let result = self.reload_certificate().await;
                files.seen.lock().log(&files.chain, result);
            }
            if let Some(clients) = &self.clients {
                let result = self.reload_clients().await;
                clients.seen.lock().log(clients.path(), result);
            }
        }
    }

    /// The configuration of a server: TLS 1.2 and 1.3 with ring; each handshake takes the certificate and the authorities
    /// in use.
    pub(crate) fn server_config(&self, http2: bool) -> Result<rustls::ServerConfig, Error> {
        let builder = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match (&self.clients, &self.optional) {
            (Some(clients), _) => builder.with_client_cert_verifier(Arc::clone(clients) as _),
            (None, Some(clients)) => builder.with_client_cert_verifier(Arc::clone(clients) as _),
            (None, None) => builder.with_no_client_auth(),
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
        self.current.read().clone()
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

#[cfg(test)]
mod tests {
    use std::fs;

    use prometheus_client::registry::Registry;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// A directory that is removed at the end.
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
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let certificates = directory.read().await.unwrap().counted_in(&metrics);
        let changes = certificates.changes();
        let watching = {
            let certificates = certificates.clone();
            tokio::spawn(async move { certificates.watch().await })
        };
        assert_eq!(certificates.chain(), [der(&first.0)]);
        let counted = |name: &str| {
            let text = crate::metrics::encode(&registry);
            let name = format!("certwatcher_{name}_total ");
            let line = text.lines().find(|line| line.starts_with(&name)).unwrap();
            line[name.len()..].parse::<u64>().unwrap()
        };

        // Written over: read after ten seconds, and not before.
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

        // The chain alone changes.
        fs::write(
            directory.file("tls.crt"),
            format!("{}{}", third.0, second.0),
        )
        .unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&third.0), der(&second.0)]);
        assert_eq!(*changes.borrow(), 3);

        // Half an update: the pair in use stays until the other half is written.
        let fourth = pair();
        fs::write(directory.file("tls.crt"), &fourth.0).unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&third.0), der(&second.0)]);
        assert_eq!(counted("read_certificate"), 5);
        assert_eq!(counted("read_certificate_errors"), 1);
        fs::write(directory.file("tls.key"), &fourth.1).unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&fourth.0)]);

        // A file is gone: the pair in use stays.
        fs::remove_file(directory.file("tls.key")).unwrap();
        sleep(look).await;
        assert_eq!(certificates.chain(), [der(&fourth.0)]);
        assert_eq!(*changes.borrow(), 4);
        // One read at the start, and one an interval.
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

        // Two swaps in a row, and the kubelet has removed the first of them: the last one counts.
        put("..2026_3");
        let fourth = put("..2026_4");
        fs::remove_dir_all(directory.file("..2026_3")).unwrap();
        assert!(certificates.reload().await.unwrap());
        assert_eq!(certificates.chain(), [der(&fourth.0)]);
        // Each swap is followed, not only the first after a read.
        for version in ["..2026_5", "..2026_6"] {
            let next = put(version);
            assert!(certificates.reload().await.unwrap());
            assert_eq!(certificates.chain(), [der(&next.0)]);
        }
    }

    #[test]
    fn a_pair_that_the_program_sets_is_in_use_and_a_wrong_one_is_refused() {
        let certificates = Certificates::pending();
        assert!(!certificates.is_loaded() && certificates.chain().is_empty());
        let key = |pem: &str| PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (first, second) = (pair(), pair());
        certificates
            .replace(vec![der(&first.0)], key(&first.1))
            .unwrap();
        assert_eq!(certificates.chain(), [der(&first.0)]);
        assert_eq!(*certificates.changes().borrow(), 1);
        let wrong = certificates.replace(vec![der(&second.0)], key(&first.1));
        assert!(wrong.is_err());
        assert_eq!(certificates.chain(), [der(&first.0)]);
    }

    #[tokio::test]
    async fn what_is_wrong_at_the_start_is_said() {
        let directory = Directory::new();
        let error = directory.read().await.unwrap_err().to_string();
        assert!(error.contains("tls.crt cannot be read"), "{error}");
        directory.write(&("no PEM".into(), pair().1));
        let error = directory.read().await.unwrap_err().to_string();
        assert!(
            error.contains("tls.crt is not a PEM file with a certificate"),
            "{error}"
        );
        directory.write(&(pair().0, String::new()));
        let error = directory.read().await.unwrap_err().to_string();
        assert!(
            error.contains("tls.key is not a PEM file with a private key"),
            "{error}"
        );
        directory.write(&(pair().0, pair().1));
        let error = directory.read().await.unwrap_err().to_string();
        assert!(error.contains("not usable together"), "{error}");
    }
}
