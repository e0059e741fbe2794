//! One look of a rotation: it reads the Secret and the configurations, has the machine decide, and performs the decision.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use reeve_client::{Error as ClientError, ObjectKey, optional};

use super::Rotation;
use crate::certificates::Notice;
use crate::certificates::contents::Id;
use crate::certificates::machine::{Bundle, Bundles, Decision, Found, Now, Write};
use crate::certificates::material::{Material, Problem, Terms};
use crate::certificates::targets::{Seen, Server};

/// Writes of one look: a first start has one, a restored Secret another.
const MOST_WRITES: usize = 4;

/// The label of the Secret, so that no other Secret is changed.
const LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "reeve-webhook");

/// The reason why a look failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("Secret {secret}: {problem}")]
    Content { secret: ObjectKey, problem: Problem },
    #[error(
        "Secret {0} has data and not the label {label}={value}: name another Secret, or delete it",
        label = LABEL.0, value = LABEL.1
    )]
    Foreign(ObjectKey),
    #[error("the certificate was refused: {0}")]
    Refused(#[from] reeve_serve::certificates::Error),
}

/// The Secret as it was read.
struct Read {
    /// The object, if it exists.
    object: Option<Secret>,
    found: Found,
    material: Option<Material>,
    problem: Option<Problem>,
}

// === impl Rotation ===

impl Rotation {
    /// Looks once, and does what there is to do.
    pub(super) async fn look(&mut self) {
        for _ in 0..MOST_WRITES {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => break,
                // Another replica was faster; its write is seen next.
                Err(Error::Client(error)) if error.is_conflict() || error.is_already_exists() => {}
                Err(error) => {
                    self.failed(&error.to_string());
                    break;
                }
            }
        }
        self.last_problems = std::mem::take(&mut self.problems);
        self.has_failed = false;
        self.warn_before_the_end();
    }

    /// One decision. Returns whether the Secret was written.
    async fn step(&mut self) -> Result<bool, Error> {
        // The configurations first: one that changes after that is not written with an older Secret.
        let (seen, bundles) = self.configurations().await;
        let read = self.read().await?;
        let now = Now {
            wall: self.clock.now(),
            elapsed: self.clock.since_boot(),
        };
        let decision = self
            .memory
            .decide(now, &read.found, &bundles, &self.lifetimes);
        if let Some(material) = &read.material
            && self.memory.known.as_ref() == Some(&material.contents)
        {
            self.known = Some(material.clone());
        }
        if decision.adopt {
            self.adopt()?;
        }
        self.show();
        if decision.inject {
            self.inject(&seen, read.material.as_ref()).await;
        }
        let Decision {
            write: Some(write), ..
        } = decision
        else {
            if let (Some(problem), None) = (&read.problem, &self.known) {
                let notice = Notice::Unusable(problem.to_string());
                self.once(&notice);
            }
            return Ok(false);
        };
        self.write(&write, &read, &seen, now.wall).await?;
        Ok(true)
    }

    /// Reads every configuration. One that cannot be read makes the bundles incomplete.
    async fn configurations(&mut self) -> (Vec<Seen>, Bundles) {
        let mut all = Vec::new();
        let mut complete = true;
        for target in self.targets.clone() {
            let server = Server {
                service: &self.service,
                names: &self.names,
            };
            match target.read(&self.client, server).await {
                Ok(Some(seen)) if !seen.entries.is_empty() => all.push(seen),
                Ok(_) => self.once(&Notice::NotFound(target.to_string())),
                Err(error) => {
                    complete = false;
                    self.failed(&error.to_string());
                }
            }
        }
        let entries = all.iter().flat_map(|seen| {
            seen.entries.iter().map(|entry| Bundle {
                configuration: seen.target().to_string(),
                authorities: entry.bundle.clone(),
            })
        });
        let entries = entries.collect();
        (all, Bundles { entries, complete })
    }

    async fn read(&self) -> Result<Read, Error> {
        let Some(object) = optional(self.client.get::<Secret>(&self.secret).await)? else {
            return Ok(Read {
                object: None,
                found: Found::Missing,
                material: None,
                problem: None,
            });
        };
        let mut data = object.data.clone().unwrap_or_default();
        // A Secret that was prepared may have its keys without values.
        data.retain(|_, value| !value.0.is_empty());
        let labels = object.metadata.labels.as_ref();
        let own = labels
            .and_then(|labels| labels.get(LABEL.0))
            .is_some_and(|value| value == LABEL.1);
        // Another tool may set the label back, as Helm does with its own.
        let own = own || Material::is_ours(&data);
        if !own && !data.is_empty() {
            return Err(Error::Foreign(self.secret.clone()));
        }
        let object = Some(object);
        if data.is_empty() {
            let (found, material, problem) = (Found::Unusable, None, None);
            return Ok(Read {
                object,
                found,
                material,
                problem,
            });
        }
        Ok(match Material::read(&data, &self.names) {
            Ok(material) => Read {
                object,
                found: Found::Contents(material.contents.clone()),
                material: Some(material),
                problem: None,
            },
            Err(problem) => Read {
                object,
                found: Found::Unusable,
                material: None,
                problem: Some(problem),
            },
        })
    }

    /// Serves the leaf of the known contents.
    fn adopt(&mut self) -> Result<(), Error> {
        let Some(known) = &self.known else {
            return Ok(());
        };
        let (leaf, key) = known.pair().map_err(|problem| self.content(problem))?;
        self.certificates.replace(vec![leaf], key)?;
        let expires = known.contents.leaf.expires;
        tracing::info!(secret = %self.secret, %expires, "another certificate is in use");
        Ok(())
    }

    /// Brings the bundle into the configurations. A configuration that changed meanwhile is read again at the next look.
    async fn inject(&mut self, seen: &[Seen], material: Option<&Material>) {
        let Some(material) = material else { return };
        let bundle: BTreeSet<Id> = material
            .contents
            .bundle
            .iter()
            .map(|authority| authority.id)
            .collect();
        let pem = material.bundle_pem();
        for seen in seen {
            match seen.inject(&self.client, &bundle, &pem).await {
                Ok(true) => self.record(&Notice::Injected(seen.target().to_string())),
                Ok(false) => {}
                Err(error) if error.is_conflict() => {}
                // A failed `test` of a JSON patch is a 422, too: then the configuration has another version now.
                Err(error) if error.is_invalid() && !seen.is_current(&self.client).await => {}
                Err(error) => self.failed(&error.to_string()),
            }
        }
    }

    async fn write(
        &mut self,
        write: &Write,
        read: &Read,
        seen: &[Seen],
        now: Timestamp,
    ) -> Result<(), Error> {
        let entries = seen.iter().flat_map(|seen| &seen.entries);
        let trusted = entries.flat_map(|entry| &entry.authorities);
        let trusted: Vec<_> = trusted.cloned().collect();
        let random = self.clock.random().next_u64();
        let next = Material::next(
            write,
            read.material.as_ref(),
            self.known.as_ref(),
            &Terms {
                names: &self.names,
                lifetimes: &self.lifetimes,
                trusted: &trusted,
            },
            now,
            random,
        );
        let next = next.map_err(|problem| self.content(problem))?;
        let exists = read.object.is_some();
        let mut secret = read.object.clone().unwrap_or_default();
        secret.metadata.name = Some(self.secret.name.to_string());
        secret.metadata.namespace = self.secret.namespace.as_deref().map(str::to_owned);
        // That of another tool stays.
        let labels = secret.metadata.labels.get_or_insert_default();
        let label = labels.entry(LABEL.0.to_owned());
        label.or_insert_with(|| LABEL.1.to_owned());
        // Keys of others stay.
        secret.data.get_or_insert_default().extend(next.data());
        // An update names the version that was read, so the slower of two replicas conflicts.
        if exists {
            self.client.update(&secret).await?;
        } else {
            self.client.create(&secret).await?;
        }
        let notice = match write {
            Write::Create => Notice::Created,
            Write::Confirm(..) => Notice::Confirmed,
            Write::Announce => Notice::Announced,
            Write::Issue => Notice::Issued,
            Write::Retire(_) => Notice::Retired,
            Write::Restore { .. } => Notice::Restored(match (&read.object, &read.problem) {
                (None, _) => "the Secret was deleted".to_owned(),
                (Some(_), Some(problem)) => format!("the Secret was damaged: {problem}"),
                (Some(_), None) if read.material.is_none() => "the Secret was emptied".to_owned(),
                (Some(_), None) => "the Secret was rolled back".to_owned(),
            }),
        };
        self.record(&notice);
        Ok(())
    }

    /// Shows ends and readiness.
    fn show(&self) {
        let served = self.memory.served;
        if let (Some(known), Some(leaf)) = (&self.memory.known, served) {
            let signer = known.authority(known.signer);
            self.metrics.show(
                leaf.expires,
                signer.map_or(leaf.expires, |signer| signer.expires),
            );
        }
        let mut status = self.status.lock();
        status.ready = self.memory.ready && self.certificates.is_loaded();
        if !status.ready && served.is_some() && !self.has_failed {
            "the configurations do not trust the certificate long enough yet"
                .clone_into(&mut status.problem);
        }
    }

    /// Warns once a day when the leaf in use has less than a sixth of its life left: it should have been replaced at a third.
    fn warn_before_the_end(&mut self) {
        let Some(leaf) = self.memory.served else {
            return;
        };
        let now = self.clock.now();
        let left = leaf.expires.duration_since(now);
        if left >= leaf.expires.duration_since(leaf.issued) / 6 {
            return;
        }
        let day = SignedDuration::from_hours(24);
        if self
            .warned
            .is_none_or(|warned| now.duration_since(warned) >= day || warned > now)
        {
            self.warned = Some(now);
            self.record(&Notice::ExpiresSoon(leaf.expires.to_string()));
        }
    }

    fn failed(&mut self, problem: &str) {
        self.has_failed = true;
        self.metrics.errors.inc();
        {
            let mut status = self.status.lock();
            problem.clone_into(&mut status.problem);
        }
        self.once(&Notice::Failed(problem.to_owned()));
    }

    /// Records a problem unless the last look had it, too.
    fn once(&mut self, notice: &Notice) {
        let text = notice.to_string();
        let again = self.last_problems.contains(&text);
        if self.problems.insert(text) && !again {
            self.record(notice);
        }
    }

    fn record(&self, notice: &Notice) {
        let (secret, reason) = (&self.secret, notice.reason());
        if notice.is_warning() {
            tracing::warn!(%secret, reason, "{notice}");
        } else {
            tracing::info!(%secret, reason, "{notice}");
        }
        self.journal.record(secret, notice);
    }

    fn content(&self, problem: Problem) -> Error {
        let secret = self.secret.clone();
        Error::Content { secret, problem }
    }
}
