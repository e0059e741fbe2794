//! How a reflector lists and watches.

use std::num::NonZeroU32;
use std::time::Duration;

use reeve_clock::LONGEST;

use crate::backoff::BackoffOptions;
use reeve_client::transport::Limits;

/// How the present state is read first, and again when a watch cannot go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FirstList {
    /// The newest state there is (resourceVersion unset): never older than what anyone has seen. The default.
    #[default]
    Consistent,
    /// What the API server has at hand (resourceVersion "0", later the last one seen): cheaper for the
    /// server, and possibly old at the start. client-go's choice.
    ///
    /// It is said of lists in pages. A streaming list is asked for as client-go does it, whatever is said here: the
    /// first with the version unset, so that it is the newest state, and served from the server's cache all the same;
    /// later ones not older than the last version seen. Who wants "0" has [`ReflectorOptions::streaming`] false.
    Any,
}

/// How a reflector lists and watches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReflectorOptions {
    /// How the first state is read. Default [`FirstList::Consistent`].
    pub first_list: FirstList,
    /// Ask for lists as streams, and fall back to pages where the server does not offer it. Default true.
    pub streaming: bool,
    /// Give a streaming list up when nothing comes for so long before its end. Default 10 s.
    pub streaming_idle: Duration,
    /// Give a streaming list up when its end has not come by then. Default 5 min.
    pub streaming_deadline: Duration,
    /// How long a server that did not offer streaming lists is not asked again. Default 1 h. One that refused them
    /// (422, 501, or 400 where the same can be read in pages), or was silent, is not asked by any watch of the
    /// informer nor any informer of its factory, for kinds of the same group and version. One that refused this
    /// request (another 400, 405, 406, 415), or whose streaming lists broke off or did not end, is not asked by this
    /// watch.
    pub streaming_retry: Duration,
    /// How many objects a page of a list holds. Default `None`: 500, and everything at once where the server reads
    /// it from its cache, which is a list again at a known version ([`FirstList::Any`]). A size that is given holds
    /// for every list, as client-go's `WatchListPageSize`: `page_size: NonZeroU32::new(100)`, where zero is the
    /// default as there. Pages at a known version show that state or a newer one (`resourceVersionMatch=NotOlderThan`);
    /// client-go's show that very one. Everything is asked for at once all the same after the token of a page expired;
    /// what is too large for [`Limits::body`] then, or takes too long, is asked for in pages for an hour.
    pub page_size: Option<NonZeroU32>,
    /// The server ends a watch after this to twice this time, drawn anew each time. Default 5 min; less is
    /// raised to it, as in client-go.
    pub watch_timeout: Duration,
    /// A watch that is silent for so long is replaced. Default 90 s: servers send a bookmark each minute. Up to
    /// [`ReflectorOptions::reconnect_spread`] is added, drawn anew for each watch.
    pub watch_idle: Duration,
    /// How long to wait after failures.
    pub backoff: BackoffOptions,
    /// When a server ends a watch before its time, or a connection breaks, the next request is sent after a
    /// time drawn between zero and this, so that many informers do not come back at once when a server
    /// restarts. Default 7 s: at most a fifth of a thousand informers come back in any second. Zero is
    /// client-go's behaviour, at once. A watch that ends when it was asked to is followed by the next at once.
    pub reconnect_spread: Duration,
    /// How many lists and watches may be asked for in quick succession, the later pages of a list not
    /// counted. Default 20.
    pub request_burst: u32,
    /// How long it takes until another list or watch may be asked for, once the burst is used up. Default 36 s:
    /// with the burst, at most 120 requests in an hour, whatever the server does. A server that ends every
    /// watch after a minute is followed without a pause; one that does so after 10 s is not.
    pub request_interval: Duration,
    /// How many consistent lists in a row must be older than what is known until the server's history counts
    /// as begun anew. Default 3, at least 2.
    pub epoch_lists: u32,
    /// Limits of requests.
    pub limits: Limits,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            first_list: FirstList::default(),
            streaming: true,
            streaming_idle: Duration::from_secs(10),
            streaming_deadline: Duration::from_secs(300),
            streaming_retry: Duration::from_secs(3600),
            page_size: None,
            watch_timeout: MINIMUM_WATCH_TIMEOUT,
            watch_idle: Duration::from_secs(90),
            backoff: BackoffOptions::default(),
            reconnect_spread: Duration::from_secs(7),
            request_burst: 20,
            request_interval: Duration::from_secs(36),
            epoch_lists: 3,
            limits: Limits::default(),
        }
    }
}

/// client-go: `defaultMinWatchTimeout`.
pub(super) const MINIMUM_WATCH_TIMEOUT: Duration = Duration::from_secs(300);

impl ReflectorOptions {
    /// With no time so long that it cannot be added to another.
    pub(super) fn bounded(mut self) -> Self {
        for time in [
            &mut self.streaming_idle,
            &mut self.streaming_deadline,
            &mut self.streaming_retry,
            &mut self.watch_timeout,
            &mut self.watch_idle,
            &mut self.backoff.initial,
            &mut self.backoff.cap,
            &mut self.reconnect_spread,
            &mut self.request_interval,
        ] {
            *time = LONGEST.min(*time);
        }
        self
    }
}
