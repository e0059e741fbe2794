//! Target groups and their targets.
//!
//! They belong to the account, and to a load balancer only while a listener forwards to them. Their names begin with a hash of
//! the load balancer's id, so that the list of the account shows which ones may be its, and their tags show which ones are.

use std::collections::HashSet;

use super::query::Call;
use super::xml::Element;
use super::{Elbv2, balancers, gone, names, present, wire};
use crate::model::{Backend, Group, GroupId, LbId, NewGroup, Protocol, Tags, Targets};
use crate::provider::{Error, Kind};

/// The tag with the name of the group in the model.
const NAME_TAG: &str = "reeve.dev/group";
/// The tag with the id of the load balancer.
const BALANCER_TAG: &str = "reeve.dev/load-balancer";
/// The port that the API wants at the creation. Each target names its own.
const ANY_PORT: u16 = 1;

/// A target group in a list.
struct Listed {
    arn: String,
    name: String,
    targets: Option<Targets>,
}

fn listed(member: Element<'_>) -> Result<Listed, Error> {
    Ok(Listed {
        arn: member.needed("TargetGroupArn")?.to_owned(),
        name: member.needed("TargetGroupName")?.to_owned(),
        targets: match member.text("TargetType") {
            "instance" => Some(Targets::Instances),
            "ip" => Some(Targets::Addresses),
            _ => None,
        },
    })
}

fn tags(id: &LbId, name: &str) -> Tags {
    [(BALANCER_TAG, &*id.0), (NAME_TAG, name)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn targets(action: &'static str, group: &GroupId, backends: &[Backend]) -> Call {
    let pairs = backends.iter().map(|one| (&one.server, one.port));
    Call::new(action)
        .with("TargetGroupArn", group)
        .with_pairs("Targets", ("Id", "Port"), pairs)
}

// === impl Elbv2 ===

impl Elbv2 {
    /// The target groups of a load balancer, with their names in the model.
    async fn own_groups(&self, id: &LbId) -> Result<Vec<(Listed, String)>, Error> {
        let prefix = names::group_prefix(id);
        let call = Call::new("DescribeTargetGroups");
        let mut all = self.pages(call, "TargetGroups", listed).await?;
        all.retain(|one| one.name.starts_with(&prefix));
        let mut tags = self.tags(all.iter().map(|one| one.arn.as_str())).await?;
        let own = all.into_iter().filter_map(|one| {
            let mut tags = tags.remove(&one.arn)?;
            let its = tags.get(BALANCER_TAG) == Some(&id.0);
            let name = tags.remove(NAME_TAG).filter(|_| its)?;
            Some((one, name))
        });
        Ok(own.collect())
    }

    /// The target groups whose load balancer is gone: it was deleted by hand, and no other one will use them.
    pub(super) async fn abandoned_groups(&self) -> Result<Vec<String>, Error> {
        let call = Call::new("DescribeTargetGroups");
        let mut all = self.pages(call, "TargetGroups", listed).await?;
        all.retain(|one| names::is_group(&one.name));
        let arns = all.iter().map(|one| one.arn.as_str());
        let tags = self.tags(arns).await?;
        // Read last: a load balancer is there before its groups.
        let balancers = self.summaries(Call::new("DescribeLoadBalancers")).await?;
        let balancers: HashSet<&str> = balancers.iter().map(|one| &*one.id.0).collect();
        all.retain(|one| {
            let its = tags.get(&one.arn).and_then(|tags| tags.get(BALANCER_TAG));
            its.is_some_and(|id| !balancers.contains(&**id))
        });
        Ok(all.into_iter().map(|one| one.arn).collect())
    }

    pub(super) async fn groups_of(&self, id: &LbId) -> Result<Vec<Group>, Error> {
        let mut groups = Vec::new();
        for (listed, name) in self.own_groups(id).await? {
            // A group that was deleted meanwhile is none.
            let backends = present(self.backends_of(&listed.arn).await)?;
            groups.extend(backends.map(|backends| Group {
                id: GroupId(listed.arn),
                name,
                targets: listed.targets,
                backends,
            }));
        }
        if groups.is_empty() {
            self.check(id).await?;
        }
        Ok(groups)
    }

    async fn backends_of(&self, arn: &str) -> Result<Vec<Backend>, Error> {
        let call = Call::new("DescribeTargetHealth").with("TargetGroupArn", arn);
        let read = |result: Element<'_>| {
            let members = result.members("TargetHealthDescriptions");
            let backends = members.filter_map(|one| wire::backend(one).transpose());
            backends.collect()
        };
        self.client.call(call, read).await
    }

    /// The group of this name and kind is searched first: its name is unique.
    pub(super) async fn create_one_group(
        &self,
        id: &LbId,
        group: &NewGroup,
    ) -> Result<GroupId, Error> {
        let name = names::group(id, group);
        let call = Call::new("DescribeTargetGroups").with_all("Names", [&name]);
        let named = present(self.pages(call, "TargetGroups", listed).await)?;
        let wanted = tags(id, &group.name);
        if let Some(named) = named.into_iter().flatten().next() {
            let its = self.tags([named.arn.as_str()]).await?;
            let its = its.get(&named.arn);
            if its.is_some_and(|its| balancers::has_all(its, &wanted)) {
                return Ok(GroupId(named.arn));
            }
            let message = format!("another target group has the name {name}");
            return Err(Error::new(
                Kind::Duplicate,
                "DuplicateTargetGroupName",
                message,
            ));
        }
        self.check(id).await?;
        let protocol = match group.protocol {
            Protocol::Udp => "UDP",
            _ => "TCP",
        };
        let call = Call::new("CreateTargetGroup")
            .with("Name", name)
            .with("Protocol", protocol)
            .with("Port", ANY_PORT)
            .with("VpcId", &self.vpc)
            .with("TargetType", names::target_type(group.targets))
            .with("HealthCheckProtocol", "TCP")
            .with_tags(&wanted);
        let read = |result: Element<'_>| {
            let members = result.members("TargetGroups");
            members.map(listed).collect::<Result<Vec<_>, _>>()
        };
        let made = self.client.call(call, read).await?.into_iter().next();
        made.map(|made| GroupId(made.arn))
            .ok_or_else(|| wire::unreadable("answer", "it has no target group"))
    }

    pub(super) async fn delete_one_group(&self, group: &GroupId) -> Result<(), Error> {
        let call = Call::new("DeleteTargetGroup").with("TargetGroupArn", group);
        gone(self.client.run(call).await)
    }

    /// Deletes all target groups of a load balancer.
    pub(super) async fn delete_groups(&self, id: &LbId) -> Result<(), Error> {
        for (group, _) in self.own_groups(id).await? {
            self.delete_one_group(&GroupId(group.arn)).await?;
        }
        Ok(())
    }

    pub(super) async fn register(
        &self,
        group: &GroupId,
        backends: &[Backend],
    ) -> Result<(), Error> {
        self.client
            .run(targets("RegisterTargets", group, backends))
            .await
    }

    /// A target that is not registered makes some clouds refuse the whole call, so only registered ones are named.
    pub(super) async fn deregister(
        &self,
        group: &GroupId,
        backends: &[Backend],
    ) -> Result<(), Error> {
        let has = self.backends_of(&group.0).await?;
        let there = |one: &&Backend| has.iter().any(|has| has.key() == one.key());
        let backends: Vec<Backend> = backends.iter().filter(there).cloned().collect();
        if backends.is_empty() {
            return Ok(());
        }
        self.client
            .run(targets("DeregisterTargets", group, &backends))
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Server;

    #[test]
    fn targets_are_instances_and_addresses_with_their_ports() {
        let group = GroupId("arn:g".to_owned());
        let backend = |server| Backend {
            server,
            port: 30_080,
            weight: 100,
        };
        let backends = [
            backend(Server::Instance("i-1".to_owned())),
            backend(Server::Address("fd00::1".parse().unwrap())),
        ];
        assert_eq!(
            targets("RegisterTargets", &group, &backends).form(),
            "Action=RegisterTargets&Version=2015-12-01&TargetGroupArn=arn%3Ag&\
             Targets.member.1.Id=i-1&Targets.member.1.Port=30080&\
             Targets.member.2.Id=fd00%3A%3A1&Targets.member.2.Port=30080"
        );
    }
}
