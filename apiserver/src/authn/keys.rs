//! Keys of service-account tokens from files: RSA and ECDSA, as other programs sign and verify them.
//! (kube-apiserver: `--service-account-signing-key-file`, `--service-account-key-file`.)

use std::fmt;
use std::sync::Arc;

use reeve_serve::certificates::provider;
use rustls::SignatureScheme;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::sign::SigningKey;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

/// The algorithms of tokens, with the signature of TLS that is made in the same way, and the bytes of one number of it; zero for
/// RSA, whose signature is one number.
const ALGORITHMS: &[(&str, SignatureScheme, usize)] = &[
    ("RS256", SignatureScheme::RSA_PKCS1_SHA256, 0),
    ("ES256", SignatureScheme::ECDSA_NISTP256_SHA256, 32),
    ("ES384", SignatureScheme::ECDSA_NISTP384_SHA384, 48),
];

/// Keys of tokens, their issuer and their audiences.
#[derive(Clone)]
pub(crate) struct AccountKeys {
    /// The issuers that are accepted; the first one is that of new tokens.
    pub(crate) issuers: Vec<String>,
    /// The audiences of this API; the first one is that of tokens that request none.
    pub(crate) audiences: Vec<String>,
    /// Signs new tokens.
    pub(crate) signing: Option<Arc<dyn SigningKey>>,
    /// Verify tokens.
    pub(crate) verifying: Vec<PublicKey>,
}

/// The bits of a public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey(Vec<u8>);

// === impl AccountKeys ===

impl fmt::Debug for AccountKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountKeys")
            .field("issuers", &self.issuers)
            .finish_non_exhaustive()
    }
}

impl AccountKeys {
    /// Signs `message` with the private key: the algorithm's name goes into the header of the token, so `message` depends on it.
    pub(super) fn sign(&self, message: impl FnOnce(&str) -> String) -> Option<String> {
        use base64::Engine as _;
        let key = self.signing.as_ref()?;
        let schemes = ALGORITHMS.iter().map(|(_, scheme, _)| *scheme);
        let signer = key.choose_scheme(&schemes.collect::<Vec<_>>())?;
        let (name, _, width) = ALGORITHMS
            .iter()
            .find(|(_, scheme, _)| *scheme == signer.scheme())?;
        let message = message(name);
        let mut signature = signer.sign(message.as_bytes()).ok()?;
        if *width > 0 {
            signature = numbers_of(&signature, *width)?;
        }
        let signature = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(signature);
        Some(format!("{message}.{signature}"))
    }

    /// Whether one of the public keys signed `message`.
    pub(super) fn verify(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        let Some((_, scheme, width)) = ALGORITHMS.iter().find(|(name, ..)| *name == algorithm)
        else {
            return false;
        };
        let signature = match width {
            0 => signature.to_vec(),
            width if signature.len() == 2 * width => sequence_of(signature, *width),
            _ => return false,
        };
        let provider = provider();
        let verifiers = provider.signature_verification_algorithms.mapping;
        let verifiers = verifiers.iter().filter(|(of, _)| of == scheme);
        let mut verifiers = verifiers.flat_map(|(_, verifiers)| verifiers.iter());
        verifiers.any(|verifier| {
            self.verifying.iter().any(|key| {
                let verified = verifier.verify_signature(&key.0, message, &signature);
                verified.is_ok()
            })
        })
    }
}

/// The private key in a PEM file.
///
/// # Errors
/// When there is none, or it is not RSA or ECDSA with P-256 or P-384.
pub(crate) fn signing_key(pem: &[u8]) -> Result<Arc<dyn SigningKey>, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
    let key = provider().key_provider.load_private_key(key);
    let key = key.map_err(|error| error.to_string())?;
    let schemes = ALGORITHMS.iter().map(|(_, scheme, _)| *scheme);
    if key.choose_scheme(&schemes.collect::<Vec<_>>()).is_none() {
        return Err("the key is not of RSA or ECDSA with P-256 or P-384".to_owned());
    }
    Ok(key)
}

/// The public keys in a PEM file: of public keys, certificates and private keys.
///
/// # Errors
/// When there is none, or one cannot be read.
pub(crate) fn public_keys(pem: &[u8]) -> Result<Vec<PublicKey>, String> {
    let mut keys = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        let (kind, der) = section.map_err(|error| error.to_string())?;
        match kind {
            SectionKind::PublicKey => keys.push(PublicKey::of_info(&der)?),
            SectionKind::Certificate => {
                let parsed = x509_parser::parse_x509_certificate(&der);
                let (_, certificate) = parsed.map_err(|error| error.to_string())?;
                keys.push(PublicKey::of(certificate.public_key()));
            }
            SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey | SectionKind::PrivateKey => {
                let key = PrivateKeyDer::from_pem(kind, der).ok_or("not a private key")?;
                let key = provider().key_provider.load_private_key(key);
                let key = key.map_err(|error| error.to_string())?;
                let info = key.public_key().ok_or("the public key is unknown")?;
                keys.push(PublicKey::of_info(&info)?);
            }
            _ => {}
        }
    }
    if keys.is_empty() {
        return Err("there is no key in it".to_owned());
    }
    Ok(keys)
}

// === impl PublicKey ===

impl PublicKey {
    fn of(info: &SubjectPublicKeyInfo<'_>) -> Self {
        Self(info.subject_public_key.data.to_vec())
    }

    fn of_info(der: &[u8]) -> Result<Self, String> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|error| error.to_string())?;
        Ok(Self::of(&info))
    }
}

/// The two numbers of an ECDSA signature in DER, each of `width` bytes. (RFC 7518, 3.4.)
fn numbers_of(der: &[u8], width: usize) -> Option<Vec<u8>> {
    // Both numbers are below 128 bytes, so each length is one byte.
    let mut rest = der.strip_prefix(&[0x30])?.get(1..)?;
    let mut numbers = Vec::with_capacity(2 * width);
    for _ in 0..2 {
        let (&length, after) = rest.strip_prefix(&[0x02])?.split_first()?;
        let (number, after) = after.split_at_checked(usize::from(length))?;
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let number = &number[zeros..];
        numbers.resize(numbers.len() + width.checked_sub(number.len())?, 0);
        numbers.extend_from_slice(number);
        rest = after;
    }
    Some(numbers)
}

/// The inverse of [`numbers_of`].
fn sequence_of(numbers: &[u8], width: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(2 * width + 6);
    for number in numbers.chunks(width) {
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let number = &number[zeros.min(width - 1)..];
        let is_negative = number[0] & 0x80 != 0;
        content.extend([0x02, number.len() as u8 + u8::from(is_negative)]);
        if is_negative {
            content.push(0);
        }
        content.extend_from_slice(number);
    }
    let mut sequence = vec![0x30, content.len() as u8];
    sequence.extend(content);
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384};

    fn keys(signing: Option<&KeyPair>, verifying: &str) -> AccountKeys {
        AccountKeys {
            issuers: vec!["https://issuer".to_owned()],
            audiences: vec!["https://issuer".to_owned()],
            signing: signing.map(|pair| signing_key(pair.serialize_pem().as_bytes()).unwrap()),
            verifying: public_keys(verifying.as_bytes()).unwrap(),
        }
    }

    fn split(token: &str) -> (&str, Vec<u8>) {
        use base64::Engine as _;
        let (message, signature) = token.rsplit_once('.').unwrap();
        let signature = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(signature);
        (message, signature.unwrap())
    }

    #[test]
    fn a_key_verifies_what_its_pair_signed_and_nothing_else() {
        for (algorithm, name) in [
            (&PKCS_ECDSA_P256_SHA256, "ES256"),
            (&PKCS_ECDSA_P384_SHA384, "ES384"),
        ] {
            let pair = KeyPair::generate_for(algorithm).unwrap();
            let other = KeyPair::generate_for(algorithm).unwrap();
            let signer = keys(Some(&pair), &pair.public_key_pem());
            let stranger = keys(None, &other.public_key_pem());
            // Numbers with leading zeros are of other lengths in DER.
            for count in 0..200 {
                let token = signer.sign(|name| format!("{name}.{count}")).unwrap();
                let (message, signature) = split(&token);
                assert_eq!(message, format!("{name}.{count}"));
                assert!(signer.verify(name, message.as_bytes(), &signature));
                assert!(!signer.verify(name, b"another message", &signature));
                assert!(!stranger.verify(name, message.as_bytes(), &signature));
                assert!(!signer.verify("none", message.as_bytes(), &signature));
            }
        }
    }

    #[test]
    fn public_keys_are_read_from_keys_and_certificates() {
        let pair = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&pair).unwrap();
        let expected = public_keys(pair.public_key_pem().as_bytes()).unwrap();
        for pem in [certificate.pem(), pair.serialize_pem()] {
            assert_eq!(public_keys(pem.as_bytes()).unwrap(), expected, "{pem}");
        }
        let two = format!("{}{}", pair.public_key_pem(), certificate.pem());
        assert_eq!(public_keys(two.as_bytes()).unwrap().len(), 2);
        assert!(public_keys(b"nothing").is_err());
        assert!(signing_key(pair.public_key_pem().as_bytes()).is_err());
    }

    #[test]
    fn a_damaged_signature_has_no_numbers() {
        for der in [
            &[][..],
            &[0x30, 0],
            &[0x30, 4, 2, 9, 1, 1],
            &[0x31, 6, 2, 1, 1, 2, 1, 1],
        ] {
            assert_eq!(numbers_of(der, 32), None, "{der:?}");
        }
        assert_eq!(
            numbers_of(&[0x30, 7, 2, 2, 0, 0x80, 2, 1, 1], 2),
            Some(vec![0, 0x80, 0, 1])
        );
        assert_eq!(
            sequence_of(&[0, 0x80, 0, 0], 2),
            [0x30, 7, 2, 2, 0, 0x80, 2, 1, 0]
        );
    }
}
