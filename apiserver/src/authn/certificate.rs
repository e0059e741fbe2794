//! Client certificates as identities. (apiserver: `authentication/request/x509`.)

use jiff::Timestamp;
use reeve_serve::http::ClientCertificate;
use sha2::{Digest, Sha256};
use x509_parser::parse_x509_certificate;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::rbac::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

/// The extra field of a user that identifies the credential.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The attribute of a subject that has the uid of a user. (apimachinery: `asn1.X509UID`, 1.3.6.1.4.1.57683.2.)
const UID: &[u64] = &[1, 3, 6, 1, 4, 1, 57683, 2];

/// The user of a certificate: its common name, in the groups of its organizations. `None` for one without a common name.
///
/// # Errors
/// A certificate that no authority of the server vouches for now.
pub(super) fn user(
    certificate: &ClientCertificate,
    now: Timestamp,
) -> Result<Option<User>, String> {
    if let Some(problem) = certificate.problem() {
        return Err(problem.to_owned());
    }
    match certificate.chain().first() {
        Some(leaf) => user_of(leaf, now),
        None => Ok(None),
    }
}

/// The user of a certificate in DER.
fn user_of(leaf: &[u8], now: Timestamp) -> Result<Option<User>, String> {
    let (_, parsed) = parse_x509_certificate(leaf).map_err(|error| error.to_string())?;
    // The chain was verified at the start of the connection.
    let validity = parsed.validity();
    let now = now.as_second();
    if now < validity.not_before.timestamp() || now > validity.not_after.timestamp() {
        return Err("the certificate has expired or is not yet valid".to_owned());
    }
    let subject = parsed.subject();
    let names = subject
        .iter_common_name()
        .filter_map(|name| name.as_str().ok());
    // The last one, as in Go.
    let Some(name) = names.last().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let groups = subject
        .iter_organization()
        .filter_map(|name| name.as_str().ok());
    let mut user = User::new(name, groups);
    // (apiserver: `AuthenticatedGroupAdder`.)
    let has_class = user.is_in(AUTHENTICATED) || user.is_in(UNAUTHENTICATED);
    if name != ANONYMOUS && !has_class {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user.uid = uid(subject)?;
    let digest = Sha256::digest(leaf);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = format!("X509SHA256={digest}");
    user.extra.insert(CREDENTIAL.to_owned(), vec![id]);
    Ok(Some(user))
}

/// The uid in a subject; empty if it has none.
fn uid(subject: &X509Name<'_>) -> Result<String, String> {
    let is_uid = |attribute: &&AttributeTypeAndValue<'_>| {
        let parts = attribute.attr_type().iter();
        parts.is_some_and(|parts| parts.eq(UID.iter().copied()))
    };
    let mut uids = subject.iter_attributes().filter(is_uid);
    let Some(first) = uids.next() else {
        return Ok(String::new());
    };
    let text = |attribute: &AttributeTypeAndValue<'_>| {
        let text = attribute.as_str().map(str::to_owned);
        text.map_err(|_| "unable to parse UID into a string".to_owned())
    };
    let uid = text(first)?;
    if let Some(second) = uids.next() {
        let second = text(second)?;
        return Err(format!(
            "expected 1 UID, but found multiple: [{uid} {second}]"
        ));
    }
    if uid.is_empty() {
        return Err("UID cannot be an empty string".to_owned());
    }
    Ok(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The user of a certificate with this subject, valid in the year 2026, at this time.
    fn user_at(time: &str, subject: &[(DnType, &str)]) -> Result<Option<User>, String> {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2026, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2027, 1, 1);
        parameters.distinguished_name = DistinguishedName::new();
        for (kind, text) in subject {
            parameters.distinguished_name.push(kind.clone(), *text);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        user_of(certificate.der(), at(time))
    }

    fn user(subject: &[(DnType, &str)]) -> User {
        let user = user_at("2026-06-01T00:00:00Z", subject);
        user.unwrap().expect("a user")
    }

    fn name() -> (DnType, &'static str) {
        (DnType::CommonName, "jane")
    }

    fn uid_attribute(text: &str) -> (DnType, &str) {
        (DnType::CustomDnType(UID.to_vec()), text)
    }

    #[test]
    fn each_organization_is_a_group_and_the_class_is_listed_once() {
        // Another type of the same number, because the subject of this library has one value for each type.
        let second = |text| (DnType::CustomDnType(vec![2, 5, 4, 10]), text);
        let both = user(&[name(), (DnType::OrganizationName, "a"), second("b")]);
        assert_eq!(both.groups, ["a", "b", AUTHENTICATED]);
        let listed = user(&[name(), (DnType::OrganizationName, AUTHENTICATED)]);
        assert_eq!(listed.groups, [AUTHENTICATED]);
        let anonymous = user(&[(DnType::CommonName, ANONYMOUS)]);
        assert!(anonymous.groups.is_empty());
    }

    #[test]
    fn the_uid_is_an_attribute_of_the_subject_and_not_empty() {
        assert_eq!(user(&[name()]).uid, "");
        assert_eq!(user(&[name(), uid_attribute("u-1")]).uid, "u-1");
        let empty = user_at("2026-06-01T00:00:00Z", &[name(), uid_attribute("")]);
        assert_eq!(empty.unwrap_err(), "UID cannot be an empty string");
    }

    #[test]
    fn a_certificate_without_a_name_or_outside_of_its_time_is_no_user() {
        let organization = (DnType::OrganizationName, "a");
        let nameless = user_at("2026-06-01T00:00:00Z", &[organization]);
        assert_eq!(nameless, Ok(None));
        for time in ["2025-12-31T23:59:59Z", "2027-01-01T00:00:01Z"] {
            let refused = user_at(time, &[name()]).unwrap_err();
            assert_eq!(
                refused, "the certificate has expired or is not yet valid",
                "{time}"
            );
        }
    }
}
