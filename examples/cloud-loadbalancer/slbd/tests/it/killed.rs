//! `kill -9` of the cloud: what was answered is there afterwards.

use std::collections::BTreeSet;
use std::process::Command;

use crate::process::Cloud;
use slbd::client::{Created, Error};
use slbd::parameters::Parameters;

/// The calls that are answered in each life of the cloud before it is killed.
const ANSWERED: usize = 3;

#[tokio::test]
async fn what_was_answered_survives_a_kill() {
    let folder = std::env::temp_dir().join(format!("slbd-killed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("state.json");
    let mut answered = BTreeSet::new();
    let mut token = 0;
    for _ in 0..8 {
        let cloud = Cloud::start(&["--state", file.to_str().unwrap()]);
        let pid = cloud.child.id().to_string();
        let client = cloud.client();
        let found = client.balancers(Parameters::default()).await.unwrap();
        let found: BTreeSet<String> = found.into_iter().map(|one| one.load_balancer_id).collect();
        assert!(
            found.is_superset(&answered),
            "{found:?} lacks some of {answered:?}"
        );
        assert!(
            found.len() <= answered.len() + 1,
            "more than the one that was not answered"
        );
        // The call that was cut off is sent again with its token: no second load balancer.
        let create = |token: u64| {
            let call = Parameters::action("CreateLoadBalancer");
            call.with("ClientToken", format!("token-{token}"))
        };
        let again: Created = client.call(create(token)).await.unwrap();
        answered.insert(again.load_balancer_id);
        let now = client.balancers(Parameters::default()).await.unwrap();
        assert_eq!(now.len(), answered.len());
        // The signal is sent while calls go on, and arrives in the middle of one of them.
        let mut kill = None;
        for number in 0.. {
            if number == ANSWERED {
                let pid = pid.clone();
                let send = move || Command::new("kill").args(["-KILL", &pid]).status();
                kill = Some(tokio::task::spawn_blocking(send));
            }
            token += 1;
            match client.call::<Created>(create(token)).await {
                Ok(made) => answered.insert(made.load_balancer_id),
                Err(Error::Lost { .. }) => break,
                Err(error) => panic!("{error}"),
            };
        }
        let kill = kill.expect("the cloud answered until it was killed");
        assert!(kill.await.unwrap().unwrap().success());
    }
    std::fs::remove_dir_all(folder).unwrap();
}
