//! Options and the identity of a process.

use std::time::Duration;

use reeve_fake::clock;

use super::fixture::Fixture;
use crate::options::identity_by;
use crate::{Error, Fence, Options};

#[test]
fn options_that_do_not_fit_together_are_refused() {
    let good = || Options::new("ns", "lock").identity("me");
    let seconds = Duration::from_secs;
    assert_eq!(good().validate(), Ok(()));
    assert_eq!(Options::new("ns", "lock").validate(), Ok(()));
    let unnamed = Options::new("ns", "lock").identity("");
    assert_eq!(unnamed.validate(), Err(Error::NoIdentity));
    assert_eq!(
        Options::new("", "lock").identity("me").validate(),
        Err(Error::NoName)
    );
    assert!(matches!(
        good().lease_duration(seconds(10)).validate(),
        Err(Error::LeaseTooShort { .. })
    ));
    assert!(matches!(
        good().retry_period(seconds(9)).validate(),
        Err(Error::DeadlineTooShort { .. })
    ));
    assert_eq!(
        good().retry_period(Duration::ZERO).validate(),
        Err(Error::NoRetryPeriod)
    );
    for lease in [Duration::ZERO, Duration::from_millis(15_500)] {
        let refused = Err(Error::NotWholeSeconds { lease });
        assert_eq!(good().lease_duration(lease).validate(), refused);
    }
}

#[tokio::test(start_paused = true)]
async fn times_may_be_as_long_as_they_can_be() {
    let good = || Options::new("ns", "lock").identity("me");
    let both = good().lease_duration(Duration::MAX);
    let both = both.renew_deadline(Duration::MAX);
    assert!(matches!(both.validate(), Err(Error::LeaseTooShort { .. })));
    let retry = good().retry_period(Duration::MAX).validate();
    assert!(matches!(retry, Err(Error::DeadlineTooShort { .. })));

    let fixture = Fixture::new();
    let day = Duration::from_secs(86_400);
    let options = good().lease_duration(Duration::MAX);
    let options = options.renew_deadline(day * 9000);
    let options = options.retry_period(day * 7000);
    assert_eq!(options.validate(), Ok(()));
    let mut one = fixture.candidate_with(&fixture.clock, options);
    one.elector.acquire().await;
    assert!(one.fence.is_open());
    assert!(one.keeps(day * 400).await && one.fence.is_open());

    let fence = Fence::closed(fixture.clock);
    fence.renewed(day, Duration::MAX, Duration::MAX);
    assert!(fence.is_open() && !fence.is_overdue(Duration::MAX));
}

#[test]
fn the_identity_is_the_name_of_the_pod_or_else_the_host_and_something_random() {
    let clock = clock();
    let identity = |pod: Option<&str>, host: Option<&str>| {
        let look_up = |name: &str| match name {
            "POD_NAME" => pod.map(str::to_owned),
            "HOSTNAME" => host.map(str::to_owned),
            _ => None,
        };
        identity_by(look_up, &clock)
    };
    assert_eq!(identity(Some("web-0"), Some("node")), "web-0");
    for (pod, host, start) in [
        (None, Some("node"), "node_"),
        (Some(""), Some("node"), "node_"),
        (None, None, "local_"),
        (None, Some(""), "local_"),
    ] {
        let (one, two) = (identity(pod, host), identity(pod, host));
        assert_ne!(one, two, "two processes on one host");
        let random = one.strip_prefix(start).expect(start);
        let hex = |digit: char| digit.is_ascii_hexdigit();
        assert!(random.len() == 16 && random.chars().all(hex), "{one}");
    }
}

#[tokio::test]
async fn a_client_whose_writes_are_not_stored_holds_no_lease() {
    let fixture = Fixture::new();
    let client = reeve_client::Client::new(fixture.fake.client()).dry_run();
    let options = Options::new("ns", "lock").identity("me");
    let refused = crate::Elector::new(client, options, clock());
    assert_eq!(refused.err(), Some(Error::DryRun));
}

#[tokio::test(start_paused = true)]
async fn the_lease_may_be_in_another_namespace_than_that_of_the_client() {
    let fixture = Fixture::new();
    let client = reeve_client::Client::new(fixture.fake.client()).in_namespace("another");
    let options = Options::new("ns", "lock").identity("me");
    let mut elector = crate::Elector::new(client, options, clock()).unwrap();
    let acquired = tokio::time::timeout(Duration::from_secs(30), elector.acquire());
    acquired.await.unwrap();
    assert_eq!(fixture.spec()["holderIdentity"], "me");
}
