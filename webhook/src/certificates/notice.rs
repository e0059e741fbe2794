//! What a rotation reports: log lines, and Events where a program records them.

use std::fmt;

use reeve_client::ObjectKey;

/// A change that a rotation made, or a problem that it found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A first authority and its certificate were made.
    Created,
    /// Another authority joined the bundle; it signs the next certificate.
    Announced,
    /// Every configuration has had the authorities long enough: replicas that start later are ready at once.
    Confirmed,
    /// Another certificate was issued.
    Issued,
    /// Replaced authorities left the bundle.
    Retired,
    /// The Secret was lost, damaged or rolled back, and has its newest content again.
    Restored(String),
    /// The Secret cannot be used, and this replica has no content to restore.
    Unusable(String),
    /// The bundle of a configuration was brought up to date.
    Injected(String),
    /// A configuration does not exist, or none of its entries leads to the server: nothing is trusted there.
    NotFound(String),
    /// The certificate in use ends soon, because it could not be renewed. The text has the time.
    ExpiresSoon(String),
    /// A step failed. It is tried again every 10 s.
    Failed(String),
}

/// Records what a rotation reports. `reeve-controller` records Events of the Secret.
pub trait Journal: Send + Sync + 'static {
    /// Records a notice about the Secret. It must not block.
    fn record(&self, secret: &ObjectKey, notice: &Notice);
}

/// Records nothing: every notice is logged in any case.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogOnly;

impl Journal for LogOnly {
    fn record(&self, _: &ObjectKey, _: &Notice) {}
}

// === impl Notice ===

impl Notice {
    /// The reason, a word for machines.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Created => "CertificatesCreated",
            Self::Announced => "AuthorityAnnounced",
            Self::Confirmed => "AuthorityConfirmed",
            Self::Issued => "CertificateIssued",
            Self::Retired => "AuthorityRetired",
            Self::Restored(_) => "CertificatesRestored",
            Self::Unusable(_) => "CertificatesUnusable",
            Self::Injected(_) => "BundleInjected",
            Self::NotFound(_) => "ConfigurationNotFound",
            Self::ExpiresSoon(_) => "CertificateExpiresSoon",
            Self::Failed(_) => "RotationFailed",
        }
    }

    /// Whether it is a problem.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Restored(_)
            | Self::Unusable(_)
            | Self::ExpiresSoon(_)
            | Self::NotFound(_)
            | Self::Failed(_) => true,
            Self::Created
            | Self::Announced
            | Self::Confirmed
            | Self::Issued
            | Self::Retired
            | Self::Injected(_) => false,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.write_str("made an authority and a certificate"),
            Self::Announced => {
                f.write_str("another authority joined the bundle and signs from now on")
            }
            Self::Confirmed => f.write_str("every configuration trusts the authority"),
            Self::Issued => f.write_str("issued another certificate"),
            Self::Retired => f.write_str("replaced authorities left the bundle"),
            Self::Restored(cause) => write!(f, "restored the newest certificates: {cause}"),
            Self::Unusable(cause) => write!(f, "cannot use the certificates: {cause}"),
            Self::Injected(target) => write!(f, "brought the bundle of {target} up to date"),
            Self::NotFound(target) => write!(
                f,
                "{target} does not exist, or has no entry that leads to the server: it gets no bundle"
            ),
            Self::ExpiresSoon(at) => {
                write!(f, "the certificate in use ends at {at} and was not renewed")
            }
            Self::Failed(cause) => write!(f, "could not rotate the certificates: {cause}"),
        }
    }
}
