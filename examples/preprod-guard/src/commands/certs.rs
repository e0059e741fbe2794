//! Certificates in files: an authority, and leaves for the webhook server and for callers.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use reeve_clock::Clock;

use crate::program::BoxError;

const HOUR: Duration = Duration::from_secs(3600);
const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const LEAF_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The names of a server's certificate.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
}

/// Writes an authority and a server's certificate of one year into `directory`: `ca.crt`, `ca.key`, `tls.crt`, `tls.key`.
/// An authority that is there stays.
///
/// # Errors
/// When a file cannot be read or written, or a name is invalid.
pub fn authority_and_leaf(directory: &Path, names: &Names, clock: &Clock) -> Result<(), BoxError> {
    fs::create_dir_all(directory)?;
    if !directory.join("ca.key").exists() {
        let key = KeyPair::generate()?;
        let params = authority(clock);
        fs::write(directory.join("ca.crt"), params.self_signed(&key)?.pem())?;
        write_key(&directory.join("ca.key"), &key.serialize_pem())?;
    }
    let mut params = CertificateParams::new(names.dns.clone())?;
    let addresses = names.ips.iter().copied().map(SanType::IpAddress);
    params.subject_alt_names.extend(addresses);
    params.distinguished_name = named(&[(DnType::CommonName, "preprod-guard webhook")]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let (certificate, key) = sign(params, directory, clock)?;
    fs::write(directory.join("tls.crt"), certificate)?;
    write_key(&directory.join("tls.key"), &key)?;
    Ok(())
}

/// A client certificate of one year and its key in PEM, signed by `ca.crt` and `ca.key` in `directory`: the user is its common
/// name, the group is its organization. The authority is one of [`authority_and_leaf`].
///
/// # Errors
/// When the authority cannot be read.
pub fn client(
    directory: &Path,
    user: &str,
    group: Option<&str>,
    clock: &Clock,
) -> Result<(String, String), BoxError> {
    sign(of_client(user, group), directory, clock)
}

/// A request for such a certificate and its key in PEM.
pub(super) fn request(user: &str, group: Option<&str>) -> Result<(String, String), BoxError> {
    let key = KeyPair::generate()?;
    let request = of_client(user, group).serialize_request(&key)?;
    Ok((request.pem()?, key.serialize_pem()))
}

fn of_client(user: &str, group: Option<&str>) -> CertificateParams {
    let mut names = vec![(DnType::CommonName, user)];
    names.extend(group.map(|group| (DnType::OrganizationName, group)));
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&names);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn sign(
    mut params: CertificateParams,
    directory: &Path,
    clock: &Clock,
) -> Result<(String, String), BoxError> {
    valid(&mut params, clock, LEAF_LIFE);
    let authority_key = KeyPair::from_pem(&fs::read_to_string(directory.join("ca.key"))?)?;
    // Its name and its key are all that a signature has of an authority.
    let issuer = Issuer::new(authority(clock), authority_key);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn authority(clock: &Clock) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&[(DnType::CommonName, "preprod-guard")]);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid(&mut params, clock, AUTHORITY_LIFE);
    params
}

fn named(names: &[(DnType, &str)]) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    for (kind, name) in names {
        all.push(kind.clone(), *name);
    }
    all
}

/// From an hour ago on, for API servers whose clock is behind.
fn valid(params: &mut CertificateParams, clock: &Clock, life: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = Duration::from_secs(u64::try_from(clock.now().as_second()).unwrap_or(0));
    params.not_before = epoch + now.saturating_sub(HOUR);
    params.not_after = epoch + now + life;
}

/// Writes a file that only its owner can read.
///
/// # Errors
/// When it cannot be written.
pub fn write_key(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    // An older file keeps its mode when it is opened.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}
