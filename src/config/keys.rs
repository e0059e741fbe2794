//! The keys of the ConfigMap.

/// `host:port` of the gateway, or `http://…`, `https://…`.
pub const GATEWAY_HOST: &str = "gatewayHost";
/// `iptables`, `xdp`, `dry-run`, or `sets`: only those of `engines`.
pub const ENGINE: &str = "engine";
/// A YAML list of engines that follow the whole set of bans, beside `engine` or instead of it.
pub const ENGINES: &str = "engines";
/// One address or range a line that is never banned; `#` begins a comment.
pub const WHITELIST: &str = "whitelist";
/// A YAML list of HTTP servers for alerts.
pub const TRIGGER: &str = "trigger";
/// A YAML list of lists of addresses that are pulled: CrowdSec, feeds.
pub const SOURCES: &str = "sources";
/// All keys about notifications begin so.
pub const NOTIFY_PREFIX: &str = "notify";

/// A YAML list of channels for notifications.
pub const NOTIFY_CHANNELS: &str = "notify";
/// `lark`, or empty: the one channel of the original's keys.
pub const NOTIFY_TYPE: &str = "notifyType";
/// The bot's URL, in plain text.
pub const NOTIFY_HOOK: &str = "notifyWebhookURL";
/// A mounted file with the bot's URL, instead.
pub const NOTIFY_HOOK_FILE: &str = "notifyWebhookURLFile";
/// A mounted file with the bot's signing secret.
pub const NOTIFY_SIGNING_FILE: &str = "notifySigningSecretFile";
/// The zone of the times in cards, `+08:00`; default UTC.
pub const NOTIFY_ZONE: &str = "notifyTimezone";
/// `notifyTemplate_ban`, `…_resolve`, `…_common`: card templates in files.
pub const NOTIFY_TEMPLATE_PREFIX: &str = "notifyTemplate_";

/// The keys about notifications but the templates.
pub const NOTIFY: &[&str] = &[
    NOTIFY_CHANNELS,
    NOTIFY_TYPE,
    NOTIFY_HOOK,
    NOTIFY_HOOK_FILE,
    NOTIFY_SIGNING_FILE,
    NOTIFY_ZONE,
];

/// How long a ban lasts when its alert has no duration; default `1h`.
pub const DEFAULT_DURATION: &str = "defaultDuration";
/// The longest ban; default none.
pub const MAX_DURATION: &str = "maxDuration";
/// How long a block that a trigger made is kept after its ban ended, for each time it was banned; default `7d`,
/// `never`: always.
pub const RETENTION: &str = "retention";
/// How long alerts leave an address alone after `spec.unblock`; default `10m`, `none`: not at all.
pub const UNBLOCK_GRACE: &str = "unblockGrace";
/// What an alert does to an active block: `extend`, `ignore` or `escalate`; default `extend`.
pub const REPEATED_ALERT: &str = "repeatedAlert";
/// How often standing bans are asserted again; default `5m`, at least `10s`.
pub const RESYNC_INTERVAL: &str = "resyncInterval";
/// How long an alert that was written is not written again, unless its trigger sets another time; default `60s`.
pub const DEBOUNCE: &str = "debounce";
/// How many written alerts a trigger remembers, unless it sets another number; default 1000.
pub const DEBOUNCE_ENTRIES: &str = "debounceEntries";
/// Until the connection to the gateway stands; default `2s`.
pub const CONNECT_TIMEOUT: &str = "connectTimeout";
/// Until the gateway's answer is complete; default `5s`.
pub const REQUEST_TIMEOUT: &str = "requestTimeout";
/// A mounted file with the gateway's bearer token.
pub const GATEWAY_TOKEN_FILE: &str = "gatewayBearerTokenFile";
/// A mounted file with the gateway's certificate authorities.
pub const GATEWAY_CA_FILE: &str = "gatewayCAFile";
/// One `engine host:port` a line: gateways that were configured before the operator recorded them itself.
pub const FORMER_GATEWAYS: &str = "formerGateways";
/// Like `formerGateways`: gateways that are not called any more, although the operator recorded them.
pub const WITHDRAWN_GATEWAYS: &str = "withdrawnGateways";
/// Like `whitelist`, for addresses of the cluster: nodes, pods, services.
pub const PROTECTED_RANGES: &str = "protectedRanges";
/// `true`: private addresses are never banned; default `false`.
pub const PROTECT_PRIVATE: &str = "protectPrivate";
/// The shortest IPv4 prefix that may be banned; default 24, at least 8.
pub const MIN_PREFIX_V4: &str = "minPrefixV4";
/// The shortest IPv6 prefix that may be banned; default 48, at least 32.
pub const MIN_PREFIX_V6: &str = "minPrefixV6";
/// `false`: nodes and Services are not protected by themselves; default `true`.
pub const PROTECT_CLUSTER: &str = "protectCluster";
/// The number of blocks that are banned at once; default none.
pub const MAX_ACTIVE_BLOCKS: &str = "maxActiveBlocks";
/// The number of new bans within a minute; default none.
pub const MAX_BANS_PER_MINUTE: &str = "maxBansPerMinute";
/// YAML: the same caps by namespace and by source, and whether blocks made by hand are exempt.
pub const LIMITS: &str = "limits";
/// YAML: when a mass of bans or lifts is held back.
pub const BRAKE: &str = "brake";
/// One source a line whose blocks are not banned, only shown.
pub const SHADOW_SOURCES: &str = "shadowSources";
/// YAML: how repeated bans grow; default: they do not.
pub const ESCALATION: &str = "escalation";

/// All keys but those about notifications.
pub const ALL: &[&str] = &[
    GATEWAY_HOST,
    ENGINE,
    WHITELIST,
    TRIGGER,
    DEFAULT_DURATION,
    MAX_DURATION,
    RETENTION,
    UNBLOCK_GRACE,
    REPEATED_ALERT,
    RESYNC_INTERVAL,
    DEBOUNCE,
    DEBOUNCE_ENTRIES,
    CONNECT_TIMEOUT,
    REQUEST_TIMEOUT,
    GATEWAY_TOKEN_FILE,
    GATEWAY_CA_FILE,
    FORMER_GATEWAYS,
    WITHDRAWN_GATEWAYS,
    PROTECTED_RANGES,
    PROTECT_PRIVATE,
    MIN_PREFIX_V4,
    MIN_PREFIX_V6,
    ENGINES,
    PROTECT_CLUSTER,
    MAX_ACTIVE_BLOCKS,
    MAX_BANS_PER_MINUTE,
    LIMITS,
    BRAKE,
    SHADOW_SOURCES,
    ESCALATION,
    SOURCES,
];

/// The keys about the engine and its gateway.
pub const ABOUT_GATEWAY: &[&str] = &[
    GATEWAY_HOST,
    ENGINE,
    CONNECT_TIMEOUT,
    REQUEST_TIMEOUT,
    GATEWAY_TOKEN_FILE,
    GATEWAY_CA_FILE,
    FORMER_GATEWAYS,
    WITHDRAWN_GATEWAYS,
    ENGINES,
];

/// The keys that keep addresses from being banned.
pub const PROTECTING: &[&str] = &[
    WHITELIST,
    PROTECTED_RANGES,
    PROTECT_PRIVATE,
    MIN_PREFIX_V4,
    MIN_PREFIX_V6,
    SHADOW_SOURCES,
    LIMITS,
    BRAKE,
];

/// The keys that decide which bans, and which entries of lists, are refused.
pub const REFUSING: &[&str] = &[
    WHITELIST,
    PROTECTED_RANGES,
    PROTECT_PRIVATE,
    PROTECT_CLUSTER,
    MIN_PREFIX_V4,
    MIN_PREFIX_V6,
    MAX_DURATION,
    SHADOW_SOURCES,
    ENGINE,
    ENGINES,
];
