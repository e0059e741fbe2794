//! Certificates in files: an authority, and leaves for the webhook server and for callers.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
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
/// A key of an authority that is there stays. Its certificate is written again with the same name and key if it is missing,
/// over, or one of another key. Each file is replaced at once.
///
/// # Errors
/// When there is no name, a name is invalid, or a file cannot be read or written.
pub fn authority_and_leaf(directory: &Path, names: &Names, clock: &Clock) -> Result<(), BoxError> {
    if names.dns.is_empty() && names.ips.is_empty() {
        return Err("a certificate without names fits no server: give --dns or --ip".into());
    }
    fs::create_dir_all(directory)?;
    let file = directory.join("ca.key");
    if !file.exists() {
        write_key(&file, &KeyPair::generate()?.serialize_pem())?;
    }
    let key = KeyPair::from_pem(&fs::read_to_string(&file)?)
        .map_err(|error| format!("{} is not a key: {error}", file.display()))?;
    let file = directory.join("ca.crt");
    if !is_usable(&file, &key, clock) {
        replace(&file, &authority(clock).self_signed(&key)?.pem(), 0o644)?;
    }
    let mut params = CertificateParams::new(names.dns.clone())?;
    let addresses = names.ips.iter().copied().map(SanType::IpAddress);
    params.subject_alt_names.extend(addresses);
    params.distinguished_name = named(&[(DnType::CommonName, "preprod-guard webhook")]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let (certificate, key) = sign(params, directory, clock)?;
    replace(&directory.join("tls.crt"), &certificate, 0o644)?;
    write_key(&directory.join("tls.key"), &key)?;
    Ok(())
}

/// Whether a file has a certificate of `key` that is valid for as long as a leaf.
fn is_usable(file: &Path, key: &KeyPair, clock: &Clock) -> bool {
    let Some(der) = fs::read(file).ok().and_then(|pem| first_of_pem(&pem)) else {
        return false;
    };
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(&der) else {
        return false;
    };
    let life = i64::try_from(LEAF_LIFE.as_secs()).unwrap_or(i64::MAX);
    let end = certificate.validity().not_after.timestamp();
    let is_of_key = certificate.public_key().raw == key.subject_public_key_info();
    is_of_key && end > clock.now().as_second().saturating_add(life)
}

/// The bytes of the first certificate in a PEM text.
fn first_of_pem(pem: &[u8]) -> Option<Vec<u8>> {
    let lines = std::str::from_utf8(pem).ok()?.lines();
    let lines = lines.skip_while(|line| !line.starts_with("-----BEGIN CERTIFICATE"));
    let body: String = lines
        .skip(1)
        .take_while(|line| !line.starts_with("-----"))
        .collect();
    STANDARD.decode(body).ok()
}

/// The end of the first certificate in a PEM text.
pub(super) fn end_of_certificate(pem: &[u8]) -> Option<Timestamp> {
    let der = first_of_pem(pem)?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
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

/// Writes a file that only its owner can read. The file is replaced at once.
///
/// # Errors
/// When it cannot be written.
pub fn write_key(path: &Path, text: &str) -> io::Result<()> {
    replace(path, text, 0o600)
}

fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let mut file = options.create_new(true).write(true).mode(mode).open(&new)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path));
    written.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_is_missing_over_or_of_another_key_is_written_again() {
        let directory = std::env::temp_dir().join(format!("preprod-certs-{}", std::process::id()));
        let names = Names {
            dns: vec!["guard.example.com".to_owned()],
            ips: Vec::new(),
        };
        let clock = Clock::system();
        let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
        let none = authority_and_leaf(&directory, &Names::default(), &clock);
        assert!(none.unwrap_err().to_string().contains("--dns or --ip"));

        authority_and_leaf(&directory, &names, &clock).unwrap();
        let (authority, key, leaf) = (read("ca.crt"), read("ca.key"), read("tls.crt"));
        authority_and_leaf(&directory, &names, &clock).unwrap();
        assert_eq!(
            (read("ca.crt"), read("ca.key")),
            (authority.clone(), key.clone())
        );
        assert_ne!(read("tls.crt"), leaf);

        let of_key = KeyPair::from_pem(&key).unwrap();
        let usable = || is_usable(&directory.join("ca.crt"), &of_key, &clock);
        fs::remove_file(directory.join("ca.crt")).unwrap();
        assert!(!usable());
        authority_and_leaf(&directory, &names, &clock).unwrap();
        assert!(usable());
        let another = KeyPair::generate().unwrap();
        let foreign = super::authority(&clock).self_signed(&another).unwrap();
        let mut over = super::authority(&clock);
        over.not_after = rcgen::date_time_ymd(2020, 1, 1);
        over.not_before = rcgen::date_time_ymd(2010, 1, 1);
        let over = over.self_signed(&of_key).unwrap();
        for unusable in [foreign.pem(), over.pem(), "damaged".to_owned()] {
            fs::write(directory.join("ca.crt"), unusable).unwrap();
            assert!(!usable());
            authority_and_leaf(&directory, &names, &clock).unwrap();
            assert!(usable());
        }
        assert_eq!(read("ca.key"), key);
        fs::remove_dir_all(directory).unwrap();
    }
}
