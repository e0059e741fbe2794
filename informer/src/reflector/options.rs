//! The options of a reflector: [`ReflectorOptions`].

use std::num::NonZeroU32;
use std::time::Duration;

use reeve_clock::LONGEST;

use crate::backoff::BackoffOptions;
use reeve_client::transport::Limits;

/// The state that a reflector reads first, and again when a watch cannot continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FirstList {
    /// The newest state (resourceVersion unset): never older than any state that was seen before. The default.
    #[default]
    Consistent,
    /// The state that the API server has cached (resourceVersion "0", later the last version seen): cheaper for the
    /// server, and possibly old at the start. client-go's choice.
    ///
    /// It applies to lists in pages. A streaming list is requested as client-go does it, in either case: the first with
    /// the version unset, so that it is the newest state, which the server still serves from its cache; later ones not
    /// older than the last version seen. Turn [`ReflectorOptions::streaming`] off to read at "0".
    Any,
}

/// The options of lists and watches.
///
/// ```
/// use std::time::Duration;
/// use reeve_informer::ReflectorOptions;
///
/// let options = ReflectorOptions::new()
///     .streaming(false)
///     .watch_timeout(Duration::from_secs(1800));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct ReflectorOptions {
    pub(crate) first_list: FirstList,
    pub(crate) streaming: bool,
    /// `None`: where the entries prefer it.
    pub(crate) protobuf: Option<bool>,
    pub(crate) streaming_idle: Duration,
    pub(crate) streaming_deadline: Duration,
    pub(crate) streaming_retry: Duration,
    pub(crate) page_size: Option<NonZeroU32>,
    pub(crate) watch_timeout: Duration,
    pub(crate) watch_idle: Duration,
    pub(crate) backoff: BackoffOptions,
    pub(crate) reconnect_spread: Duration,
    pub(crate) request_burst: u32,
    pub(crate) request_interval: Duration,
    pub(crate) epoch_lists: u32,
    pub(crate) limits: Limits,
}

impl Default for ReflectorOptions {
    fn default() -> Self {
        Self {
            first_list: FirstList::default(),
            streaming: true,
            protobuf: None,
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

/// The shortest watch (client-go: `defaultMinWatchTimeout`).
const MINIMUM_WATCH_TIMEOUT: Duration = Duration::from_secs(300);

/// The smallest number of older lists that begin an epoch: one alone may come from a replica that lags behind.
const MINIMUM_EPOCH_LISTS: u32 = 2;

// === impl ReflectorOptions ===

impl ReflectorOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The state that is read first. Default: [`FirstList::Consistent`].
    pub fn first_list(mut self, first_list: FirstList) -> Self {
        self.first_list = first_list;
        self
    }

    /// Requests lists as streams, and falls back to pages where the server does not offer streams. Default: true.
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }

    /// Whether to request protobuf, and JSON in the second place, for a built-in kind whose entries can be read from it
    /// ([`Form::PROTOBUF`](crate::Form::PROTOBUF)). Default: where it takes less time than
    /// JSON ([`Form::prefers_protobuf`](crate::Form::prefers_protobuf)): for [`Compact`](crate::Compact) entries, and for
    /// types of k8s-openapi that [`reeve_wire::is_read_in_place`] has, such as Pods, Deployments and Nodes.
    ///
    /// Fields that this version of the crate does not know, those of a newer API server, are in JSON texts and untyped objects,
    /// and not in those that are made from protobuf.
    ///
    /// Protobuf has about two thirds of the bytes and costs an API server less. To decode one of those types from it takes
    /// this client about half of the processor time of JSON. Metadata and the types of other kinds take more time than
    /// from JSON.
    ///
    /// Custom resources and untyped objects are requested as JSON. So is a kind of which a part within a JSON text is left
    /// out. A server that answers 406, or with something that is not what its `Content-Type` says, is asked for JSON until
    /// the reflector runs again; that is logged once.
    pub fn protobuf(mut self, protobuf: bool) -> Self {
        self.protobuf = Some(protobuf);
        self
    }

    /// The silence before its end after which a streaming list is given up. Default: 10 s.
    pub fn streaming_idle(mut self, time: Duration) -> Self {
        self.streaming_idle = time.min(LONGEST);
        self
    }

    /// The time after which a streaming list that has not ended is given up. Default: 5 min.
    pub fn streaming_deadline(mut self, time: Duration) -> Self {
        self.streaming_deadline = time.min(LONGEST);
        self
    }

    /// The time for which no streaming list is requested from a server that did not offer one. Default: 1 h.
    ///
    /// If the server refused them (422, 501, or 400 where the same can be read in pages), that holds for all watches of
    /// the informer and all informers of its factory, for kinds of the same group and version. If it refused this request
    /// (another 400, 405, 406, 415), was silent, or its streaming lists broke off or did not end, that holds for this
    /// watch.
    pub fn streaming_retry(mut self, time: Duration) -> Self {
        self.streaming_retry = time.min(LONGEST);
        self
    }

    /// The number of objects in a page of a list, as client-go's `WatchListPageSize`. Zero, which
    /// `NonZeroU32::new(0)` is, means the default, as there.
    ///
    /// Default: 500, and everything at once where the server reads the list from its cache, which is a list again at a
    /// known version ([`FirstList::Any`]). A size that is set holds for every list. Pages at a known version show that
    /// state or a newer one (`resourceVersionMatch=NotOlderThan`); client-go's show exactly that state. In either case
    /// everything is requested at once after the token of a page expired. An answer that is then larger than
    /// [`Limits::body`], or takes too long, is requested in pages for an hour.
    pub fn page_size(mut self, size: Option<NonZeroU32>) -> Self {
        self.page_size = size;
        self
    }

    /// The server ends a watch after a random time between this and twice this. Default: 5 min, which is also the
    /// minimum, as in client-go.
    pub fn watch_timeout(mut self, time: Duration) -> Self {
        self.watch_timeout = time.clamp(MINIMUM_WATCH_TIMEOUT, LONGEST);
        self
    }

    /// The silence after which a watch is replaced, lengthened by a random time up to
    /// [`ReflectorOptions::reconnect_spread`]. Default: 90 s, since servers send a bookmark each minute. At least 1 s. A
    /// shorter time than [`ReflectorOptions::request_interval`] replaces it no more often than that allows.
    pub fn watch_idle(mut self, time: Duration) -> Self {
        self.watch_idle = time.clamp(Duration::from_secs(1), LONGEST);
        self
    }

    /// The delays after failures.
    pub fn backoff(mut self, backoff: BackoffOptions) -> Self {
        self.backoff = backoff;
        self
    }

    /// The maximum of the random delay before the next request after a server ended a watch too early, or a connection
    /// broke. It keeps many informers from returning at once when a server restarts. Default: 7 s, with which at most a
    /// fifth of a thousand informers return in any second. Zero is client-go's behaviour. A watch that ends when it was
    /// asked to is followed by the next at once.
    pub fn reconnect_spread(mut self, time: Duration) -> Self {
        self.reconnect_spread = time.min(LONGEST);
        self
    }

    /// The number of lists and watches that may be requested in quick succession, without the later pages of a list.
    /// Default: 20.
    pub fn request_burst(mut self, requests: u32) -> Self {
        self.request_burst = requests;
        self
    }

    /// The time after which another list or watch may be requested once the burst is used up. Default: 36 s: with the
    /// burst, at most 120 requests in an hour, whatever the server does. A server that ends every watch after a minute is
    /// followed without a pause, and one that ends it after 10 s is not.
    pub fn request_interval(mut self, time: Duration) -> Self {
        self.request_interval = time.min(LONGEST);
        self
    }

    /// The number of consistent lists in a row, all older than the known version, after which the server's history counts
    /// as begun again. Default: 3, at least 2.
    pub fn epoch_lists(mut self, lists: u32) -> Self {
        self.epoch_lists = lists.max(MINIMUM_EPOCH_LISTS);
        self
    }

    /// The limits of each request.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}
