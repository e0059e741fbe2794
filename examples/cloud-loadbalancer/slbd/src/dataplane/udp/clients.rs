//! The clients of all UDP listeners: few enough for the files of the process, and forgotten when they are silent.

use std::net::SocketAddr;
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

/// A client of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) listener: SocketAddr,
    pub(super) client: SocketAddr,
}

/// What is kept of each client, and when its last datagram passed, in the order of these times.
#[derive(Debug)]
pub(super) struct Clients<T> {
    clients: LruCache<Key, (Instant, T)>,
    most: usize,
}

// === impl Clients ===

impl<T> Clients<T> {
    /// At most `most` clients, and at least one.
    pub(super) fn new(most: usize) -> Self {
        Self {
            clients: LruCache::unbounded(),
            most: most.max(1),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.clients.len()
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// The client, one of whose datagrams passes at `now`.
    pub(super) fn heard(&mut self, key: &Key, now: Instant) -> Option<&T> {
        let (at, client) = self.clients.get_mut(key)?;
        *at = now;
        Some(client)
    }

    /// Adds a client, or replaces it. Forgets the one that was silent longest if there are too many.
    pub(super) fn add(&mut self, key: Key, now: Instant, client: T) {
        self.clients.put(key, (now, client));
        while self.clients.len() > self.most {
            self.clients.pop_lru();
        }
    }

    /// Forgets the client that was silent longest.
    pub(super) fn forget_longest_silent(&mut self) {
        self.clients.pop_lru();
    }

    /// Forgets the client if it `is` the one that is meant.
    pub(super) fn forget(&mut self, key: &Key, is: impl FnOnce(&T) -> bool) {
        if self.clients.peek(key).is_some_and(|(_, client)| is(client)) {
            self.clients.pop(key);
        }
    }

    /// Forgets the clients that are silent for `idle`.
    pub(super) fn forget_silent(&mut self, now: Instant, idle: Duration) {
        while let Some((_, (at, _))) = self.clients.peek_lru()
            && now.duration_since(*at) >= idle
        {
            self.clients.pop_lru();
        }
    }

    /// Forgets the clients of a listener.
    pub(super) fn forget_listener(&mut self, listener: SocketAddr) {
        let keys = self.clients.iter().map(|(key, _)| *key);
        let keys: Vec<Key> = keys.filter(|key| key.listener == listener).collect();
        for key in keys {
            self.clients.pop(&key);
        }
    }

    /// Forgets all clients.
    pub(super) fn clear(&mut self) {
        self.clients.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    fn key(listener: u16, client: u16) -> Key {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Key {
            listener: at(listener),
            client: at(client),
        }
    }

    fn known(clients: &Clients<u16>) -> Vec<u16> {
        let mut known: Vec<u16> = clients.clients.iter().map(|(_, (_, one))| *one).collect();
        known.sort_unstable();
        known
    }

    #[test]
    fn one_client_too_many_takes_the_place_of_the_one_that_was_silent_longest() {
        let now = Instant::now();
        let mut clients = Clients::new(2);
        // The bound is that of all listeners together.
        clients.add(key(1, 1), now, 1);
        clients.add(key(2, 2), now, 2);
        assert_eq!(clients.heard(&key(1, 1), now), Some(&1));
        clients.add(key(1, 3), now, 3);
        assert_eq!(known(&clients), [1, 3]);
        assert_eq!(clients.heard(&key(2, 2), now), None);
        // A client in place of itself displaces none.
        clients.add(key(1, 1), now, 4);
        assert_eq!(known(&clients), [3, 4]);
        clients.forget_longest_silent();
        assert_eq!(known(&clients), [4]);
    }

    #[test]
    fn a_silent_client_is_forgotten_and_one_that_is_heard_is_not() {
        let start = Instant::now();
        let mut clients = Clients::new(10);
        for client in 1..=3 {
            clients.add(key(1, client), start, client);
        }
        clients.heard(&key(1, 2), start + IDLE / 2);
        clients.forget_silent(start + IDLE - Duration::from_millis(1), IDLE);
        assert_eq!(known(&clients), [1, 2, 3]);
        clients.forget_silent(start + IDLE, IDLE);
        assert_eq!(known(&clients), [2]);
        clients.forget_silent(start + IDLE * 3 / 2, IDLE);
        assert_eq!(clients.count(), 0);
    }

    #[test]
    fn clients_go_with_their_listener_and_a_successor_stays() {
        let now = Instant::now();
        let mut clients = Clients::new(10);
        clients.add(key(1, 1), now, 1);
        clients.add(key(2, 1), now, 2);
        clients.forget_listener(key(1, 0).listener);
        assert_eq!(known(&clients), [2]);
        clients.forget(&key(2, 1), |one| *one == 7);
        assert_eq!(known(&clients), [2]);
        clients.forget(&key(2, 1), |one| *one == 2);
        assert_eq!(clients.count(), 0);
    }
}
