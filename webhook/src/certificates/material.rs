//! The content of the Secret: certificates and keys, read, checked and written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use reeve_serve::certificates::{CertificateDer, PrivateKeyDer};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{ServerName, UnixTime};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use x509_parser::parse_x509_certificate;

use super::Lifetimes;
use super::contents::{Authority, Contents, Id, Leaf};
use super::issue::{self, BACKDATE, Issued};
use super::machine::Write;

/// The keys of the Secret. The first three are those of other tools.
const BUNDLE: &str = "ca.crt";
const LEAF: &str = "tls.crt";
const LEAF_KEY: &str = "tls.key";
const SIGNER_KEY: &str = "ca.key";
const STATE: &str = "state.json";

/// The most authorities of a first content.
const MOST_AUTHORITIES: usize = 10;

/// Certificates and keys, and the facts about them.
#[derive(Clone)]
pub(super) struct Material {
    pub(super) contents: Contents,
    /// The certificates of `contents.bundle`, in its order.
    bundle: Vec<CertificateDer<'static>>,
    signer_key: String,
    leaf: CertificateDer<'static>,
    leaf_key: String,
}

/// What certificates do not hold.
#[derive(Serialize, Deserialize)]
struct State {
    generation: u64,
    since: Timestamp,
    /// The configurations that trusted an authority, by its digest in hexadecimal digits. Earlier versions did not write it.
    #[serde(default)]
    confirmed: BTreeMap<String, BTreeSet<String>>,
}

/// What a content is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    pub(super) names: &'a [String],
    pub(super) lifetimes: &'a Lifetimes,
    /// The authorities that the configurations have now. A first content keeps them for the time of overlap, because servers
    /// may still show certificates of theirs.
    pub(super) trusted: &'a [CertificateDer<'static>],
}

/// The reason why a content cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("{0} is missing or cannot be read")]
    Unreadable(&'static str),
    #[error("{SIGNER_KEY} is the key of no certificate in {BUNDLE}")]
    NoSigner,
    #[error("no certificate in {BUNDLE} signed {LEAF}")]
    NoIssuer,
    #[error("{LEAF_KEY} is not the key of {LEAF}")]
    OtherKey,
    #[error("no certificate could be made: {0}")]
    Issue(String),
}

impl From<rcgen::Error> for Problem {
    fn from(error: rcgen::Error) -> Self {
        Self::Issue(error.to_string())
    }
}

/// The digest of a certificate.
pub(super) fn id(certificate: &CertificateDer<'_>) -> Id {
    Sha256::digest(certificate).into()
}

/// The certificates in a PEM text. `None` if one cannot be read.
pub(super) fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .ok()
}

// === impl Material ===

impl Material {
    /// Whether a rotation wrote the data of a Secret, though what is left of it may not be usable.
    pub(super) fn is_ours(data: &BTreeMap<String, ByteString>) -> bool {
        let state = data.get(STATE);
        state.is_some_and(|state| serde_json::from_slice::<State>(&state.0).is_ok())
    }

    /// Reads the data of a Secret. The leaf fits if it is for all of `names`.
    pub(super) fn read(
        data: &BTreeMap<String, ByteString>,
        names: &[String],
    ) -> Result<Self, Problem> {
        let bytes = |key: &'static str| {
            let value = data.get(key).filter(|value| !value.0.is_empty());
            value
                .map(|value| value.0.as_slice())
                .ok_or(Problem::Unreadable(key))
        };
        let text = |key: &'static str| {
            let text = String::from_utf8(bytes(key)?.to_vec());
            text.map_err(|_| Problem::Unreadable(key))
        };
        let state: State =
            serde_json::from_slice(bytes(STATE)?).map_err(|_| Problem::Unreadable(STATE))?;
        let bundle = certificates(bytes(BUNDLE)?).ok_or(Problem::Unreadable(BUNDLE))?;
        let leaf = certificates(bytes(LEAF)?).and_then(|chain| chain.into_iter().next());
        let leaf = leaf.ok_or(Problem::Unreadable(LEAF))?;
        Self::of(
            state,
            bundle,
            text(SIGNER_KEY)?,
            leaf,
            text(LEAF_KEY)?,
            names,
        )
    }

    fn of(
        state: State,
        bundle: Vec<CertificateDer<'static>>,
        signer_key: String,
        leaf: CertificateDer<'static>,
        leaf_key: String,
        names: &[String],
    ) -> Result<Self, Problem> {
        let authorities: Option<Vec<Authority>> = bundle.iter().map(authority).collect();
        let authorities = authorities.ok_or(Problem::Unreadable(BUNDLE))?;
        let confirmed = authorities.iter().filter_map(|authority| {
            let configurations = state.confirmed.get(&hexadecimal(&authority.id))?;
            Some((authority.id, configurations.clone()))
        });
        let confirmed = confirmed.collect();
        let key = rcgen::KeyPair::from_pem(&signer_key);
        let key = key.map_err(|_| Problem::Unreadable(SIGNER_KEY))?;
        let signs = |certificate: &&CertificateDer<'static>| {
            parse_x509_certificate(certificate).is_ok_and(|(_, parsed)| {
                parsed.public_key().subject_public_key.data.as_ref() == key.public_key_raw()
            })
        };
        let signer = id(bundle.iter().find(signs).ok_or(Problem::NoSigner)?);
        let (issued, expires) = times(&leaf).ok_or(Problem::Unreadable(LEAF))?;
        let leaf_private = private(&leaf_key)?;
        let pair =
            rustls::sign::CertifiedKey::from_der(vec![leaf.clone()], leaf_private, &provider());
        pair.map_err(|_| Problem::OtherKey)?;
        let at = issued.as_second();
        let signed = |name: &str, root: &CertificateDer<'static>| verifies(&leaf, root, name, at);
        // The first name, for a check of the signature alone.
        let own = all_names(&leaf).into_iter().next().unwrap_or_default();
        let issuer = bundle
            .iter()
            .find(|root| signed(&own, root))
            .ok_or(Problem::NoIssuer)?;
        let fits = names.iter().all(|name| signed(name, issuer));
        let leaf_facts = Leaf {
            id: id(&leaf),
            issuer: id(issuer),
            issued,
            expires,
            fits,
        };
        Ok(Self {
            contents: Contents {
                generation: state.generation,
                bundle: authorities,
                signer,
                leaf: leaf_facts,
                since: state.since,
                confirmed,
            },
            bundle,
            signer_key,
            leaf,
            leaf_key,
        })
    }

    /// The data of the Secret.
    pub(super) fn data(&self) -> BTreeMap<String, ByteString> {
        let state = State::of(&self.contents);
        let state = serde_json::to_vec(&state).expect("a number, a time and texts can be encoded");
        [
            (BUNDLE, self.bundle_pem().into_bytes()),
            (SIGNER_KEY, self.signer_key.clone().into_bytes()),
            (LEAF, pem(&self.leaf).into_bytes()),
            (LEAF_KEY, self.leaf_key.clone().into_bytes()),
            (STATE, state),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), ByteString(value)))
        .collect()
    }

    /// All authorities in PEM, for the configurations.
    pub(super) fn bundle_pem(&self) -> String {
        self.bundle.iter().map(pem).collect()
    }

    /// The pair to serve.
    pub(super) fn pair(
        &self,
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Problem> {
        Ok((self.leaf.clone(), private(&self.leaf_key)?))
    }

    /// A new leaf, if the API server can verify it. One that it cannot would be replaced without end.
    fn fitting(self, names: &[String]) -> Result<Self, Problem> {
        if self.contents.leaf.fits {
            return Ok(self);
        }
        let names = names.join(", ");
        Err(Problem::Issue(format!(
            "one of the names is no host name or address without a port: {names}"
        )))
    }

    /// Performs a write of the machine: the next content.
    pub(super) fn next(
        write: &Write,
        found: Option<&Self>,
        known: Option<&Self>,
        terms: &Terms<'_>,
        now: Timestamp,
        random: u64,
    ) -> Result<Self, Problem> {
        let Terms {
            names,
            lifetimes,
            trusted,
        } = *terms;
        // Whole seconds, as in certificates.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let base = || found.ok_or(Problem::Unreadable(STATE));
        let named = || format!("reeve-webhook {}-{random:08x}", now.as_second());
        let life = lifetimes.leaf;
        match write {
            Write::Create => {
                let name = named();
                let signer = issue::authority(&name, now, lifetimes.authority)?;
                let life = life.min(lifetimes.authority);
                let leaf = issue::leaf(&name, &signer.key, names, now, life)?;
                let state = State {
                    generation: 1,
                    since: now,
                    confirmed: BTreeMap::new(),
                };
                let mut bundle = vec![signer.certificate];
                for certificate in trusted {
                    let lives = times(certificate).is_some_and(|(_, expires)| expires > now);
                    if lives && !bundle.contains(certificate) && bundle.len() < MOST_AUTHORITIES {
                        bundle.push(certificate.clone());
                    }
                }
                let key = signer.key;
                Self::of(state, bundle, key, leaf.certificate, leaf.key, names)?.fitting(names)
            }
            Write::Restore { generation } => {
                let known = known.ok_or(Problem::Unreadable(STATE))?;
                let mut next = known.clone();
                // In the order in which the contents take them.
                for certificate in found.into_iter().flat_map(|found| &found.bundle) {
                    if !next.bundle.contains(certificate) {
                        next.bundle.push(certificate.clone());
                    }
                }
                let found = found.map(|found| &found.contents);
                next.contents.restore(*generation, found, now);
                Ok(next)
            }
            Write::Confirm(authorities, configurations) => {
                let mut next = base()?.clone();
                next.contents.confirm(authorities, configurations);
                Ok(next)
            }
            Write::Announce => {
                let base = base()?;
                let Issued { certificate, key } =
                    issue::authority(&named(), now, lifetimes.authority)?;
                let mut bundle = base.bundle.clone();
                bundle.push(certificate);
                let state = State {
                    generation: base.contents.generation + 1,
                    since: now,
                    ..State::of(&base.contents)
                };
                Self::of(
                    state,
                    bundle,
                    key,
                    base.leaf.clone(),
                    base.leaf_key.clone(),
                    names,
                )
            }
            Write::Issue => {
                let base = base()?;
                let signer = base.contents.signer;
                let facts = base.contents.authority(signer).ok_or(Problem::NoSigner)?;
                let rest =
                    Duration::try_from(facts.expires.duration_since(now)).unwrap_or_default();
                let certificate = base
                    .bundle
                    .iter()
                    .find(|certificate| id(certificate) == signer);
                let name = certificate.and_then(common_name).ok_or(Problem::NoSigner)?;
                let mut all = names.to_vec();
                if !base.contents.leaf.fits {
                    // Replicas with other names keep theirs until the next regular leaf, so they do not replace each
                    // other's leaf.
                    let others = all_names(&base.leaf).into_iter();
                    all.extend(others.filter(|name| !names.contains(name)));
                }
                let leaf = issue::leaf(&name, &base.signer_key, &all, now, life.min(rest))?;
                let state = State {
                    generation: base.contents.generation + 1,
                    ..State::of(&base.contents)
                };
                let (bundle, key) = (base.bundle.clone(), base.signer_key.clone());
                Self::of(state, bundle, key, leaf.certificate, leaf.key, names)?.fitting(names)
            }
            Write::Retire(old) => {
                let mut next = base()?.clone();
                next.bundle
                    .retain(|certificate| !old.contains(&id(certificate)));
                next.contents.retire(old);
                Ok(next)
            }
        }
    }
}

// === impl State ===

impl State {
    fn of(contents: &Contents) -> Self {
        let confirmed = contents.confirmed.iter();
        Self {
            generation: contents.generation,
            since: contents.since,
            confirmed: confirmed
                .map(|(id, configurations)| (hexadecimal(id), configurations.clone()))
                .collect(),
        }
    }
}

impl std::fmt::Debug for Material {
    /// Without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Material").field(&self.contents).finish()
    }
}

fn hexadecimal(id: &Id) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn authority(certificate: &CertificateDer<'static>) -> Option<Authority> {
    let (issued, expires) = times(certificate)?;
    Some(Authority {
        id: id(certificate),
        issued,
        expires,
    })
}

/// The times of issue and end.
fn times(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let validity = parsed.validity();
    let from = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
    let until = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
    let backdate = SignedDuration::try_from(BACKDATE).ok()?;
    Some((from.checked_add(backdate).ok()?, until))
}

fn common_name(certificate: &CertificateDer<'static>) -> Option<String> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

/// The alternative names: host names and addresses.
fn all_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    use x509_parser::extensions::GeneralName;
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let Ok(Some(names)) = parsed.subject_alternative_name() else {
        return Vec::new();
    };
    let names = names.value.general_names.iter();
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let four =
                <[u8; 4]>::try_from(*bytes).map(|four| std::net::IpAddr::from(four).to_string());
            let six =
                <[u8; 16]>::try_from(*bytes).map(|six| std::net::IpAddr::from(six).to_string());
            four.or(six).ok()
        }
        _ => None,
    };
    names.filter_map(text).collect()
}

/// Whether a client that trusts `root` accepts the leaf for `name` at a time.
fn verifies(
    leaf: &CertificateDer<'_>,
    root: &CertificateDer<'static>,
    name: &str,
    at: i64,
) -> bool {
    let mut roots = RootCertStore::empty();
    if roots.add(root.clone()).is_err() {
        return false;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let (Ok(verifier), Ok(name)) = (verifier, ServerName::try_from(name)) else {
        return false;
    };
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at).unwrap_or(0)));
    verifier
        .verify_server_cert(leaf, &[], &name, &[], at)
        .is_ok()
}

fn private(pem: &str) -> Result<PrivateKeyDer<'static>, Problem> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| Problem::Unreadable(LEAF_KEY))
}

fn pem(certificate: &CertificateDer<'static>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.push_str(std::str::from_utf8(line).unwrap_or_default());
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn provider() -> Arc<CryptoProvider> {
    reeve_serve::certificates::provider()
}

#[cfg(test)]
#[path = "material_tests.rs"]
mod tests;
