//! The API server of the examples: one of their own, or with `--cluster` that of your kubeconfig.

use std::collections::BTreeMap;
use std::error::Error;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_client::{Client, Config};
use reeve_apiserver::ApiServer;

/// An API server with some ConfigMaps in it, or your cluster.
pub(crate) struct Somewhere {
    pub(crate) client: Client,
    /// The server of the example, if it is not your cluster.
    pub(crate) server: Option<ApiServer>,
}

impl Somewhere {
    pub(crate) async fn find() -> Result<Self, Box<dyn Error>> {
        if std::env::args().any(|argument| argument == "--cluster") {
            let client = Client::try_from(Config::infer().await?)?;
            return Ok(Self {
                client,
                server: None,
            });
        }
        let server = ApiServer::builder().start().await?;
        let client = server.client();
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
        for (name, team) in [
            ("checkout", "shop"),
            ("prices", "shop"),
            ("login", "identity"),
        ] {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(name.to_owned());
            map.metadata.labels = Some(BTreeMap::from([("team".to_owned(), team.to_owned())]));
            map.data = Some(BTreeMap::from([("replicas".to_owned(), "1".to_owned())]));
            maps.create(&PostParams::default(), &map).await?;
        }
        Ok(Self {
            client,
            server: Some(server),
        })
    }

    /// Changes something, unless it is your cluster.
    #[allow(dead_code, reason = "not every example needs it")]
    pub(crate) async fn stir(&self) -> Result<(), Box<dyn Error>> {
        if self.server.is_some() {
            let maps = Api::<ConfigMap>::namespaced(self.client.clone(), "default");
            let more = Patch::Merge(serde_json::json!({"data": {"replicas": "3"}}));
            maps.patch("prices", &PatchParams::default(), &more).await?;
            maps.delete("login", &DeleteParams::default()).await?;
        }
        Ok(())
    }
}
