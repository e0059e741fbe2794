//! The requests that a server received, by its audit log.

use std::path::{Path, PathBuf};

/// The audit log of a kube-apiserver.
#[derive(Debug)]
pub(crate) struct Audit {
    policy: PathBuf,
    log: PathBuf,
}

/// Each request once, when it arrives.
const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted, ResponseComplete, Panic]
rules:
- level: Metadata
  resources: [{group: '', resources: [configmaps]}]
- level: None
";

// === impl Audit ===

impl Audit {
    /// With its files in `directory`.
    pub(crate) fn new(directory: &Path) -> std::io::Result<Self> {
        let policy = directory.join("policy.yaml");
        std::fs::write(&policy, POLICY)?;
        Ok(Self {
            policy,
            log: directory.join("audit.log"),
        })
    }

    /// The arguments of the server.
    pub(crate) fn arguments(&self) -> [String; 2] {
        [
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
        ]
    }

    /// How many requests for ConfigMaps came from `user_agent` so far.
    pub(crate) fn requests_of(&self, user_agent: &str) -> std::io::Result<usize> {
        let log = std::fs::read_to_string(&self.log)?;
        let wanted = format!("\"userAgent\":\"{user_agent}");
        Ok(log.lines().filter(|line| line.contains(&wanted)).count())
    }
}
