//! What the configuration is read with, besides the ConfigMap.

use crate::mounted::{self, Directory};
use crate::policy::Protected;

/// What the command line and the environment add to the configuration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Triggers without credentials serve.
    pub insecure_triggers: bool,
    /// The gateway may be on a loopback address.
    pub allow_loopback: bool,
    /// Bearer tokens may go over plain HTTP to other machines.
    pub bearer_over_http: bool,
    /// The first configuration is read as leniently as the original reads it: see [`parse_first`](super::parse_first).
    pub takeover: bool,
    /// Addresses of the cluster that are never banned.
    pub infrastructure: Vec<Protected>,
    /// Where the files with secrets are.
    pub secrets: Directory,
    /// Where card templates may be, beside `secrets`.
    pub templates: Directory,
    /// The operator's namespace, of the blocks that triggers make unless they name another.
    pub namespace: String,
    /// The only namespace whose blocks are worked on; `None`: all are.
    pub watch_namespace: Option<String>,
    /// The ports that the operator serves itself, and what for.
    pub own_ports: Vec<(u16, &'static str)>,
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self {
            insecure_triggers: false,
            allow_loopback: false,
            bearer_over_http: false,
            takeover: false,
            infrastructure: Vec::new(),
            secrets: Directory::default(),
            templates: Directory::new(mounted::TEMPLATES),
            namespace: "default".into(),
            watch_namespace: None,
            own_ports: Vec::new(),
        }
    }
}
