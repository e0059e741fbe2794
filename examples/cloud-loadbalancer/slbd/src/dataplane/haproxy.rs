//! HAProxy's replacement at each change.
//!
//! A configuration is checked before it replaces the running one. Sections that HAProxy refuses, and listeners whose address cannot be
//! bound, are left out, so that they do not hold up the changes of other load balancers. They are logged, and shown by
//! [`Progress::left_out`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::certificates;
use super::config::{self, CERTIFICATES, Proxy};
use super::isolate::Search;
use super::process::{Process, Program, Verdict};
use crate::cloud::State;

/// The time before a configuration that failed is tried again, without a change of the state.
const AGAIN: Duration = Duration::from_secs(1);
/// The old processes that may still end their connections. More changes wait for one of them.
const MOST_OLD: usize = 20;

/// How far the data plane is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// How many configurations were loaded.
    pub loaded: u64,
    /// The listeners that are not served.
    pub left_out: Vec<LeftOut>,
    /// The reason why the newest state is not loaded at all.
    pub error: Option<String>,
    state: Option<Arc<State>>,
}

/// A listener that is not served, while others are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// The id of the load balancer.
    pub load_balancer: String,
    /// The address and the port.
    pub address: SocketAddr,
    /// What HAProxy, or the system, has against it.
    pub reason: String,
}

/// HAProxy, started from `program` with files in `folder`.
#[derive(Debug)]
pub struct HaProxy {
    program: Program,
    progress: watch::Sender<Progress>,
}

/// What is loaded, and what was found out about sections.
#[derive(Debug, Default)]
struct Current {
    process: Option<Process>,
    /// The processes that the next one replaces.
    last: Vec<u32>,
    /// The configuration of the process.
    text: String,
    /// The addresses that the process has bound.
    bound: BTreeSet<SocketAddr>,
    /// The sections that HAProxy refuses, with the reason.
    refused: BTreeMap<SocketAddr, (Proxy, String)>,
    loaded: u64,
}

/// The sections of a state, sorted.
#[derive(Debug, Default)]
struct Sorted<'a> {
    fit: Vec<&'a Proxy>,
    left_out: Vec<LeftOut>,
    /// Whether time alone may make one fit: its address is taken by another process.
    again: bool,
}

// === impl Progress ===

impl Progress {
    /// Whether `state`, of [`World::states`](crate::server::World::states), is loaded, but for [`Progress::left_out`].
    #[must_use]
    pub fn has(&self, state: &Arc<State>) -> bool {
        let loaded = self.state.as_ref();
        loaded.is_some_and(|loaded| Arc::ptr_eq(loaded, state))
    }
}

// === impl LeftOut ===

impl LeftOut {
    fn new(proxy: &Proxy, reason: &str) -> Self {
        Self {
            load_balancer: proxy.balancer.clone(),
            address: proxy.address,
            reason: reason.to_owned(),
        }
    }
}

// === impl HaProxy ===

impl HaProxy {
    /// HAProxy of the executable `program`. `folder`, of this data plane alone, gets its files.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, folder: impl Into<PathBuf>) -> Self {
        Self {
            program: Program::new(program.into(), folder.into()),
            progress: watch::Sender::default(),
        }
    }

    /// How far the data plane is.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// The number of the process that serves now.
    ///
    /// # Errors
    /// When no process answers at the stats socket within 2 s.
    pub async fn serving(&self) -> io::Result<Option<u32>> {
        self.program.serving().await
    }

    /// Follows `states` until `stop`, then ends HAProxy at once, whatever it is doing.
    ///
    /// # Errors
    /// When the folder cannot be made, or the processes of the machine cannot be listed.
    pub async fn run(
        &self,
        mut states: watch::Receiver<Arc<State>>,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let folder = self.program.folder();
        let made = tokio::fs::create_dir_all(folder).await;
        made.map_err(|error| {
            let text = format!("cannot make the folder {}: {error}", folder.display());
            io::Error::new(error.kind(), text)
        })?;
        let mut old: JoinSet<()> = JoinSet::new();
        let mut current = Current {
            last: self.program.left_behind().await?,
            ..Current::default()
        };
        loop {
            let state = Arc::clone(&states.borrow_and_update());
            let followed = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                followed = self.follow(&mut current, &mut old, &state) => followed,
            };
            let again = self.report(current.loaded, state, followed);
            let later = async {
                if let Some(process) = &mut current.process
                    && !again
                {
                    process.wait().await;
                    tracing::warn!("haproxy ended; starting it again");
                }
                sleep(AGAIN).await;
            };
            tokio::select! {
                () = stop.cancelled() => break,
                changed = states.changed() => if changed.is_err() {
                    stop.cancelled().await;
                    break;
                },
                () = later => {}
            }
        }
        // Children end with their handles.
        drop(current);
        old.shutdown().await;
        self.program.end_left_behind().await;
        Ok(())
    }

    /// Publishes a result, and returns whether time alone may change it. Logs what is new.
    fn report(
        &self,
        loaded: u64,
        state: Arc<State>,
        followed: io::Result<(Vec<LeftOut>, bool)>,
    ) -> bool {
        let before = self.progress.borrow().clone();
        let mut now = Progress {
            loaded,
            ..before.clone()
        };
        let again = match followed {
            Ok((left_out, again)) => {
                for one in left_out.iter().filter(|one| !before.left_out.contains(one)) {
                    let LeftOut {
                        load_balancer,
                        address,
                        reason,
                    } = one;
                    tracing::error!(load_balancer, %address, reason, "a listener is left out of haproxy");
                }
                now.left_out = left_out;
                now.error = None;
                now.state = Some(state);
                again
            }
            Err(error) => {
                let error = error.to_string();
                if before.error.as_ref() != Some(&error) {
                    tracing::error!(error, "cannot load the configuration of haproxy");
                }
                now.error = Some(error);
                true
            }
        };
        self.progress.send_replace(now);
        again
    }

    /// Makes HAProxy serve `state`. Returns the listeners that are left out, and whether time alone may change that.
    async fn follow(
        &self,
        current: &mut Current,
        old: &mut JoinSet<()>,
        state: &State,
    ) -> io::Result<(Vec<LeftOut>, bool)> {
        if let Some(process) = &mut current.process
            && process.has_ended()?
        {
            current.process = None;
            current.bound.clear();
            // Another process may get its number.
            current.last.clear();
        }
        let proxies = config::proxies(state, self.program.folder());
        current.keep_refused(&proxies);
        let mut sorted = current.sort(&proxies);
        if current.has(&self.render(&sorted.fit)) {
            return Ok((sorted.left_out, sorted.again));
        }
        while old.len() >= MOST_OLD && old.join_next().await.is_some() {}
        let files = proxies.iter().flat_map(|proxy| &proxy.files);
        let files: BTreeMap<&str, &str> = files
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        let folder = self.program.folder().join(CERTIFICATES);
        certificates::write(&folder, &files).await?;
        if let Verdict::Refused(_) = self.check(&sorted.fit).await? {
            current.refuse(self.search(&sorted.fit).await?);
            sorted = current.sort(&proxies);
            if current.has(&self.render(&sorted.fit)) {
                return Ok((sorted.left_out, sorted.again));
            }
            if let Verdict::Refused(reason) = self.check(&sorted.fit).await? {
                let text = format!("haproxy refuses the listeners together: {reason}");
                return Err(io::Error::other(text));
            }
        }
        let process = self.program.start(&current.last).await?;
        current.last = process.id().into_iter().collect();
        current.text = self.render(&sorted.fit);
        current.bound = sorted.fit.iter().map(|proxy| proxy.address).collect();
        current.loaded += 1;
        if let Some(mut process) = current.process.replace(process) {
            // It ends after its last connection, or at `hard-stop-after`.
            old.spawn(async move { process.wait().await });
        }
        if let Err(error) = certificates::keep_only(&folder, &files).await {
            tracing::warn!(%error, "cannot remove old certificates");
        }
        Ok((sorted.left_out, sorted.again))
    }

    /// The sections that HAProxy refuses.
    async fn search<'a>(&self, proxies: &'a [&'a Proxy]) -> io::Result<Vec<(&'a Proxy, String)>> {
        if let Verdict::Refused(reason) = self.check(&[]).await? {
            let text = format!("haproxy refuses a configuration without listeners: {reason}");
            return Err(io::Error::other(text));
        }
        let mut search = Search::new(proxies);
        while let Some(part) = search.next() {
            search.judge(self.check(part).await?);
        }
        Ok(search.refused())
    }

    fn render(&self, proxies: &[&Proxy]) -> String {
        config::render(self.program.folder(), proxies.iter().copied())
    }

    async fn check(&self, proxies: &[&Proxy]) -> io::Result<Verdict> {
        self.program.check(&self.render(proxies)).await
    }
}

// === impl Current ===

impl Current {
    /// Whether a process serves `text`.
    fn has(&self, text: &str) -> bool {
        self.process.is_some() && self.text == text
    }

    /// Forgets the refusals of sections that have changed or are gone.
    fn keep_refused(&mut self, proxies: &[Proxy]) {
        let wanted: BTreeMap<SocketAddr, &Proxy> =
            proxies.iter().map(|proxy| (proxy.address, proxy)).collect();
        self.refused
            .retain(|address, (proxy, _)| wanted.get(address) == Some(&&*proxy));
    }

    fn refuse(&mut self, refused: Vec<(&Proxy, String)>) {
        for (proxy, reason) in refused {
            let reason = format!("haproxy refuses it: {reason}");
            self.refused.insert(proxy.address, (proxy.clone(), reason));
        }
    }

    /// Parts the sections that HAProxy can load from the others.
    fn sort<'a>(&self, proxies: &'a [Proxy]) -> Sorted<'a> {
        let mut sorted = Sorted::default();
        for proxy in proxies {
            if let Some((_, reason)) = self.refused.get(&proxy.address) {
                sorted.left_out.push(LeftOut::new(proxy, reason));
                continue;
            }
            let bound = match self.bound.contains(&proxy.address) {
                true => Ok(()),
                false => can_bind(proxy.address),
            };
            match bound {
                Ok(()) => sorted.fit.push(proxy),
                Err(error) => {
                    let reason = format!("the address cannot be bound: {error}");
                    sorted.left_out.push(LeftOut::new(proxy, &reason));
                    sorted.again = true;
                }
            }
        }
        sorted
    }
}

/// Whether HAProxy could bind `address`. A socket that is bound and does not listen gets no connections, and HAProxy's own sockets
/// allow others beside them.
fn can_bind(address: SocketAddr) -> io::Result<()> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn proxy(address: SocketAddr, text: &str) -> Proxy {
        Proxy {
            balancer: "lb-1".to_owned(),
            address,
            text: text.to_owned(),
            files: BTreeMap::new(),
        }
    }

    #[tokio::test]
    async fn a_taken_address_is_left_out_until_it_is_free() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let proxies = [proxy(address, "")];
        let mut current = Current::default();
        let sorted = current.sort(&proxies);
        assert!(sorted.fit.is_empty() && sorted.again);
        assert_eq!(sorted.left_out[0].address, address);
        let reason = &sorted.left_out[0].reason;
        assert!(
            reason.starts_with("the address cannot be bound"),
            "{reason}"
        );
        drop(taken);
        let sorted = current.sort(&proxies);
        assert!(sorted.fit.len() == 1 && !sorted.again);
        // What the process itself has bound is not tried.
        let _own = TcpListener::bind(address).await.unwrap();
        current.bound.insert(address);
        assert_eq!(current.sort(&proxies).fit.len(), 1);
    }

    #[test]
    fn a_refusal_holds_until_the_section_changes() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let (old, new) = (proxy(address, "old"), proxy(address, "new"));
        let mut current = Current::default();
        current.refuse(vec![(&old, "unknown keyword".to_owned())]);
        let kept = [old];
        current.keep_refused(&kept);
        let sorted = current.sort(&kept);
        assert_eq!(
            sorted.left_out[0].reason,
            "haproxy refuses it: unknown keyword"
        );
        assert!(!sorted.again);
        current.keep_refused(&[new]);
        assert!(current.refused.is_empty());
    }
}
