//! The contract of providers, and what is peculiar to this cloud.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cloud_loadbalancer::model::{
    Address, AddressType, Create, Fixed, IpVersion, NewGroup, Protocol, Tags, Targets,
};
use cloud_loadbalancer::provider::elbv2::{Elbv2, Keys, Place, Source};
use cloud_loadbalancer::provider::{Kind, Provider, Token};
use reeve_apiserver::ApiServer;
use reeve_clock::Clock;

use super::{Moto, REGION};
use crate::contract::{self, Subject};

/// The cases of the contract in which moto differs from the documentation of the API.
const DIFFERENCES: [(&str, &str); 1] = [(
    "a_server_with_two_ports_is_two_backends",
    "moto keeps targets by their id alone: a second port replaces the first",
)];

fn wanted(name: &str, uid: &str) -> Create {
    let identity = Tags::from([("uid".to_owned(), uid.to_owned())]);
    Create {
        name: name.to_owned(),
        fixed: Fixed {
            address_type: AddressType::Intranet,
            ip_version: IpVersion::Ipv4,
            subnet: None,
            zone: None,
            resource_group: None,
        },
        internet: None,
        instance_charge: None,
        spec: None,
        tags: identity.clone(),
        identity,
    }
}

#[tokio::test]
async fn moto_keeps_the_contract_but_for_the_known_differences() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let accounts = RefCell::new(Vec::new());
    contract::check(&DIFFERENCES, async || {
        let account = moto.account(None).await;
        let provider = account.provider().await;
        accounts.borrow_mut().push(account);
        Arc::new(provider) as Subject
    })
    .await;
}

#[tokio::test]
async fn moto_gives_lists_in_pages_and_the_provider_reads_all() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let account = moto.account(None).await;
    let small = account.provider().await.page(2);
    let mut tags = Tags::new();
    for number in 0..5 {
        let mut wanted = wanted(&format!("web-{number}"), &format!("u-{number}"));
        wanted.tags.insert("all".to_owned(), "yes".to_owned());
        tags = Tags::from([("all".to_owned(), "yes".to_owned())]);
        small.create(&Token::new("t"), &wanted).await.unwrap();
    }
    let found = small.find(&tags).await.unwrap();
    let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["web-0", "web-1", "web-2", "web-3", "web-4"]);
    // A provider that knows no account yet describes by id as well.
    let fresh = account.provider().await.page(2);
    let last = found.last().unwrap();
    assert_eq!(fresh.describe(&last.id).await.unwrap().as_ref(), Some(last));
}

#[tokio::test]
async fn a_load_balancer_of_moto_has_a_host_name_and_its_subnets() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let account = moto.account(None).await;
    let cloud = account.provider().await;
    let wanted = wanted("web", "u-1");
    let id = cloud.create(&Token::new("t"), &wanted).await.unwrap();
    let has = cloud.describe(&id).await.unwrap().unwrap();
    assert!(matches!(&has.address, Address::Host(name) if name.starts_with("web-")));
    let (_, subnet) = account.network().await;
    assert_eq!(has.fixed.subnet, Some(subnet));
    assert_eq!(has.fixed.address_type, AddressType::Intranet);
}

#[tokio::test]
async fn a_group_of_moto_is_found_again_and_takes_one_kind_of_servers() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let account = moto.account(None).await;
    let cloud = account.provider().await;
    let wanted = wanted("web", "u-1");
    let id = cloud.create(&Token::new("t"), &wanted).await.unwrap();
    let new = |targets| NewGroup {
        name: "k8s/80/tcp/u-1/c".to_owned(),
        protocol: Protocol::Tcp,
        targets,
    };
    let (instances, addresses) = (new(Targets::Instances), new(Targets::Addresses));
    let first = cloud.create_group(&id, &instances).await.unwrap();
    // The answer was lost.
    assert_eq!(cloud.create_group(&id, &instances).await.unwrap(), first);
    let second = cloud.create_group(&id, &addresses).await.unwrap();
    assert_ne!(first, second);
    let groups = cloud.groups(&id).await.unwrap();
    assert_eq!(groups.len(), 2);
    for group in groups {
        let kind = if group.id == first {
            Targets::Instances
        } else {
            Targets::Addresses
        };
        assert_eq!((group.targets, group.name), (Some(kind), new(kind).name));
    }
}

#[tokio::test]
async fn the_groups_of_a_load_balancer_that_was_deleted_by_hand_are_leftovers_and_no_others() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let account = moto.account(None).await;
    let cloud = account.provider().await;
    let new = NewGroup {
        name: "k8s/80/tcp/u-1/c".to_owned(),
        protocol: Protocol::Tcp,
        targets: Targets::Instances,
    };
    let token = Token::new("t");
    let kept = cloud.create(&token, &wanted("kept", "u-1")).await.unwrap();
    let gone = cloud.create(&token, &wanted("gone", "u-2")).await.unwrap();
    cloud.create_group(&kept, &new).await.unwrap();
    let left = cloud.create_group(&gone, &new).await.unwrap();
    // People have groups, too, and name them as they like.
    let (vpc, _) = account.network().await;
    let other = format!(
        "Action=CreateTargetGroup&Version=2015-12-01&Name=k8s-other&Protocol=TCP&Port=1&VpcId={vpc}"
    );
    account.raw("elasticloadbalancing", &other).await;
    assert_eq!(cloud.leftovers().await.unwrap(), [] as [String; 0]);
    let arn = account.arn_of("gone").await;
    let delete = format!("Action=DeleteLoadBalancer&Version=2015-12-01&LoadBalancerArn={arn}");
    account.raw("elasticloadbalancing", &delete).await;
    assert_eq!(cloud.leftovers().await.unwrap(), [&*left.0]);
    cloud.delete_leftover(&left.0).await.unwrap();
    cloud.delete_leftover(&left.0).await.unwrap();
    assert_eq!(account.target_groups().await, 2);
    assert_eq!(cloud.leftovers().await.unwrap(), [] as [String; 0]);
}

#[tokio::test]
async fn what_only_this_cloud_refuses_is_invalid_at_moto() {
    let Some(moto) = Moto::start().await else {
        return;
    };
    let account = moto.account(None).await;
    let cloud = account.provider().await;
    let token = Token::new("t");
    let mut ipv6 = wanted("six", "u-6");
    ipv6.fixed.ip_version = IpVersion::Ipv6;
    let mut lost = wanted("lost", "u-1");
    lost.fixed.subnet = Some("subnet-none".to_owned());
    for wanted in [ipv6, lost] {
        let error = cloud.create(&token, &wanted).await.unwrap_err();
        assert_eq!(error.kind, Kind::Invalid, "{error}");
    }
    let first = cloud.create(&token, &wanted("web", "u-1")).await;
    assert!(first.is_ok(), "{first:?}");
    let taken = cloud.create(&token, &wanted("web", "u-2")).await;
    let taken = taken.unwrap_err();
    assert_eq!(taken.kind, Kind::Duplicate);
    assert!(taken.message.contains("lb.reeve.dev/name"), "{taken}");
}

#[tokio::test]
async fn an_endpoint_is_trusted_by_the_authorities_that_are_given() {
    let api = ApiServer::builder().start().await.unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let serving = api.serve_tls(any).await.unwrap();
    let authority = serving.certificate_authority().unwrap();
    let error = async |authorities: Option<&[u8]>| {
        let place = Place {
            endpoint: serving.url(),
            region: REGION.to_owned(),
            vpc: "vpc-1".to_owned(),
            subnets: vec!["subnet-1".to_owned()],
        };
        let keys = Source::Given(Keys {
            id: "id".to_owned(),
            secret: "secret".to_owned(),
            token: None,
        });
        let within = Duration::from_secs(1);
        let cloud = Elbv2::new(place, keys, authorities, within, Clock::system()).unwrap();
        cloud.find(&Tags::new()).await.unwrap_err()
    };
    // Another server answers: it is none of this API, and the connection is good.
    let answered = error(Some(authority.as_bytes())).await;
    assert!(answered.code.starts_with("Status4"), "{answered}");
    let refused = error(None).await;
    assert_eq!(refused.kind, Kind::Unavailable);
    assert!(refused.message.contains("certificate"), "{refused}");
}
