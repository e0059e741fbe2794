//! Names and ids.
//!
//! The API identifies a load balancer by its ARN, which has slashes and colons and is too long for a label. Its id here is the
//! last part of the ARN with dots, `net.NAME.HEX`; region and account are the same for all load balancers of a controller.
//!
//! Names have at most 32 letters, digits and `-`. The name of a target group is a function of its load balancer, its own name in
//! the model and the kind of its servers, so a creation whose answer was lost finds the same group again.

use sha2::{Digest, Sha256};

use crate::identity::{Owner, hex};
use crate::model::{LbId, NewGroup, Targets};

/// The beginning of all names.
const PREFIX: &str = "k8s-";
/// The longest part of a namespace and of a Service's name in the name of a load balancer.
const LONGEST_PART: usize = 8;
/// The digits of a hash in a name.
const DIGITS: usize = 10;
/// The kind of the resource in the ARN of a load balancer.
const BALANCER: &str = ":loadbalancer/";

/// The name of a load balancer, `k8s-NAMESPACE-NAME-HASH`, for people and unique by its hash of cluster and uid.
pub(super) fn balancer(owner: &Owner) -> String {
    let (namespace, name) = owner.name.split_once('/').unwrap_or_default();
    let hash = digits(&[owner.cluster.as_str(), &owner.uid]);
    format!("{PREFIX}{}-{}-{hash}", part(namespace), part(name))
}

fn part(text: &str) -> String {
    let allowed = text.chars().filter(char::is_ascii_alphanumeric);
    allowed.take(LONGEST_PART).collect()
}

/// The first digits of a hash over `parts`. Lengths are hashed too: no two lists of parts are the same bytes.
fn digits(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut digits = hex(&hash.finalize());
    digits.truncate(DIGITS);
    digits
}

/// Whether a target group of this name may be one of a load balancer here.
pub(super) fn is_group(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The beginning of the names of all target groups of a load balancer.
pub(super) fn group_prefix(id: &LbId) -> String {
    format!("{PREFIX}{}-", digits(&[&id.0]))
}

/// The name of a target group.
pub(super) fn group(id: &LbId, group: &NewGroup) -> String {
    let kind = target_type(group.targets);
    format!("{}{}", group_prefix(id), digits(&[&group.name, kind]))
}

/// The kind of servers as the API calls it.
pub(super) fn target_type(targets: Targets) -> &'static str {
    match targets {
        Targets::Instances => "instance",
        Targets::Addresses => "ip",
    }
}

/// The id of the load balancer with this ARN; `None` for an ARN of something else.
pub(super) fn id(arn: &str) -> Option<LbId> {
    let (_, resource) = arn.split_once(BALANCER)?;
    let id = resource.replace('/', ".");
    resource_of(&LbId(id.clone())).map(|_| LbId(id))
}

/// The part of an ARN before the kind of the resource, `arn:PARTITION:elasticloadbalancing:REGION:ACCOUNT`.
pub(super) fn account(arn: &str) -> Option<&str> {
    let (account, _) = arn.split_once(BALANCER)?;
    Some(account)
}

/// The ARN of a load balancer; `None` if `id` is not an id of this cloud.
pub(super) fn arn(account: &str, id: &LbId) -> Option<String> {
    resource_of(id).map(|resource| format!("{account}{BALANCER}{resource}"))
}

fn resource_of(id: &LbId) -> Option<String> {
    let parts: Vec<&str> = id.0.split('.').collect();
    let plain = |part: &&str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !part.is_empty() && part.chars().all(allowed)
    };
    (parts.len() == 3 && parts.iter().all(plain)).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Protocol;

    const ACCOUNT: &str = "arn:aws:elasticloadbalancing:eu-west-1:123456789012";

    fn owner(name: &str, uid: &str) -> Owner {
        Owner {
            cluster: "shop-1".parse().unwrap(),
            uid: uid.to_owned(),
            name: name.to_owned(),
        }
    }

    fn valid(name: &str) -> bool {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        name.len() <= 32 && name.chars().all(allowed) && !name.contains("--")
    }

    #[test]
    fn a_name_is_readable_short_and_depends_on_cluster_and_uid() {
        let web = balancer(&owner("shop/web", "u-1"));
        assert!(web.starts_with("k8s-shop-web-"), "{web}");
        let long = balancer(&owner("kube-system-of-others/a-very-long-name", "u-1"));
        assert!(long.starts_with("k8s-kubesyst-averylon-"), "{long}");
        assert!(valid(&web) && valid(&long) && long.len() == 32);
        assert_ne!(web, balancer(&owner("shop/web", "u-2")));
        let mut elsewhere = owner("shop/web", "u-1");
        elsewhere.cluster = "shop-2".parse().unwrap();
        assert_ne!(web, balancer(&elsewhere));
    }

    #[test]
    fn an_id_fits_into_a_label_and_gives_the_arn_back() {
        let longest = format!(
            "{ACCOUNT}:loadbalancer/net/{}/50dc6c495c0c9188",
            "n".repeat(32)
        );
        let id = id(&longest).unwrap();
        assert_eq!(id.0, format!("net.{}.50dc6c495c0c9188", "n".repeat(32)));
        assert!(id.0.len() <= 63);
        assert_eq!(account(&longest), Some(ACCOUNT));
        assert_eq!(arn(ACCOUNT, &id), Some(longest));
    }

    #[test]
    fn what_is_not_an_id_has_no_arn() {
        for text in [
            "",
            "lb-1",
            "net.web",
            "net..1",
            "net.web.1.2",
            "net.w/b.1",
            "net.w:b.1",
        ] {
            assert_eq!(arn(ACCOUNT, &text.into()), None, "{text}");
        }
        for text in [
            "",
            ACCOUNT,
            "a:targetgroup/net/web/1",
            "a:loadbalancer/web/1",
        ] {
            assert_eq!(id(text), None, "{text}");
        }
    }

    #[test]
    fn a_group_has_a_name_for_each_kind_of_servers() {
        let new = |name: &str, targets| NewGroup {
            name: name.to_owned(),
            protocol: Protocol::Tcp,
            targets,
        };
        let one = LbId::from("net.web.1");
        let all = [
            group(&one, &new("k8s/80/tcp/u/c", Targets::Instances)),
            group(&one, &new("k8s/80/tcp/u/c", Targets::Addresses)),
            group(&one, &new("k8s/81/tcp/u/c", Targets::Instances)),
            group(
                &"net.web.2".into(),
                &new("k8s/80/tcp/u/c", Targets::Instances),
            ),
        ];
        for (at, name) in all.iter().enumerate() {
            assert!(valid(name) && !all[..at].contains(name), "{all:?}");
            assert_eq!(name.starts_with(&group_prefix(&one)), at < 3);
        }
    }
}
