//! A few blocks, from their creation to their end, printed and checked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ipblock_simulator::Operation;
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Error;
use super::cluster::{ALLOWLISTED, Cluster};
use super::narrator::Narrator;
use super::watcher::{Blocks, Watcher, message_of};
use crate::api::{IPBlock, IPBlockSpec};
use crate::outbound::{AddressPolicy, Http, Outbound};

/// How long a step may take. They take milliseconds; machines differ.
const SOON: Duration = Duration::from_secs(5);

/// How long the ban lasts that is left to expire.
const SHORT: u64 = 5;

/// The parts of the demonstration, and what they tell.
struct Demo<'a> {
    cluster: &'a Cluster,
    narrator: Narrator,
    watcher: Watcher,
    blocks: Api<IPBlock>,
    /// What the gateway should block now.
    blocked: BTreeSet<String>,
}

/// Walks through all of it.
pub(super) async fn run(cluster: &Cluster, narrator: Narrator) -> Result<(), Error> {
    narrator.print("The IPBlock operator, an API server and a simulated gateway, in one process.");
    narrator
        .print("Each line below is something that really happened, with the time since the start.");
    let watcher = Watcher::start(cluster.blocks(), narrator.clone())
        .await
        .map_err(|error| failed("watching the blocks", error))?;
    let mut demo = Demo {
        cluster,
        narrator: narrator.clone(),
        watcher,
        blocks: cluster.blocks(),
        blocked: BTreeSet::new(),
    };
    demo.walk().await?;
    narrator.conclude();
    let (broken, all) = narrator.result();
    if broken > 0 {
        return Err(Error::Demo { broken, all });
    }
    narrator.print("Try it yourself: run `ipblock-operator dev` and follow what it prints.");
    Ok(())
}

// === impl Demo ===

impl Demo<'_> {
    async fn walk(&mut self) -> Result<(), Error> {
        // Blocks of an earlier run, when there is a data directory.
        self.clean_up().await?;
        let short = self.ban_for_a_while().await?;
        self.ban_a_network_and_ipv6().await?;
        self.leave_the_allowlisted_alone().await?;
        self.refuse_nonsense().await?;
        self.take_an_alert().await?;
        self.edit().await?;
        self.survive_a_gateway_that_is_gone().await?;
        self.unblock().await?;
        self.delete().await?;
        self.expire(short).await
    }

    /// Returns when the ban began.
    async fn ban_for_a_while(&mut self) -> Result<Instant, Error> {
        self.narrator
            .chapter(&format!("Ban an address for {SHORT} seconds"));
        self.narrator.command(
            "kubectl create -f scanner.yaml   # ip: 192.0.2.7, duration: 5s, reason: port scan",
        );
        let spec = spec("192.0.2.7", Some(&format!("{SHORT}s")), "port scan");
        self.create("scanner", spec).await?;
        let active = self.watcher.phase("scanner", "active", SOON).await;
        let began = Instant::now();
        self.narrator.expect("scanner is active", active);
        self.blocked.insert("192.0.2.7".into());
        self.gateway_agrees().await;
        Ok(began)
    }

    async fn ban_a_network_and_ipv6(&mut self) -> Result<(), Error> {
        self.narrator
            .chapter("Ban an IPv6 address and a whole network, for an hour");
        self.create(
            "crawler",
            spec("2001:0DB8::0bad", Some("1h"), "crawls too fast"),
        )
        .await?;
        self.create("botnet", spec("198.51.100.0/24", Some("1h"), "botnet"))
            .await?;
        for name in ["crawler", "botnet"] {
            let active = self.watcher.phase(name, "active", SOON).await;
            self.narrator.expect(&format!("{name} is active"), active);
        }
        let target = self
            .watcher
            .get("crawler")
            .and_then(|block| block.status.clone()?.target);
        self.narrator.expect(
            "2001:0DB8::0bad is banned in its canonical form, 2001:db8::bad",
            target.as_deref() == Some("2001:db8::bad"),
        );
        self.blocked
            .extend(["2001:db8::bad".to_owned(), "198.51.100.0/24".to_owned()]);
        self.gateway_agrees().await;
        Ok(())
    }

    async fn leave_the_allowlisted_alone(&mut self) -> Result<(), Error> {
        self.narrator.chapter(&format!(
            "Try to ban {ALLOWLISTED}, which is on the allowlist"
        ));
        self.create(
            "colleague",
            spec(ALLOWLISTED, Some("1h"), "looks like an attack"),
        )
        .await?;
        let skipped = self.watcher.phase("colleague", "skipped", SOON).await;
        self.narrator.expect("colleague is skipped", skipped);
        self.create(
            "neighbours",
            spec("203.0.113.0/24", Some("1h"), "the whole network"),
        )
        .await?;
        let skipped = self.watcher.phase("neighbours", "skipped", SOON).await;
        self.narrator
            .expect("a network around it is skipped too", skipped);
        self.gateway_agrees().await;
        Ok(())
    }

    async fn refuse_nonsense(&mut self) -> Result<(), Error> {
        self.narrator.chapter("Request bans of nonsense");
        for (name, spec, field) in [
            ("hostname", spec("example.com", Some("1h"), "?"), "spec.ip"),
            (
                "negative",
                spec("192.0.2.8", Some("-5m"), "?"),
                "spec.duration",
            ),
        ] {
            let refused = match self.make(name, spec).await {
                Err(kube_client::Error::Api(status)) => {
                    self.narrator.happened(&status.message);
                    status.code == 422 && status.message.contains(field)
                }
                Err(other) => return Err(failed("creating a block", other)),
                Ok(_) => false,
            };
            self.narrator.expect(
                &format!("the API server refuses it and names {field}"),
                refused,
            );
        }
        self.gateway_agrees().await;
        Ok(())
    }

    async fn take_an_alert(&mut self) -> Result<(), Error> {
        self.narrator
            .chapter("Grafana sends an alert about 203.0.113.99");
        let url = self.cluster.trigger_url();
        self.narrator.command(&format!(
            "curl -H 'Authorization: Bearer …' {url} -d '{{\"alerts\":[…]}}'"
        ));
        let refused = self.post_alert("wrong").await;
        self.narrator.expect(
            "a request with a wrong token is answered with 401",
            refused == Some(401),
        );
        let token = std::fs::read_to_string(self.cluster.token_file())?;
        let accepted = self.post_alert(token.trim()).await;
        self.narrator.expect(
            "with the right one with 200, once the object is written",
            accepted == Some(200),
        );
        let name = "203.0.113.99"
            .parse::<crate::target::Target>()
            .map(|target| target.object_name())
            .unwrap_or_default();
        let active = self.watcher.phase(&name, "active", SOON).await;
        self.narrator.expect(
            &format!("{name}, named after the address, is active"),
            active,
        );
        self.blocked.insert("203.0.113.99".into());
        self.gateway_agrees().await;
        Ok(())
    }

    async fn edit(&mut self) -> Result<(), Error> {
        self.narrator
            .chapter("Edit: a better reason, then twice the time");
        let calls = self.ban_calls();
        self.narrator.command("kubectl patch ipb botnet --type merge -p '{\"spec\":{\"reason\":\"botnet, see INC-42\"}}'");
        self.patch(
            "botnet",
            json!({ "spec": { "reason": "botnet, see INC-42" } }),
        )
        .await?;
        let seen = self
            .watcher
            .until(SOON, |blocks| {
                blocks.get("botnet").is_some_and(|block| {
                    let observed = block
                        .status
                        .as_ref()
                        .and_then(|status| status.observed_generation);
                    observed == block.metadata.generation && block.metadata.generation > Some(1)
                })
            })
            .await;
        self.narrator.expect(
            "another reason bans nothing again",
            seen && self.ban_calls() == calls,
        );

        let before = self.expires_at("botnet");
        self.narrator
            .command("kubectl patch ipb botnet --type merge -p '{\"spec\":{\"duration\":\"2h\"}}'");
        self.patch("botnet", json!({ "spec": { "duration": "2h" } }))
            .await?;
        let moved = self
            .watcher
            .until(SOON, |blocks| {
                let after = blocks
                    .get("botnet")
                    .and_then(|block| block.status.as_ref()?.expires_at());
                match (before, after) {
                    (Some(before), Some(after)) => after.duration_since(before).as_secs() == 3600,
                    _ => false,
                }
            })
            .await;
        self.narrator
            .expect("its end moves by one hour, counted from the ban", moved);
        self.narrator.expect(
            "and the gateway gets the remaining time",
            self.ban_calls() > calls,
        );
        self.gateway_agrees().await;
        Ok(())
    }

    async fn survive_a_gateway_that_is_gone(&mut self) -> Result<(), Error> {
        self.narrator
            .chapter("The gateway goes away, and a ban is requested");
        self.cluster.gateway().refuse().await;
        self.narrator.happened("the gateway's port is closed");
        self.create(
            "latecomer",
            spec("192.0.2.50", Some("1h"), "credential stuffing"),
        )
        .await?;
        let pending = self.watcher.phase("latecomer", "pending", SOON).await;
        self.narrator.expect("latecomer is pending", pending);
        let why = self
            .watcher
            .get("latecomer")
            .and_then(|block| message_of(&block));
        let named = why.is_some_and(|why| why.contains("connection refused"));
        self.narrator.expect("and its message has the cause", named);
        self.cluster.gateway().accept()?;
        self.narrator.happened("the gateway is back");
        let active = self.watcher.phase("latecomer", "active", SOON).await;
        self.narrator
            .expect("latecomer is active, without a further request", active);
        self.blocked.insert("192.0.2.50".into());
        self.gateway_agrees().await;
        Ok(())
    }

    async fn unblock(&mut self) -> Result<(), Error> {
        self.narrator.chapter("Lift a ban by hand");
        self.narrator
            .command("kubectl patch ipb crawler --type merge -p '{\"spec\":{\"unblock\":true}}'");
        self.patch("crawler", json!({ "spec": { "unblock": true } }))
            .await?;
        let expired = self.watcher.phase("crawler", "expired", SOON).await;
        self.narrator.expect("crawler is expired", expired);
        self.blocked.remove("2001:db8::bad");
        self.gateway_agrees().await;
        Ok(())
    }

    async fn delete(&mut self) -> Result<(), Error> {
        self.narrator.chapter("Delete a block whose ban stands");
        self.narrator.command("kubectl delete ipb botnet");
        let deleted = self.blocks.delete("botnet", &DeleteParams::default()).await;
        deleted.map_err(|error| failed("deleting a block", error))?;
        let gone = self
            .watcher
            .until(SOON, |blocks| !blocks.contains_key("botnet"))
            .await;
        self.narrator.expect("botnet is gone", gone);
        let lifted = !self
            .cluster
            .gateway()
            .targets()
            .contains(&"198.51.100.0/24".to_owned());
        self.narrator
            .expect("and was so only after its ban was lifted", lifted);
        self.blocked.remove("198.51.100.0/24");
        self.gateway_agrees().await;
        Ok(())
    }

    async fn expire(&mut self, began: Instant) -> Result<(), Error> {
        self.narrator.chapter("Wait for the first ban to end");
        let left = Duration::from_secs(SHORT).saturating_sub(began.elapsed());
        let expired = self.watcher.phase("scanner", "expired", left + SOON).await;
        self.narrator
            .expect("scanner is expired, by itself", expired);
        let late = self.watcher.get("scanner").and_then(|block| {
            let status = block.status.as_ref()?;
            let lifted: jiff::Timestamp = status.unblocked_at.as_deref()?.parse().ok()?;
            let due = status.blocked_at()? + Duration::from_secs(SHORT);
            Some(lifted.duration_since(due))
        });
        if let Some(late) = late {
            self.narrator.remark(&format!(
                "it was lifted {} ms after it was due",
                late.as_millis()
            ));
        }
        let in_time = late.is_some_and(|late| (0..1000).contains(&late.as_millis()));
        self.narrator
            .expect("not before its time, and within a second after it", in_time);
        self.blocked.remove("192.0.2.7");
        self.gateway_agrees().await;
        Ok(())
    }

    /// Prints the gateway's own list, and checks it.
    async fn gateway_agrees(&self) {
        let gateway = self.cluster.gateway();
        let blocked = || -> BTreeSet<String> { gateway.targets().into_iter().collect() };
        let agrees = async {
            while blocked() != self.blocked {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // The gateway is called before a status is written, so this holds at once or not at all.
        let agrees = tokio::time::timeout(Duration::from_millis(500), agrees)
            .await
            .is_ok();
        let now = blocked().into_iter().collect::<Vec<_>>().join(", ");
        let now = if now.is_empty() {
            "nothing".to_owned()
        } else {
            now
        };
        self.narrator
            .expect(&format!("the gateway blocks {now}"), agrees);
        if !agrees {
            let wanted: Vec<&str> = self.blocked.iter().map(String::as_str).collect();
            self.narrator
                .remark(&format!("it should block {}", wanted.join(", ")));
        }
    }

    /// How often the gateway was called for a ban.
    fn ban_calls(&self) -> usize {
        let calls = self.cluster.gateway().calls();
        calls
            .iter()
            .filter(|call| call.operation == Operation::Ban)
            .count()
    }

    fn expires_at(&self, name: &str) -> Option<jiff::Timestamp> {
        self.watcher.get(name)?.status.as_ref()?.expires_at()
    }

    /// The status of the answer to an alert that shows `token`.
    async fn post_alert(&self, token: &str) -> Option<u16> {
        let policy = AddressPolicy {
            allow_loopback: true,
        };
        let http: Arc<dyn Outbound> = Arc::new(Http::builder().policy(policy).build().ok()?);
        let body = json!({
            "status": "firing",
            "alerts": [{
                "status": "firing",
                "labels": { "alertname": "LoginAttempts", "ip": "203.0.113.99", "duration": "2m" },
                "annotations": { "description": "200 failed logins in a minute" },
            }],
        });
        let request = http::Request::post(self.cluster.trigger_url())
            .header(http::header::AUTHORIZATION, format!("Bearer {token}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Bytes::from(body.to_string()))
            .ok()?;
        let answer = http.send(request).await.ok()?;
        let status = answer.status().as_u16();
        let text = String::from_utf8_lossy(answer.body()).trim().to_owned();
        self.narrator
            .happened(&format!("the trigger answers {status}: {text}"));
        Some(status)
    }

    async fn make(&self, name: &str, spec: IPBlockSpec) -> Result<IPBlock, kube_client::Error> {
        let block = IPBlock::new(name, spec);
        self.blocks.create(&PostParams::default(), &block).await
    }

    async fn create(&self, name: &str, spec: IPBlockSpec) -> Result<(), Error> {
        let made = self.make(name, spec).await;
        made.map(drop)
            .map_err(|error| failed("creating a block", error))
    }

    async fn patch(&self, name: &str, patch: Value) -> Result<(), Error> {
        let patched = self
            .blocks
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched
            .map(drop)
            .map_err(|error| failed("changing a block", error))
    }

    async fn clean_up(&self) -> Result<(), Error> {
        let all = self
            .blocks
            .delete_collection(
                &DeleteParams::default(),
                &kube_client::api::ListParams::default(),
            )
            .await;
        all.map_err(|error| failed("deleting the blocks of an earlier run", error))?;
        self.watcher.until(SOON, Blocks::is_empty).await;
        Ok(())
    }
}

fn spec(ip: &str, duration: Option<&str>, reason: &str) -> IPBlockSpec {
    IPBlockSpec {
        ip: ip.to_owned(),
        duration: duration.map(str::to_owned),
        reason: Some(reason.to_owned()),
        source: Some("demo".to_owned()),
        ..IPBlockSpec::default()
    }
}

fn failed(what: &str, source: kube_client::Error) -> Error {
    Error::Request {
        what: what.to_owned(),
        source: Box::new(source),
    }
}
