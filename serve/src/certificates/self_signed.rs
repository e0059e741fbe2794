//! A certificate that the process makes for itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use reeve_clock::Clock;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::Error;

/// Years that a self-signed certificate is valid. A process ends sooner.
const YEARS: i16 = 10;

/// A certificate for `localhost`, 127.0.0.1 and ::1, and its key.
pub(super) fn pair(
    clock: &Clock,
) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for address in [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        params.subject_alt_names.push(SanType::IpAddress(address));
    }
    // Valid from yesterday on, for clients whose clock is behind.
    let today = jiff::tz::TimeZone::UTC.to_datetime(clock.now()).date();
    let date = |year, month, day| {
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(year), part(month), part(day))
    };
    let from = today.yesterday().unwrap_or(today);
    params.not_before = date(from.year(), from.month(), from.day());
    // The 28th exists in every month.
    params.not_after = date(today.year() + YEARS, today.month(), today.day().min(28));
    let certificate = params.self_signed(&key)?.der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok((certificate, key))
}
