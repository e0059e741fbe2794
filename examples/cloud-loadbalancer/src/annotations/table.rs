//! The table of all annotations.

/// The row of an annotation: its name after the prefix, its values, its meaning and default.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name after `lb.reeve.dev/`.
    pub name: &'static str,
    /// The values.
    pub values: &'static str,
    /// The meaning.
    pub meaning: &'static str,
}

const fn row(name: &'static str, values: &'static str, meaning: &'static str) -> Row {
    Row {
        name,
        values,
        meaning,
    }
}

/// All annotations, as `ccm annotations` prints them.
pub const TABLE: &[Row] = &[
    row(
        "name",
        "1 to 80 characters",
        "name in the cloud; created as `a` and the Service's uid",
    ),
    row(
        "address-type",
        "`internet`, `intranet`",
        "network of the address, fixed at the creation; created as `internet`",
    ),
    row(
        "ip-version",
        "`ipv4`, `ipv6`",
        "version of the address, fixed at the creation; created as the Service's first family",
    ),
    row(
        "subnet",
        "id, or several",
        "subnets of a private address, fixed at the creation",
    ),
    row("zone", "id", "main zone, fixed at the creation"),
    row(
        "resource-group",
        "id",
        "resource group, fixed at the creation",
    ),
    row("spec", "size", "size, such as `slb.s2.small`"),
    row(
        "instance-charge",
        "`paybyspec`, `paybyuse`",
        "charge for the load balancer",
    ),
    row(
        "traffic-charge",
        "`paybytraffic`, `paybybandwidth`",
        "charge for traffic; the latter needs `bandwidth`",
    ),
    row("bandwidth", "1 to 5000", "bandwidth in Mbit/s"),
    row(
        "delete-protection",
        "`on`, `off`",
        "refuse deletions in the console; `on` unless the load balancer is reused",
    ),
    row(
        "modification-protection",
        "`on`, `off`",
        "refuse changes in the console; `on` unless the load balancer is reused",
    ),
    row(
        "tags",
        "`key=value,…`",
        "further tags, which are added and never removed; not those of the controller, `reeve.dev/…`",
    ),
    row(
        "reuse",
        "id",
        "use this load balancer, which is never deleted",
    ),
    row(
        "override-listeners",
        "`true`, `false`",
        "replace a listener of others at a port of the Service; else the port is skipped",
    ),
    row(
        "preserve-on-delete",
        "`true`, `false`",
        "keep the load balancer with its listeners when the Service is deleted; another value keeps it too",
    ),
    row(
        "backends",
        "`nodes`, `pods`",
        "`pods` sends traffic to Pods directly, without node ports",
    ),
    row(
        "backend-labels",
        "`key=value,…`",
        "only nodes with these labels",
    ),
    row(
        "scheduler",
        "`wrr`, `rr`, `wlc`",
        "choice of a backend; `wrr`",
    ),
    row(
        "protocol-ports",
        "`https:443,http:80`",
        "protocol of these ports at the load balancer; that of the Service",
    ),
    row("certificate", "id", "certificate of the HTTPS ports"),
    row(
        "domain-certificates",
        "`a.example.com=id,…`",
        "certificates of further domains of the HTTPS ports",
    ),
    row(
        "health-check",
        "`tcp`, `http`",
        "health check of TCP ports; `tcp`, with externalTrafficPolicy Local `http`",
    ),
    row(
        "health-check-path",
        "path",
        "path of `http`; `/`, with externalTrafficPolicy Local `/healthz`",
    ),
    row(
        "health-check-port",
        "1 to 65535",
        "port that is checked; the backend's, with externalTrafficPolicy Local `healthCheckNodePort`",
    ),
    row(
        "health-check-interval",
        "1 to 50",
        "seconds between two checks; 2",
    ),
    row(
        "health-check-timeout",
        "1 to 300",
        "seconds for one check; 5",
    ),
    row("healthy-threshold", "2 to 10", "good checks in a row; 3"),
    row("unhealthy-threshold", "2 to 10", "bad checks in a row; 3"),
    row(
        "drain",
        "0, 10 to 900",
        "seconds that connections of a removed backend go on; 0 cuts them",
    ),
    row(
        "proxy-protocol",
        "`on`, `off`",
        "give backends the client's address by the PROXY protocol; `off`",
    ),
    row(
        "hostname",
        "host name",
        "publish this name in the status, not the address",
    ),
    row(
        "ip-mode",
        "`VIP`, `Proxy`",
        "`status.loadBalancer.ingress[].ipMode`; `VIP`, with `proxy-protocol` and with HTTP(S) ports `Proxy`",
    ),
];
