//! The answers of the API that controllers read, and the calls for them.

use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

use super::{Client, Error};
use crate::parameters::Parameters;

/// The load balancers of a page.
const PAGE: usize = 100;
/// The most pages of a list that are read.
const MOST_PAGES: u32 = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Refused {
    pub(super) code: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) request_id: String,
}

/// A load balancer that was created.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Created {
    /// Its id.
    pub load_balancer_id: String,
    /// Its address.
    pub address: IpAddr,
}

/// A load balancer in a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Summary {
    /// Its id.
    pub load_balancer_id: String,
    /// Its name.
    pub load_balancer_name: String,
}

/// The attributes of a load balancer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Attributes {
    /// The id.
    pub load_balancer_id: String,
    /// The name.
    pub load_balancer_name: String,
    /// `active`, or `inactive` while it is being made and when it is switched off.
    pub load_balancer_status: String,
    /// The address.
    pub address: IpAddr,
    /// `internet` or `intranet`.
    pub address_type: String,
    /// The specification, unless it is paid by use.
    #[serde(default)]
    pub load_balancer_spec: Option<String>,
    /// `paybytraffic` or `paybybandwidth`.
    pub internet_charge_type: String,
    /// The bandwidth, in Mbit/s.
    pub bandwidth: i64,
    /// `on` or `off`.
    pub delete_protection: String,
    /// `NonProtection` or `ConsoleProtection`.
    pub modification_protection_status: String,
    /// All other fields.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Listener {
    /// The port.
    pub listener_port: u16,
    /// `tcp`, `udp` or `http`.
    pub listener_protocol: String,
    /// `running`, `stopped` or `configuring`.
    pub status: String,
    /// The server group.
    #[serde(default, rename = "VServerGroupId")]
    pub group: Option<String>,
    /// The other fields: the general settings, and those of the protocol in an object of their own.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A server group in a list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GroupSummary {
    /// The id.
    #[serde(rename = "VServerGroupId")]
    pub id: String,
    /// The name.
    #[serde(rename = "VServerGroupName")]
    pub name: String,
}

/// A server group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Group {
    /// The id.
    #[serde(rename = "VServerGroupId")]
    pub id: String,
    /// The name.
    #[serde(default, rename = "VServerGroupName")]
    pub name: String,
    #[serde(rename = "BackendServers")]
    backends: BackendServers,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BackendServers {
    backend_server: Vec<BackendServer>,
}

/// A backend of a server group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BackendServer {
    /// The id of the instance or the network interface.
    pub server_id: String,
    /// `ecs`, `eni` or `eci`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// The address.
    #[serde(default)]
    pub server_ip: String,
    /// The port.
    pub port: u16,
    /// The weight.
    pub weight: u8,
}

/// A tag of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TagResource {
    /// The load balancer.
    pub resource_id: String,
    /// The key.
    pub tag_key: String,
    /// The value.
    pub tag_value: String,
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AccessList {
    /// The id.
    #[serde(rename = "AclId")]
    pub id: String,
    /// The name.
    #[serde(rename = "AclName")]
    pub name: String,
    #[serde(default, rename = "AclEntrys")]
    entries: AccessEntries,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct AccessEntries {
    #[serde(rename = "AclEntry")]
    entries: Vec<AccessEntry>,
}

/// An entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AccessEntry {
    /// The network.
    #[serde(rename = "AclEntryIP")]
    pub network: String,
    /// The comment.
    #[serde(default, rename = "AclEntryComment")]
    pub comment: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Balancers<T> {
    load_balancers: BalancerList<T>,
    total_count: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BalancerList<T> {
    load_balancer: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listeners {
    listeners: Vec<Listener>,
    #[serde(default)]
    next_token: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Tags {
    #[serde(default)]
    next_token: String,
    tag_resources: TagList,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TagList {
    tag_resource: Vec<TagResource>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(rename = "VServerGroups")]
    groups: GroupList,
}

#[derive(Deserialize)]
struct GroupList {
    #[serde(rename = "VServerGroup")]
    groups: Vec<GroupSummary>,
}

#[derive(Deserialize)]
struct AccessLists {
    #[serde(rename = "Acls")]
    lists: AccessListList,
    #[serde(rename = "TotalCount")]
    total: usize,
}

#[derive(Deserialize)]
struct AccessListList {
    #[serde(rename = "Acl")]
    lists: Vec<AccessList>,
}

// === impl Group ===

impl Group {
    /// The backends.
    #[must_use]
    pub fn backends(&self) -> &[BackendServer] {
        &self.backends.backend_server
    }
}

// === impl AccessList ===

impl AccessList {
    /// The entries; empty in a list of access control lists.
    #[must_use]
    pub fn entries(&self) -> &[AccessEntry] {
        &self.entries.entries
    }
}

// === impl Client ===

/// An error after [`MOST_PAGES`] pages: the list of a cloud that repeats one page has no end.
fn check_pages(action: &str, read: u32) -> Result<(), Error> {
    if read < MOST_PAGES {
        return Ok(());
    }
    Err(Error::Unreadable {
        action: action.to_owned(),
        reason: format!("its list has no end after {MOST_PAGES} pages"),
    })
}

impl Client {
    /// Sends a call whose answer has nothing to read.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn run(&self, call: Parameters) -> Result<(), Error> {
        self.call::<IgnoredAny>(call).await.map(|_| ())
    }

    /// All load balancers that a search finds, over all pages.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn balancers(&self, search: Parameters) -> Result<Vec<Summary>, Error> {
        let found = self.pages(search, |one: &Summary| &one.load_balancer_id);
        found.await
    }

    /// The attributes of all load balancers that a search finds, over all pages. They may be older than those of
    /// [`Client::attributes`].
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn search(&self, search: Parameters) -> Result<Vec<Attributes>, Error> {
        let found = self.pages(search, |one: &Attributes| &one.load_balancer_id);
        found.await
    }

    async fn pages<T: DeserializeOwned>(
        &self,
        search: Parameters,
        id: impl Fn(&T) -> &String,
    ) -> Result<Vec<T>, Error> {
        let mut found: Vec<T> = Vec::new();
        for page in 1.. {
            let call = search
                .clone()
                .with("PageSize", PAGE)
                .with("PageNumber", page);
            let call = call.with("Action", "DescribeLoadBalancers");
            let answer: Balancers<T> = self.call(call).await?;
            let last = answer.load_balancers.load_balancer.len() < PAGE;
            found.extend(answer.load_balancers.load_balancer);
            if last || found.len() >= answer.total_count {
                break;
            }
            check_pages("DescribeLoadBalancers", page)?;
        }
        // The pages of a list that changes meanwhile can overlap.
        found.sort_by(|one, other| id(one).cmp(id(other)));
        found.dedup_by(|one, other| id(one) == id(other));
        Ok(found)
    }

    /// The attributes of a load balancer.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn attributes(&self, id: &str) -> Result<Attributes, Error> {
        let call = Parameters::action("DescribeLoadBalancerAttribute");
        self.call(call.with("LoadBalancerId", id)).await
    }

    /// The listeners of a load balancer, over all pages.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn listeners(&self, balancer: &str) -> Result<Vec<Listener>, Error> {
        let search = Parameters::default().with("LoadBalancerId.1", balancer);
        self.search_listeners(search).await
    }

    /// The listeners of all load balancers, over all pages.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn all_listeners(&self) -> Result<Vec<Listener>, Error> {
        self.search_listeners(Parameters::default()).await
    }

    async fn search_listeners(&self, search: Parameters) -> Result<Vec<Listener>, Error> {
        let page = |answer: Listeners| (answer.listeners, answer.next_token);
        let search = search
            .with("Action", "DescribeLoadBalancerListeners")
            .with("MaxResults", 100);
        self.chain("DescribeLoadBalancerListeners", search, page)
            .await
    }

    /// The elements of all pages of a list whose pages name the next one by a token.
    async fn chain<A: DeserializeOwned, T>(
        &self,
        action: &str,
        call: Parameters,
        page: impl Fn(A) -> (Vec<T>, String),
    ) -> Result<Vec<T>, Error> {
        let mut found = Vec::new();
        let mut next = String::new();
        for number in 1.. {
            let (elements, token) = page(self.call(call.clone().with("NextToken", &next)).await?);
            found.extend(elements);
            next = token;
            if next.is_empty() {
                break;
            }
            check_pages(action, number)?;
        }
        Ok(found)
    }

    /// The tags of a load balancer, over all pages.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn tags(&self, balancer: &str) -> Result<Vec<TagResource>, Error> {
        let page = |answer: Tags| (answer.tag_resources.tag_resource, answer.next_token);
        let call = Parameters::action("ListTagResources")
            .with("ResourceType", "instance")
            .with("ResourceId.1", balancer);
        self.chain("ListTagResources", call, page).await
    }

    /// The server groups of a load balancer, without their backends.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn groups(&self, balancer: &str) -> Result<Vec<GroupSummary>, Error> {
        let call = Parameters::action("DescribeVServerGroups").with("LoadBalancerId", balancer);
        let answer: Groups = self.call(call).await?;
        Ok(answer.groups.groups)
    }

    /// A server group with its backends.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn group(&self, id: &str) -> Result<Group, Error> {
        let call = Parameters::action("DescribeVServerGroupAttribute");
        self.call(call.with("VServerGroupId", id)).await
    }

    /// The access control lists of a name, without their entries.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn access_lists(&self, name: &str) -> Result<Vec<AccessList>, Error> {
        let mut found: Vec<AccessList> = Vec::new();
        for page in 1.. {
            let call = Parameters::action("DescribeAccessControlLists")
                .with("AclName", name)
                .with("PageSize", 50)
                .with("PageNumber", page);
            let answer: AccessLists = self.call(call).await?;
            let last = answer.lists.lists.is_empty();
            found.extend(answer.lists.lists);
            if last || found.len() >= answer.total {
                break;
            }
            check_pages("DescribeAccessControlLists", page)?;
        }
        Ok(found)
    }

    /// An access control list with its entries.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn access_list(&self, id: &str) -> Result<AccessList, Error> {
        let call = Parameters::action("DescribeAccessControlListAttribute");
        self.call(call.with("AclId", id)).await
    }
}
