//! The README says what the program does.

use cloud_loadbalancer::Settings;
use cloud_loadbalancer::commands::{Objects, annotations, key};
use cloud_loadbalancer::dev::Dev;
use cloud_loadbalancer::provider::memory::Cloud;
use reeve_clock::Clock;

const README: &str = include_str!("../../README.md");

/// The block of text that begins with this line.
fn block(first: &str) -> &'static str {
    let begin = README.find(&format!("```text\n{first}"));
    let rest = &README[begin.unwrap_or_else(|| panic!("a block with {first:?}")) + 8..];
    &rest[..rest.find("```").unwrap()]
}

#[tokio::test(start_paused = true)]
async fn the_plan_is_the_one_that_the_command_prints() {
    let key = key("shop/web");
    let objects = Objects::read(&key, include_str!("../../shop.yaml")).unwrap();
    let settings = Settings::new("shop-1".parse().unwrap());
    let plan = objects.plan(&Cloud::default(), &settings).await.unwrap();
    assert_eq!(plan, block("Service shop/web"));
}

#[test]
fn the_table_of_annotations_is_the_one_that_the_command_prints() {
    assert!(README.contains(&annotations()), "run `ccm annotations`");
}

#[test]
fn the_tour_is_the_one_that_the_command_shows() {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
    let mut shown = Vec::new();
    runtime.block_on(async {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap(), 1);
        let mut dev = Dev::start(clock, &mut shown).await.unwrap();
        dev.run(Dev::tour).await.unwrap();
    });
    let shown = String::from_utf8(shown).unwrap();
    let begin = shown.find("cloud: create a").unwrap() + "cloud: create a".len();
    let end = begin + shown[begin..].find('\n').unwrap();
    assert_eq!(end - begin, 31, "the name is made of the uid");
    let shown = format!("{}…{}", &shown[..begin], &shown[end..]);
    assert_eq!(shown, block("# A Service of type LoadBalancer"));
}

#[test]
fn a_file_without_the_service_and_a_broken_one_are_errors() {
    let missing = Objects::read(&key("web"), "kind: Node\nmetadata: {name: a}").unwrap_err();
    assert_eq!(missing.to_string(), "there is no Service default/web");
    let broken = Objects::read(&key("web"), "kind: Node\n---\nkind: [").unwrap_err();
    assert!(broken.to_string().starts_with("document 2: "), "{broken}");
    let list = "kind: List\nitems: [{kind: Service, metadata: {name: web}}]";
    assert!(Objects::read(&key("web"), list).is_ok());
}

#[test]
fn every_defect_has_its_test() {
    let tests = [
        include_str!("defects.rs"),
        include_str!("../../src/hash.rs"),
    ];
    for line in README.lines().filter(|line| line.starts_with("| B")) {
        let name = line.rsplit('`').nth(1).unwrap();
        let function = format!("fn {name}(");
        assert!(tests.iter().any(|text| text.contains(&function)), "{name}");
    }
}

#[test]
fn the_actions_of_elastic_load_balancing_are_those_that_the_provider_calls() {
    let sources = [
        include_str!("../../src/provider/elbv2.rs"),
        include_str!("../../src/provider/elbv2/balancers.rs"),
        include_str!("../../src/provider/elbv2/groups.rs"),
        include_str!("../../src/provider/elbv2/listeners.rs"),
    ];
    let mut called = std::collections::BTreeSet::new();
    for source in sources {
        let code = source.split("mod tests {").next().unwrap();
        for begin in ["Call::new(\"", "targets(\""] {
            let calls = code.split(begin).skip(1);
            called.extend(calls.map(|call| call.split('"').next().unwrap()));
        }
    }
    let listed: Vec<_> = block("elasticloadbalancing:")
        .lines()
        .map(|line| line.strip_prefix("elasticloadbalancing:").unwrap())
        .collect();
    assert!(called.len() > 15 && called.into_iter().eq(listed));
}
