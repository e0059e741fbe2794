//! Authorities and leaves, made with the clock of the program.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use reeve_clock::LONGEST;
use reeve_serve::certificates::CertificateDer;

/// A certificate is valid from this time before its issue on, for API servers whose clock is behind.
pub(super) const BACKDATE: Duration = Duration::from_secs(3600);

/// A certificate and its key in PEM.
pub(super) struct Issued {
    pub(super) certificate: CertificateDer<'static>,
    pub(super) key: String,
}

/// An authority with this name.
pub(super) fn authority(
    name: &str,
    now: Timestamp,
    life: Duration,
) -> Result<Issued, rcgen::Error> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(name, now, life)?.self_signed(&key)?;
    Ok(Issued {
        certificate: certificate.der().clone(),
        key: key.serialize_pem(),
    })
}

/// A leaf for these names, signed by the authority of this name.
pub(super) fn leaf(
    authority: &str,
    authority_key: &str,
    names: &[String],
    now: Timestamp,
    life: Duration,
) -> Result<Issued, rcgen::Error> {
    let issuer_key = KeyPair::from_pem(authority_key)?;
    let issuer = Issuer::new(authority_params(authority, now, life)?, issuer_key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    let common = names.first().map_or("webhook", String::as_str);
    // The field has at most 64 characters; clients check the alternative names.
    let common: String = common.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, common);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    valid(&mut params, now, life);
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(Issued {
        certificate: certificate.der().clone(),
        key: key.serialize_pem(),
    })
}

fn authority_params(
    name: &str,
    now: Timestamp,
    life: Duration,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid(&mut params, now, life);
    Ok(params)
}

fn valid(params: &mut CertificateParams, now: Timestamp, life: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    params.not_before = epoch + now.saturating_sub(BACKDATE);
    params.not_after = epoch + (now + life.min(LONGEST));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_without_an_end_is_cut() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(authority("test", now, Duration::MAX).is_ok());
    }
}
