use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::*;

mod certificates;
mod histories;

struct World {
    cloud: Cloud,
    now: Timestamp,
}

impl World {
    fn new(rules: Rules) -> Self {
        let now = Timestamp::UNIX_EPOCH;
        let cloud = Cloud::new(rules, State::default());
        Self { cloud, now }
    }

    fn pass(&mut self, millis: i64) {
        self.now += SignedDuration::from_millis(millis);
    }

    fn try_call(&mut self, call: &Parameters) -> Result<Map<String, Value>, Refusal> {
        self.cloud.call(self.now, call)
    }

    fn call(&mut self, call: &Parameters) -> Map<String, Value> {
        self.try_call(call)
            .unwrap_or_else(|refusal| panic!("{call:?}: {refusal}"))
    }

    fn refused(&mut self, call: &Parameters) -> String {
        let before = self.cloud.state().clone();
        let refusal = self.try_call(call).expect_err("a refusal");
        assert_eq!(self.cloud.state(), &before, "a refusal changed the state");
        refusal.code
    }

    /// A load balancer that accepts edits and is seen by searches.
    fn ready(&mut self) -> String {
        let id = id(&self.call(&create()));
        self.pass(1_000);
        id
    }

    fn group(&mut self, balancer: &str) -> String {
        let call = Parameters::action("CreateVServerGroup").with("LoadBalancerId", balancer);
        text(&self.call(&call), "VServerGroupId")
    }

    fn found(&mut self, search: &Parameters) -> Vec<String> {
        let answer = self.call(search);
        let list = answer["LoadBalancers"]["LoadBalancer"].as_array().unwrap();
        let id = |one: &Value| one["LoadBalancerId"].as_str().unwrap().to_owned();
        list.iter().map(id).collect()
    }
}

fn text(answer: &Map<String, Value>, name: &str) -> String {
    answer[name].as_str().unwrap().to_owned()
}

fn id(answer: &Map<String, Value>) -> String {
    text(answer, "LoadBalancerId")
}

fn create() -> Parameters {
    Parameters::action("CreateLoadBalancer")
}

fn delete(id: &str) -> Parameters {
    Parameters::action("DeleteLoadBalancer").with("LoadBalancerId", id)
}

fn search() -> Parameters {
    Parameters::action("DescribeLoadBalancers")
}

fn listener(action: &str, id: &str, port: u16) -> Parameters {
    Parameters::action(action)
        .with("LoadBalancerId", id)
        .with("ListenerPort", port)
        .with("BackendServerPort", 8080)
}

fn backends(count: usize) -> String {
    let one = |n: usize| json!({ "ServerId": format!("i-{n}"), "Port": "80", "Weight": 100, "Type": "eni", "ServerIp": "127.88.0.1" });
    Value::Array((0..count).map(one).collect()).to_string()
}

#[test]
fn a_creation_with_a_token_happens_once_a_day() {
    let mut world = World::new(Rules::default());
    let call = create()
        .with("ClientToken", "one")
        .with("LoadBalancerName", "a");
    let first = world.call(&call);
    world.pass(1_000);
    assert_eq!(world.call(&call), first);
    assert_eq!(world.cloud.state().balancers.len(), 1);
    // The answer is repeated even when the load balancer is gone.
    world.call(&delete(&id(&first)));
    assert_eq!(world.call(&call), first);
    assert_eq!(world.cloud.state().balancers.len(), 0);
    world.pass(24 * 3_600_000);
    assert_ne!(world.call(&call), first);
}

#[test]
fn a_token_with_other_parameters_is_refused() {
    let mut world = World::new(Rules::default());
    let call = create().with("ClientToken", "one");
    world.call(&call.clone().with("LoadBalancerName", "a"));
    let code = world.refused(&call.clone().with("LoadBalancerName", "b"));
    assert_eq!(code, "IdempotentParameterMismatch");
    // What the protocol adds is not part of it.
    let again = call
        .with("LoadBalancerName", "a")
        .with("SignatureNonce", "x");
    world.call(&again);
}

#[test]
fn a_refused_call_does_not_use_its_token_up() {
    let mut world = World::new(Rules::default());
    let call = create().with("ClientToken", "one");
    world.refused(&call.clone().with("Bandwidth", "much"));
    world.call(&call.with("Bandwidth", 5));
}

#[test]
fn a_token_is_at_most_64_ascii_characters() {
    let mut world = World::new(Rules::default());
    world.call(&create().with("ClientToken", "x".repeat(64)));
    for token in ["x".repeat(65), "é".to_owned()] {
        let code = world.refused(&create().with("ClientToken", token));
        assert_eq!(code, "InvalidParameter");
    }
}

#[test]
fn tokens_are_bounded() {
    let rules = Rules {
        tokens: 2,
        ..Rules::default()
    };
    let mut world = World::new(rules);
    world.call(&create().with("ClientToken", "1"));
    world.call(&create().with("ClientToken", "2"));
    let third = create().with("ClientToken", "3");
    assert_eq!(world.refused(&third), "Throttling.User");
    world.pass(24 * 3_600_000);
    world.call(&third);
}

#[test]
fn names_may_be_taken_twice_unless_the_rules_forbid_it() {
    let call = create().with("LoadBalancerName", "a");
    let mut world = World::new(Rules::default());
    world.call(&call);
    world.call(&call);
    let rules = Rules {
        unique_names: true,
        ..Rules::default()
    };
    let mut world = World::new(rules);
    let first = id(&world.call(&call));
    assert_eq!(world.refused(&call), "DuplicateLoadBalancerName");
    let second = world.ready();
    let rename = Parameters::action("SetLoadBalancerName").with("LoadBalancerName", "a");
    let code = world.refused(&rename.clone().with("LoadBalancerId", second));
    assert_eq!(code, "DuplicateLoadBalancerName");
    world.call(&rename.with("LoadBalancerId", first));
}

#[test]
fn a_port_has_one_tcp_and_one_udp_listener() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    world.call(&listener("CreateLoadBalancerTCPListener", &lb, 53));
    let http = listener("CreateLoadBalancerHTTPListener", &lb, 53);
    assert_eq!(world.refused(&http), "ListenerAlreadyExists");
    world.call(&listener("CreateLoadBalancerUDPListener", &lb, 53));
    let start = Parameters::action("StartLoadBalancerListener")
        .with("LoadBalancerId", &lb)
        .with("ListenerPort", 53)
        .with("ListenerProtocol", "udp");
    world.call(&start);
    let running: Vec<bool> = world.cloud.state().balancers[&lb]
        .listeners
        .iter()
        .map(|listener| listener.running)
        .collect();
    assert_eq!(running, [false, true]);
}

#[test]
fn a_protected_load_balancer_is_not_deleted() {
    let mut world = World::new(Rules::default());
    let lb = id(&world.call(&create().with("DeleteProtection", "on")));
    world.pass(1_000);
    let code = world.refused(&delete(&lb));
    assert_eq!(code, "OperationDenied.DeleteProtectionIsOn");
    let off = Parameters::action("SetLoadBalancerDeleteProtection")
        .with("LoadBalancerId", &lb)
        .with("DeleteProtection", "off");
    world.call(&off);
    world.call(&delete(&lb));
    assert_eq!(
        world.refused(&delete(&lb)),
        "InvalidLoadBalancerId.NotFound"
    );
}

#[test]
fn a_new_load_balancer_refuses_edits_until_it_is_ready() {
    let mut world = World::new(Rules::default());
    let lb = id(&world.call(&create()));
    let describe = Parameters::action("DescribeLoadBalancerAttribute").with("LoadBalancerId", &lb);
    assert_eq!(world.call(&describe)["LoadBalancerStatus"], "inactive");
    let edit = listener("CreateLoadBalancerTCPListener", &lb, 80);
    assert_eq!(world.refused(&edit), "ServiceIsConfiguring");
    assert_eq!(world.refused(&delete(&lb)), "ServiceIsConfiguring");
    world.pass(200);
    assert_eq!(world.call(&describe)["LoadBalancerStatus"], "active");
    world.call(&edit);
}

#[test]
fn listeners_and_groups_are_busy_after_an_edit() {
    let rules = Rules {
        settle: SignedDuration::from_secs(1),
        ..Rules::default()
    };
    let mut world = World::new(rules);
    let lb = world.ready();
    world.call(&listener("CreateLoadBalancerTCPListener", &lb, 80));
    let start = Parameters::action("StartLoadBalancerListener")
        .with("LoadBalancerId", &lb)
        .with("ListenerPort", 80);
    let code = world.refused(&start);
    assert_eq!(code, "OperationFailed.ListenerStatusNotSupport");
    world.pass(1_000);
    world.call(&start);
    let group = world.group(&lb);
    let add = Parameters::action("AddVServerGroupBackendServers")
        .with("VServerGroupId", group)
        .with("BackendServers", backends(1));
    assert_eq!(world.refused(&add), "BackendServer.configuring");
    world.pass(1_000);
    world.call(&add);
}

#[test]
fn searches_lag_behind_and_descriptions_do_not() {
    let mut world = World::new(Rules::default());
    let lb = id(&world.call(&create().with("Tag.1.Key", "k").with("Tag.1.Value", "v")));
    let by_tag = search().with("Tags", r#"[{"TagKey":"k","TagValue":"v"}]"#);
    world.pass(499);
    assert!(world.found(&by_tag).is_empty());
    assert!(world.found(&search()).is_empty());
    assert_eq!(
        world.found(&search().with("LoadBalancerId", &lb)),
        [lb.as_str()]
    );
    world.pass(1);
    assert_eq!(world.found(&by_tag), [lb.as_str()]);
    // A tag that is set again with the same value does not vanish.
    let mut tag = Parameters::action("TagResources")
        .with("ResourceType", "instance")
        .with("ResourceId.1", &lb);
    tag.set_tags([("k", "v"), ("new", "v")]);
    world.call(&tag);
    assert_eq!(world.found(&by_tag), [lb.as_str()]);
    let by_new = search().with("Tag.1.Key", "new");
    assert!(world.found(&by_new).is_empty());
    world.pass(500);
    assert_eq!(world.found(&by_new), [lb]);
}

#[test]
fn lists_come_in_pages() {
    let mut world = World::new(Rules::default());
    let all: Vec<String> = (0..7).map(|_| id(&world.call(&create()))).collect();
    world.pass(1_000);
    let page = |number: usize| search().with("PageSize", 3).with("PageNumber", number);
    assert_eq!(world.call(&page(1))["TotalCount"], 7);
    let found: Vec<String> = (1..=4)
        .flat_map(|number| world.found(&page(number)))
        .collect();
    assert_eq!(found, all);
    assert_eq!(
        world.refused(&search().with("PageSize", 101)),
        "InvalidParameter"
    );
}

#[test]
fn listeners_come_in_pages() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    for port in 1..=5 {
        world.call(&listener("CreateLoadBalancerTCPListener", &lb, port));
    }
    let mut ports = Vec::new();
    let mut next = String::new();
    for _ in 0..3 {
        let call = Parameters::action("DescribeLoadBalancerListeners")
            .with("LoadBalancerId.1", &lb)
            .with("MaxResults", 2)
            .with("NextToken", &next);
        let answer = world.call(&call);
        for one in answer["Listeners"].as_array().unwrap() {
            ports.push(one["ListenerPort"].as_u64().unwrap());
        }
        next = answer
            .get("NextToken")
            .map_or(String::new(), |next| next.as_str().unwrap().to_owned());
    }
    assert_eq!(ports, [1, 2, 3, 4, 5]);
    assert_eq!(next, "");
}

#[test]
fn a_call_names_at_most_forty_backends_and_a_group_holds_two_hundred() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    let group = world.group(&lb);
    let add = |backends: String| {
        Parameters::action("AddVServerGroupBackendServers")
            .with("VServerGroupId", &group)
            .with("BackendServers", backends)
    };
    assert_eq!(world.refused(&add(backends(41))), "TooManyBackendServers");
    for first in (0..200).step_by(40) {
        let some: Vec<Value> = (first..first + 40)
            .map(|n| json!({ "ServerId": format!("i-{n}"), "Port": 80, "Type": "eni", "ServerIp": "127.88.0.1" }))
            .collect();
        world.call(&add(Value::Array(some).to_string()));
    }
    let more = json!([{ "ServerId": "x", "Port": 80, "Type": "eni", "ServerIp": "127.88.0.1" }]);
    let code = world.refused(&add(more.to_string()));
    assert_eq!(code, "InstanceBackendServerNumberOverLimit");
}

#[test]
fn a_group_with_a_listener_is_not_deleted() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    let group = world.group(&lb);
    let create = listener("CreateLoadBalancerTCPListener", &lb, 80).with("VServerGroupId", &group);
    world.call(&create);
    let delete = Parameters::action("DeleteVServerGroup").with("VServerGroupId", &group);
    assert_eq!(world.refused(&delete), "RspoolVipExist");
    world.call(&listener("DeleteLoadBalancerListener", &lb, 80));
    world.call(&delete);
    assert_eq!(world.refused(&delete), "InvalidParameter");
}

#[test]
fn an_access_control_list_with_a_listener_is_not_deleted() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    let answer = world.call(&Parameters::action("CreateAccessControlList").with("AclName", "a"));
    let acl = text(&answer, "AclId");
    let entries = r#"[{"entry":"10.0.0.1/8","comment":"c"},{"entry":"127.0.0.1"}]"#;
    let add = Parameters::action("AddAccessControlListEntry")
        .with("AclId", &acl)
        .with("AclEntrys", entries);
    world.call(&add);
    assert_eq!(world.refused(&add), "Duplicate.AclEntry");
    let create = listener("CreateLoadBalancerTCPListener", &lb, 80)
        .with("AclStatus", "on")
        .with("AclType", "white")
        .with("AclId", &acl);
    world.call(&create);
    let state = world.cloud.state();
    let listener = &state.balancers[&lb].listeners[0];
    let access = state.access_of(listener);
    assert_eq!(access, Some((true, vec!["10.0.0.0/8", "127.0.0.1/32"])));
    let delete = Parameters::action("DeleteAccessControlList").with("AclId", &acl);
    assert_eq!(world.refused(&delete), "AclInUsed");
    world.call(&super::tests::delete(&lb));
    world.call(&delete);
    assert_eq!(world.refused(&delete), "AclNotExist");
}

#[test]
fn a_listener_needs_a_group_of_its_load_balancer_or_a_port() {
    let mut world = World::new(Rules::default());
    let (lb, other) = (world.ready(), world.ready());
    let foreign = world.group(&other);
    let create = Parameters::action("CreateLoadBalancerTCPListener")
        .with("LoadBalancerId", &lb)
        .with("ListenerPort", 80);
    assert_eq!(world.refused(&create), "MissingParameter");
    let code = world.refused(&create.with("VServerGroupId", foreign));
    assert_eq!(code, "InvalidParameter");
}

#[test]
fn a_setting_keeps_its_value_until_it_is_sent_again() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    let create = listener("CreateLoadBalancerHTTPListener", &lb, 80)
        .with("Scheduler", "wlc")
        .with("HealthCheckURI", "/live");
    world.call(&create);
    let set = listener("SetLoadBalancerHTTPListenerAttribute", &lb, 80);
    world.call(&set.clone().with("HealthCheckInterval", 7));
    let describe = listener("DescribeLoadBalancerHTTPListenerAttribute", &lb, 80);
    let shown = world.call(&describe);
    assert_eq!(shown["Scheduler"], "wlc");
    assert_eq!(shown["HealthCheckURI"], "/live");
    assert_eq!(shown["HealthCheckInterval"], 7);
    for (name, value) in [
        ("HealthCheckURI", "live"),
        ("HealthCheckURI", "/a b"),
        ("HealthCheckURI", "/a\tb"),
        ("HealthCheckURI", "/a\nserver x 10.0.0.1:80"),
        ("HealthCheckDomain", "a b"),
        ("HealthCheckDomain", "a%[src]"),
        ("Cookie", "a=b"),
        ("HealthCheckInterval", "51"),
        ("Scheduler", "best"),
        ("Description", "two\nlines"),
    ] {
        let code = world.refused(&set.clone().with(name, value));
        assert_eq!(code, "InvalidParameter", "{name}");
    }
    let tcp = listener("SetLoadBalancerTCPListenerAttribute", &lb, 80);
    assert_eq!(world.refused(&tcp), "InvalidParameter");
}

#[test]
fn a_listener_lets_go_of_its_list_and_of_its_check_port() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    let answer = world.call(&Parameters::action("CreateAccessControlList").with("AclName", "a"));
    let acl = text(&answer, "AclId");
    let create = listener("CreateLoadBalancerTCPListener", &lb, 80)
        .with("AclStatus", "on")
        .with("AclType", "black")
        .with("AclId", &acl)
        .with("HealthCheckConnectPort", 9000);
    world.call(&create);
    let off = listener("SetLoadBalancerTCPListenerAttribute", &lb, 80)
        .with("AclStatus", "off")
        .with("HealthCheckConnectPort", -520);
    world.call(&off);
    let settings = &world.cloud.state().balancers[&lb].listeners[0].settings;
    for name in ["AclId", "AclType", "HealthCheckConnectPort"] {
        assert!(!settings.contains_key(name), "{name}");
    }
    let delete = Parameters::action("DeleteAccessControlList").with("AclId", acl);
    world.call(&delete);
}

#[test]
fn an_instance_needs_an_address() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    let add = Parameters::action("AddBackendServers")
        .with("LoadBalancerId", &lb)
        .with("BackendServers", r#"[{"ServerId":"i-1","Weight":"100"}]"#);
    assert_eq!(world.refused(&add), "ObtainIpFail");
    world.cloud.set_instance("i-1", [127, 77, 0, 1].into());
    world.call(&add);
    let weight = Parameters::action("SetBackendServers")
        .with("LoadBalancerId", &lb)
        .with("BackendServers", r#"[{"ServerId":"i-1","Weight":7}]"#);
    let answer = world.call(&weight);
    assert_eq!(answer["BackendServers"]["BackendServer"][0]["Weight"], 7);
    let remove = Parameters::action("RemoveBackendServers")
        .with("LoadBalancerId", &lb)
        .with("BackendServers", r#"["i-1"]"#);
    world.call(&remove);
    assert!(world.cloud.state().balancers[&lb].backends.is_empty());
    let code = world.refused(&weight);
    assert_eq!(code, "InvalidBackendServers.NotFound");
}

#[test]
fn an_address_is_used_again_only_after_its_deletion() {
    let rules = Rules {
        addresses: "127.66.0.0/30".parse().unwrap(),
        ..Rules::default()
    };
    let mut world = World::new(rules);
    let one = world.ready();
    world.ready();
    assert_eq!(world.refused(&create()), "InsufficientIp");
    let address = world.cloud.state().balancers[&one].address;
    let same = create().with("Address", address);
    assert_eq!(world.refused(&same), "IpConflict");
    world.call(&delete(&one));
    world.call(&same);
    let outside = create().with("Address", "10.0.0.1");
    assert_eq!(world.refused(&outside), "InvalidParameter");
}

#[test]
fn a_partial_deletion_leaves_the_load_balancer_without_listeners() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    world.call(&listener("CreateLoadBalancerTCPListener", &lb, 80));
    world.cloud.delete_partially(&lb);
    assert!(world.cloud.state().balancers[&lb].listeners.is_empty());
    world.call(&delete(&lb));
}

#[test]
fn unknown_actions_are_refused() {
    let mut world = World::new(Rules::default());
    let code = world.refused(&Parameters::action("MakeCoffee"));
    assert_eq!(code, "InvalidAction.NotFound");
}

#[test]
fn texts_that_are_only_given_back_are_bounded() {
    let mut world = World::new(Rules::default());
    let lb = world.ready();
    let long = "x".repeat(257);
    let backend = |field: &str| {
        let mut backend = json!({ "ServerId": "e", "Type": "eni", "ServerIp": "127.88.0.1" });
        backend[field] = long.as_str().into();
        Value::Array(vec![backend]).to_string()
    };
    let add = Parameters::action("AddBackendServers").with("LoadBalancerId", &lb);
    let answer = world.call(&Parameters::action("CreateAccessControlList").with("AclName", "a"));
    let entry =
        Parameters::action("AddAccessControlListEntry").with("AclId", text(&answer, "AclId"));
    let entries = json!([{ "entry": "10.0.0.0/8", "comment": long }]);
    for call in [
        create().with("VpcId", &long),
        create().with("ModificationProtectionReason", &long),
        Parameters::action("CreateAccessControlList").with("AclName", &long),
        entry.with("AclEntrys", entries),
        add.clone().with("BackendServers", backend("Description")),
        add.with("BackendServers", backend("ServerId")),
    ] {
        assert_eq!(world.refused(&call), "InvalidParameter", "{call:?}");
    }
}
