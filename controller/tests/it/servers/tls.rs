//! Certificates that change under a running server, and servers that require client certificates.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::StatusCode;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use reeve_controller::MetricsServer;
use reeve_controller::certificates::Certificates;
use reeve_controller::metrics_server::Certificate;
use reeve_controller::server::{Limits, Router, Server, text};
use reeve_controller::testing::Cluster;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::servers::client::{Trust, get_by, read, request};
use crate::servers::{anywhere, serving};

/// A volume as the kubelet mounts a Secret: each file is a link into `..data`, which is a link to a version.
struct Volume {
    path: PathBuf,
    versions: u32,
}

// === impl Volume ===

impl Volume {
    fn new(files: &[(&str, &str)]) -> Self {
        // The clusters of two tests draw the same random numbers.
        static VOLUMES: AtomicU32 = AtomicU32::new(0);
        let unique = VOLUMES.fetch_add(1, Ordering::Relaxed);
        let name = format!("reeve-volume-{}-{unique}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        let mut volume = Self { path, versions: 0 };
        volume.put(files);
        for (name, _) in files {
            symlink(format!("..data/{name}"), volume.file(name)).unwrap();
        }
        volume
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Swaps the link after all files are written.
    fn put(&mut self, files: &[(&str, &str)]) {
        self.versions += 1;
        let version = format!("..version_{}", self.versions);
        fs::create_dir(self.file(&version)).unwrap();
        for (name, content) in files {
            fs::write(self.file(&version).join(name), content).unwrap();
        }
        symlink(&version, self.file("..data_tmp")).unwrap();
        fs::rename(self.file("..data_tmp"), self.file("..data")).unwrap();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

// === impl Log ===

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        // Without a global subscriber, tracing could cache that a line is disabled, when the thread of another test reaches
        // it first.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    fn count(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock())
            .matches(text)
            .count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A self-signed certificate for `localhost`, and its key.
fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// The number of failed reads of certificates in `/metrics`.
fn errors_in(text: &str) -> u64 {
    let name = "certwatcher_read_certificate_errors_total ";
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line[name.len()..].parse().unwrap()
}

/// Advances the time until the files are checked again. Sockets use real time.
async fn files_checked() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(10_001)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_new_connection_gets_the_new_certificate_an_old_one_continues_and_a_broken_file_changes_nothing()
 {
    let log = Log::default();
    let _logging = log.start();
    let cluster = Cluster::in_process().await;
    let (first, second) = (pair(), pair());
    let files =
        |pair: &(String, String)| [("tls.crt", pair.0.clone()), ("tls.key", pair.1.clone())];
    let put = |volume: &mut Volume, pair: &(String, String)| {
        let files = files(pair);
        volume.put(
            &files
                .each_ref()
                .map(|(name, content)| (*name, content.as_str())),
        );
    };
    let mut volume = Volume::new(&[("tls.crt", &first.0), ("tls.key", &first.1)]);
    let server = MetricsServer::at(anywhere()).secure(Certificate::Files {
        chain: volume.file("tls.crt"),
        key: volume.file("tls.key"),
    });
    let (running, address) = serving(&cluster, server).await;
    let trust = Trust::of([der(&first.0), der(&second.0)]);
    let served = async || {
        let stream = trust.connect(address, &["http/1.1"]).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };

    let stream = trust.connect(address, &["http/1.1"]).await.unwrap();
    assert_eq!(
        stream.get_ref().1.peer_certificates().unwrap(),
        [der(&first.0)]
    );
    let (mut old, driving) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let driving = tokio::spawn(driving);
    let mut errors = async || {
        let answer = old.send_request(request("/metrics", &[])).await.unwrap();
        let (code, text) = read(answer).await.unwrap();
        assert_eq!(code, 200);
        errors_in(&text)
    };
    assert_eq!(errors().await, 0);

    put(&mut volume, &second);
    files_checked().await;
    cluster
        .eventually_eq(
            "a new connection gets the second",
            der(&second.0),
            async || served().await,
        )
        .await;
    assert_eq!(errors().await, 0, "and the old connection continues");
    assert_eq!(log.count("another certificate is in use"), 1);

    let broken = (pair().0, "no key".to_owned());
    put(&mut volume, &broken);
    for expected in 1..=2 {
        files_checked().await;
        cluster
            .eventually("the error is counted", async || {
                let errors = errors().await;
                (errors >= expected).then_some(()).ok_or(errors)
            })
            .await;
        assert_eq!(
            served().await,
            der(&second.0),
            "the former certificate stays"
        );
    }
    assert_eq!(
        log.count("the certificate was not renewed"),
        1,
        "logged once"
    );

    let third = pair();
    put(&mut volume, &third);
    files_checked().await;
    let trust = Trust::of([der(&third.0)]);
    cluster
        .eventually("the repaired certificate is used", async || {
            get_by(&trust, address, "/metrics", &[]).await
        })
        .await;
    driving.abort();
    running.end().await;
}

/// An authority, and its certificate.
fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), certificate)
}

/// A certificate that `issuer` signed for this use.
fn signed(
    issuer: &Issuer<'static, KeyPair>,
    usage: ExtendedKeyUsagePurpose,
) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["scraper".to_owned()]).unwrap();
    params.extended_key_usages = vec![usage];
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    (certificate.der().clone(), key)
}

#[tokio::test]
async fn with_client_authorities_only_their_certificates_are_accepted() {
    let cluster = Cluster::in_process().await;
    let certificates = Certificates::self_signed(cluster.clock()).unwrap();
    let (ours, ours_pem) = authority("ours");
    let (theirs, theirs_pem) = authority("theirs");
    let mut volume = Volume::new(&[("ca.crt", &ours_pem)]);
    let server = MetricsServer::at(anywhere())
        .secure(Certificate::Ready(certificates.clone()))
        .client_authorities(volume.file("ca.crt"));
    let (running, address) = serving(&cluster, server).await;
    let client = ExtendedKeyUsagePurpose::ClientAuth;
    let trust = |identity| Trust {
        roots: certificates.chain(),
        identity,
    };
    let (known, unknown) = (
        trust(Some(signed(&ours, client.clone()))),
        trust(Some(signed(&theirs, client))),
    );
    let asked = async |trust: &Trust| get_by(trust, address, "/metrics", &[]).await;

    assert_eq!(asked(&known).await.unwrap().code, 200);
    let refused = format!("{:?}", asked(&trust(None)).await.unwrap_err());
    assert!(refused.contains("CertificateRequired"), "{refused}");
    let refused = format!("{:?}", asked(&unknown).await.unwrap_err());
    assert!(refused.contains("UnknownCA"), "{refused}");
    let server = signed(&ours, ExtendedKeyUsagePurpose::ServerAuth);
    asked(&trust(Some(server))).await.unwrap_err();

    // Another authority, through the volume.
    volume.put(&[("ca.crt", &theirs_pem)]);
    files_checked().await;
    cluster
        .eventually("the formerly unknown client is accepted", async || {
            asked(&unknown).await
        })
        .await;
    asked(&known).await.unwrap_err();

    // An unusable file: the former authority stays.
    volume.put(&[("ca.crt", "unusable")]);
    files_checked().await;
    cluster
        .eventually("the error is counted", async || {
            let text = asked(&unknown).await.unwrap().body;
            (errors_in(&text) > 0).then_some(()).ok_or(text)
        })
        .await;
    assert_eq!(asked(&unknown).await.unwrap().code, 200);
    running.end().await;
}

#[tokio::test]
async fn a_slow_request_over_http2_outlives_its_certificate_and_its_authority() {
    let cluster = Cluster::in_process().await;
    let (first, second) = (pair(), pair());
    let (old, old_pem) = authority("old");
    let (new, new_pem) = authority("new");
    let mut volume = Volume::new(&[
        ("tls.crt", &first.0),
        ("tls.key", &first.1),
        ("ca.crt", &old_pem),
    ]);
    let certificates = Certificates::from_files(volume.file("tls.crt"), volume.file("tls.key"));
    let certificates = certificates.await.unwrap();
    let certificates = certificates.with_client_authorities(volume.file("ca.crt"));
    let certificates = certificates.await.unwrap();
    let mut changes = certificates.changes();

    let (reaches, reached) = oneshot::channel();
    let reaches = Mutex::new(Some(reaches));
    let goes_on = Arc::new(Notify::new());
    let waits = Arc::clone(&goes_on);
    let router = Router::new()
        .route("/slow", move |_| {
            if let Some(reaches) = reaches.lock().take() {
                let _ = reaches.send(());
            }
            let waits = Arc::clone(&waits);
            async move {
                waits.notified().await;
                text(StatusCode::OK, "late")
            }
        })
        .unwrap()
        .route("/quick", |_| async { text(StatusCode::OK, "here") })
        .unwrap();
    let server = Server::bind("test", anywhere(), router.into_handler()).await;
    // Longer than the interval of the checks.
    let limits = Limits::default().answer_timeout(Duration::from_secs(60));
    let server = server.unwrap().limits(limits);
    let server = server.tls(certificates, true).unwrap();
    let address = server.local_addr().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(server.run(stop.clone()));

    let client = ExtendedKeyUsagePurpose::ClientAuth;
    let trust = |root: &str, issuer| Trust {
        roots: vec![der(root)],
        identity: Some(signed(issuer, client.clone())),
    };
    let before = trust(&first.0, &old);
    let stream = before.connect(address, &["h2"]).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let driving = tokio::spawn(connection);
    let over_http2 = |path: &str| {
        let mut request = request(path, &[]);
        request.headers_mut().remove("host");
        *request.uri_mut() = format!("https://localhost{path}").parse().unwrap();
        request
    };
    let slow = tokio::spawn(sender.send_request(over_http2("/slow")));
    reached.await.unwrap();

    volume.put(&[
        ("tls.crt", &second.0),
        ("tls.key", &second.1),
        ("ca.crt", &new_pem),
    ]);
    files_checked().await;
    changes.changed().await.unwrap();
    // New connections have the new pair, and need the new authority.
    let after = trust(&second.0, &new);
    cluster
        .eventually("a client of the new authority connects", async || {
            get_by(&after, address, "/quick", &[]).await
        })
        .await;
    get_by(&before, address, "/quick", &[]).await.unwrap_err();
    get_by(&trust(&second.0, &old), address, "/quick", &[])
        .await
        .unwrap_err();

    // The former connection continues: its slow request, and one more.
    assert!(!slow.is_finished());
    goes_on.notify_one();
    let answer = slow.await.unwrap().unwrap();
    assert_eq!(read(answer).await.unwrap(), (200, "late".to_owned()));
    let answer = sender.send_request(over_http2("/quick")).await.unwrap();
    assert_eq!(read(answer).await.unwrap(), (200, "here".to_owned()));
    stop.cancel();
    running.await.unwrap().unwrap();
    driving.abort();
}

#[tokio::test]
async fn client_authorities_need_https_and_must_not_be_empty() {
    let cluster = Cluster::in_process().await;
    let volume = Volume::new(&[("ca.crt", "unusable")]);
    let built = async |server: MetricsServer| {
        let built = cluster.manager().metrics_server(server).build().await;
        format!("{}", built.unwrap_err())
    };
    let plain = MetricsServer::at(anywhere()).client_authorities(volume.file("ca.crt"));
    let error = built(plain.clone()).await;
    assert!(error.contains("need HTTPS"), "{error}");
    let error = built(plain.secure(Certificate::SelfSigned)).await;
    assert!(
        error.contains("ca.crt has no usable authorities"),
        "{error}"
    );
}
