//! The same by TLS.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::world::World;

/// Has a self-signed certificate, of the kind for which Go and rustls both have assembly: ECDSA with P-256.
pub(crate) fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the versions of the provider")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    let mut config = config.expect("a certificate with its key");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Answers all connections to `listener`.
pub(crate) async fn accept(listener: TcpListener, acceptor: TlsAcceptor, world: Arc<World>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, world) = (acceptor.clone(), Arc::clone(&world));
        tokio::spawn(async move {
            if stream.set_nodelay(true).is_ok()
                && let Ok(stream) = acceptor.accept(stream).await
            {
                crate::converse(stream, world).await;
            }
        });
    }
}
