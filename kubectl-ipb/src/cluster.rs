//! The connection: which namespaces, all blocks of them, and writes with errors that help.

use ipblock_operator::api::IPBlock;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube_client::Api;
use kube_core::params::{ListParams, PostParams};
use reeve_client::connect::{self, location::Location};
use reeve_client::{Client, Error as ClientError, ObjectKey};
use reeve_clock::Clock;

use crate::command::Access;
use crate::error::{Error, is_forbidden};
use crate::print::note;

/// The name of the kind as kubectl prints it before a name.
pub(crate) const KIND: &str = "ipblock.ops.yiiong.top";

/// The field manager of the writes.
pub(crate) const MANAGER: &str = "kubectl-ipb";

/// How often a list begins again when the server drops its state.
const LISTS: u32 = 3;

/// A cluster, and the namespace of the command.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// The namespace of `-n`, or else of the context.
    pub(crate) namespace: String,
    /// The namespace of `-n`.
    pub(crate) chosen: Option<String>,
    /// The address of the API server, when the kubeconfig has it as a number.
    pub(crate) server: Option<std::net::IpAddr>,
    pub(crate) operator_namespace: String,
    clock: Clock,
}

/// The namespaces of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    One(String),
}

// === impl Cluster ===

impl Cluster {
    /// Connects. Nothing is sent yet.
    pub(crate) async fn connect(access: &Access) -> Result<Self, Error> {
        let mut location = Location::new();
        if let Some(file) = &access.kubeconfig {
            location = location.kubeconfig(file);
        }
        if let Some(context) = &access.context {
            location = location.context(context);
        }
        let mut config = location.load().await?;
        if let Some(user) = &access.as_user {
            config.auth_info.impersonate = Some(user.clone());
            let groups = &access.as_group;
            config.auth_info.impersonate_groups = (!groups.is_empty()).then(|| groups.clone());
        }
        let host = config.cluster_url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let server = host.parse().ok();
        let of_context = config.default_namespace.clone();
        let options =
            connect::Options::new().user_agent(concat!("kubectl-ipb/", env!("CARGO_PKG_VERSION")));
        let client = Client::new(connect::connect(config, &options)?)
            .with_deadline(access.request_timeout)
            .field_owner(MANAGER);
        Ok(Self {
            client,
            namespace: access.namespace.clone().unwrap_or(of_context),
            chosen: access.namespace.clone(),
            server,
            operator_namespace: access.operator_namespace.clone(),
            clock: Clock::system(),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The block of this name in the command's namespace.
    pub(crate) fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::namespaced(self.namespace.as_str(), name)
    }

    /// What every block of `scope` adds to, from `T::default()` on. A list that expires begins again.
    pub(crate) async fn fold<T: Default>(
        &self,
        scope: &Scope,
        selector: Option<&str>,
        mut add: impl FnMut(&mut T, IPBlock),
    ) -> Result<T, Error> {
        let params = ListParams {
            label_selector: selector.map(str::to_owned),
            ..ListParams::default()
        };
        let namespace = match scope {
            Scope::All => None,
            Scope::One(namespace) => Some(namespace.as_str()),
        };
        let blocks = self.client.objects::<IPBlock>();
        let mut tries = 1;
        'list: loop {
            let mut sum = T::default();
            let mut pages = blocks.pages(namespace, &params);
            loop {
                match pages.next().await {
                    Ok(Some(page)) => page
                        .items
                        .into_iter()
                        .for_each(|block| add(&mut sum, block)),
                    Ok(None) => return Ok(sum),
                    Err(error) if error.is_expired() && tries < LISTS => {
                        tries += 1;
                        continue 'list;
                    }
                    Err(error) => return Err(refused(error, "list", scope)),
                }
            }
        }
    }

    /// As [`Cluster::fold`] over every block of the cluster, or of the namespace of `-n`. A user that may list one
    /// namespace only gets that one, and a note.
    pub(crate) async fn fold_everywhere<T: Default>(
        &self,
        add: impl FnMut(&mut T, IPBlock),
    ) -> Result<(T, Scope), Error> {
        if let Some(namespace) = &self.chosen {
            let scope = Scope::One(namespace.clone());
            return Ok((self.fold(&scope, None, add).await?, scope));
        }
        self.fold_all(add).await
    }

    /// As [`Cluster::fold_everywhere`], of all namespaces also with `-n`.
    pub(crate) async fn fold_all<T: Default>(
        &self,
        mut add: impl FnMut(&mut T, IPBlock),
    ) -> Result<(T, Scope), Error> {
        match self.fold(&Scope::All, None, &mut add).await {
            Err(error) if error.is_forbidden() => {
                let scope = Scope::One(self.namespace.clone());
                let sum = self.fold(&scope, None, add).await?;
                note(&format!(
                    "note: only the blocks of the namespace {} are looked at; the right to list ipblocks.ops.yiiong.top in all namespaces is missing",
                    self.namespace
                ));
                Ok((sum, scope))
            }
            sum => Ok((sum?, Scope::All)),
        }
    }

    /// The user that the API server sees, or else the one of this machine.
    pub(crate) async fn user(&self) -> Option<String> {
        let reviews: Api<SelfSubjectReview> = Api::all(self.client.kube().clone());
        let review = SelfSubjectReview::default();
        let answer = reviews.create(&PostParams::default(), &review).await;
        let seen = answer
            .ok()
            .and_then(|review| review.status?.user_info?.username)
            .filter(|name| !name.is_empty());
        seen.or_else(|| std::env::var("USER").ok())
            .map(|name| name.chars().take(256).collect())
    }
}

/// The error of a request about blocks, with what is missing.
pub(crate) fn refused(error: ClientError, verb: &str, scope: &Scope) -> Error {
    if error.is_not_served() {
        return Error::NoKind;
    }
    let right = is_forbidden(&error).then(|| {
        let place = match scope {
            Scope::All => "all namespaces".to_owned(),
            Scope::One(namespace) => format!("the namespace {namespace}"),
        };
        format!("{verb} on ipblocks.ops.yiiong.top in {place}")
    });
    Error::Server { error, right }
}

/// As [`refused`], for one block.
pub(crate) fn refused_for(error: ClientError, verb: &str, key: &ObjectKey) -> Error {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    refused(error, verb, &Scope::One(namespace.to_owned()))
}
