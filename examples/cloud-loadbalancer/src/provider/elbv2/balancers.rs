//! Load balancers.

use super::query::Call;
use super::wire::{self, Attributes, Summary};
use super::{Elbv2, gone, names, present};
use crate::model::{AddressType, Create, IpVersion, LbId, LoadBalancer, Tags};
use crate::provider::{Error, Kind};

/// Whether `tags` has all of `some`.
pub(super) fn has_all(tags: &Tags, some: &Tags) -> bool {
    some.iter().all(|(key, value)| tags.get(key) == Some(value))
}

fn not_found(id: &LbId) -> Error {
    let message = format!("there is no load balancer {id}");
    Error::new(Kind::NotFound, "LoadBalancerNotFound", message)
}

// === impl Elbv2 ===

impl Elbv2 {
    /// A list of load balancers. It shows the account, if it shows anything.
    pub(super) async fn summaries(&self, call: Call) -> Result<Vec<Summary>, Error> {
        let all = self.pages(call, "LoadBalancers", wire::summary).await?;
        let all: Vec<Summary> = all.into_iter().flatten().collect();
        self.see(all.first());
        Ok(all)
    }

    /// Takes the account from a load balancer.
    fn see(&self, balancer: Option<&Summary>) {
        if let Some(account) = balancer.and_then(|one| names::account(&one.arn)) {
            self.account.get_or_init(|| account.to_owned());
        }
    }

    /// The ARN of a load balancer; `None` if no load balancer has this id.
    async fn known_arn(&self, id: &LbId) -> Result<Option<String>, Error> {
        if self.account.get().is_none() {
            self.summaries(Call::new("DescribeLoadBalancers")).await?;
        }
        let account = self.account.get();
        Ok(account.and_then(|account| names::arn(account, id)))
    }

    /// The ARN of a load balancer.
    pub(super) async fn arn(&self, id: &LbId) -> Result<String, Error> {
        self.known_arn(id).await?.ok_or_else(|| not_found(id))
    }

    async fn summary(&self, arn: &str) -> Result<Option<Summary>, Error> {
        let call = Call::new("DescribeLoadBalancers").with_all("LoadBalancerArns", [arn]);
        let found = present(self.summaries(call).await)?;
        Ok(found.into_iter().flatten().find(|one| one.arn == arn))
    }

    /// An error unless the load balancer exists.
    pub(super) async fn check(&self, id: &LbId) -> Result<(), Error> {
        let summary = self.summary(&self.arn(id).await?).await?;
        summary.map(drop).ok_or_else(|| not_found(id))
    }

    async fn attributes(&self, arn: &str) -> Result<Attributes, Error> {
        let call = Call::new("DescribeLoadBalancerAttributes").with("LoadBalancerArn", arn);
        self.client.call(call, wire::attributes).await
    }

    /// The rest of a description. A load balancer that was deleted meanwhile is none.
    async fn complete(&self, summary: Summary, tags: Tags) -> Result<Option<LoadBalancer>, Error> {
        let attributes = present(self.attributes(&summary.arn).await)?;
        Ok(attributes.map(|attributes| wire::balancer(summary, tags, &attributes)))
    }

    pub(super) async fn describe_one(&self, id: &LbId) -> Result<Option<LoadBalancer>, Error> {
        let Some(arn) = self.known_arn(id).await? else {
            return Ok(None);
        };
        let Some(summary) = self.summary(&arn).await? else {
            return Ok(None);
        };
        let Some(tags) = self.tags([arn.as_str()]).await?.remove(&arn) else {
            return Ok(None);
        };
        self.complete(summary, tags).await
    }

    pub(super) async fn find_all(&self, tags: &Tags) -> Result<Vec<LoadBalancer>, Error> {
        let all = self.summaries(Call::new("DescribeLoadBalancers")).await?;
        let mut found = Vec::new();
        for (summary, its) in self.with_tags(all, tags).await? {
            found.extend(self.complete(summary, its).await?);
        }
        Ok(found)
    }

    /// Those of `all` that carry all of `tags`, with their tags.
    async fn with_tags(
        &self,
        all: Vec<Summary>,
        tags: &Tags,
    ) -> Result<Vec<(Summary, Tags)>, Error> {
        let mut carried = self.tags(all.iter().map(|one| one.arn.as_str())).await?;
        let its = all.into_iter().filter_map(|one| {
            let its = carried.remove(&one.arn)?;
            has_all(&its, tags).then_some((one, its))
        });
        Ok(its.collect())
    }

    /// The name is searched first: the cloud has no tokens, and one with two load balancers of the same name exists.
    pub(super) async fn create_one(&self, wanted: &Create) -> Result<LbId, Error> {
        if wanted.fixed.ip_version != IpVersion::Ipv4 {
            return Err(wire::unsupported("IPv6"));
        }
        let call = Call::new("DescribeLoadBalancers").with_all("Names", [&wanted.name]);
        let named = present(self.summaries(call).await)?.unwrap_or_default();
        if !named.is_empty() {
            let own = self.with_tags(named, &wanted.identity).await?;
            let ids = own.into_iter().map(|(summary, _)| summary.id);
            return ids.min().ok_or_else(|| {
                let message = format!(
                    "another load balancer has the name {}; the annotation lb.reeve.dev/name selects \
                     another name",
                    wanted.name
                );
                Error::new(Kind::Duplicate, "DuplicateLoadBalancerName", message)
            });
        }
        let internet = wanted.fixed.address_type == AddressType::Internet;
        let subnets: Vec<&str> = match &wanted.fixed.subnet {
            Some(subnets) => subnets.split(',').map(str::trim).collect(),
            None => self.subnets.iter().map(String::as_str).collect(),
        };
        let call = Call::new("CreateLoadBalancer")
            .with("Name", &wanted.name)
            .with("Type", "network")
            .with(
                "Scheme",
                if internet {
                    "internet-facing"
                } else {
                    "internal"
                },
            )
            .with("IpAddressType", "ipv4")
            .with_all("Subnets", subnets)
            .with_tags(&wanted.tags);
        let read = |result: super::xml::Element<'_>| {
            let members = result.members("LoadBalancers");
            members.map(wire::summary).collect::<Result<Vec<_>, _>>()
        };
        let made = self.client.call(call, read).await?;
        let made = made.into_iter().flatten().next();
        self.see(made.as_ref());
        made.map(|made| made.id)
            .ok_or_else(|| wire::unreadable("answer", "it has no load balancer"))
    }

    pub(super) async fn delete_all(&self, id: &LbId) -> Result<(), Error> {
        let Some(balancer) = self.describe_one(id).await? else {
            return Ok(());
        };
        if balancer.delete_protection {
            let message = "the load balancer has deletion protection";
            return Err(Error::new(Kind::Protected, wire::PROTECTED, message));
        }
        let arn = self.arn(id).await?;
        self.delete_listeners(&arn, |_| true).await?;
        self.delete_groups(id).await?;
        let call = Call::new("DeleteLoadBalancer").with("LoadBalancerArn", arn);
        gone(self.client.run(call).await)
    }

    pub(super) async fn protect(&self, id: &LbId, on: bool) -> Result<(), Error> {
        let call = Call::new("ModifyLoadBalancerAttributes")
            .with("LoadBalancerArn", self.arn(id).await?)
            .with_attributes(&[(wire::DELETE_PROTECTION, on.to_string())]);
        self.client.run(call).await
    }

    pub(super) async fn add_tags(&self, id: &LbId, tags: &Tags) -> Result<(), Error> {
        self.tag_resource(&self.arn(id).await?, tags).await
    }

    pub(super) async fn tag_resource(&self, arn: &str, tags: &Tags) -> Result<(), Error> {
        let call = Call::new("AddTags")
            .with_all("ResourceArns", [arn])
            .with_tags(tags);
        self.client.run(call).await
    }

    pub(super) async fn remove_tags(&self, id: &LbId, keys: &[String]) -> Result<(), Error> {
        let call = Call::new("RemoveTags")
            .with_all("ResourceArns", [self.arn(id).await?])
            .with_all("TagKeys", keys);
        self.client.run(call).await
    }
}
