//! The built-in API server as the cases use it: on loopback with TLS and RBAC, as strict as a real one.

use kube_client::Client;
use reeve_apiserver::{ApiServer, Serving};

/// A running `reeve-apiserver`.
pub(crate) struct Builtin {
    server: ApiServer,
    serving: Serving,
}

// === impl Builtin ===

impl Builtin {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::builder()
            .rbac()
            .start()
            .await
            .expect("the built-in server starts");
        let serving = server
            .serve_tls(([127, 0, 0, 1], 0).into())
            .await
            .expect("it serves on loopback");
        Self { server, serving }
    }

    pub(crate) fn client(&self) -> Client {
        self.server.client()
    }

    pub(crate) fn kubeconfig(&self) -> String {
        self.serving.kubeconfig()
    }

    pub(crate) fn stop(&self) {
        self.server.go_down();
    }

    pub(crate) fn serve(&self) {
        self.server.come_up();
    }
}
