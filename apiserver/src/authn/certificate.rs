//! Client certificates as identities. (apiserver: `authentication/request/x509`.)

use jiff::Timestamp;
use reeve_serve::http::ClientCertificate;
use sha2::{Digest, Sha256};
use x509_parser::parse_x509_certificate;

use crate::rbac::{AUTHENTICATED, User};

/// The extra field of a user that identifies the credential.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

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
    let Some(leaf) = certificate.chain().first() else {
        return Ok(None);
    };
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
    let groups = groups.chain([AUTHENTICATED]);
    let mut user = User::new(name, groups);
    let digest = Sha256::digest(leaf);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = format!("X509SHA256={digest}");
    user.extra.insert(CREDENTIAL.to_owned(), vec![id]);
    Ok(Some(user))
}
