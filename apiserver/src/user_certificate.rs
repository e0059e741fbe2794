//! Certificates that make their holder a user of a server.

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
    SigningKey,
};

/// A certificate that makes its holder a user: the common name is the name, the organization a group.
#[derive(Clone)]
pub struct UserCertificate {
    certificate: String,
    key: String,
}

// === impl UserCertificate ===

impl UserCertificate {
    pub(crate) fn issue(
        user: &str,
        group: Option<&str>,
        issuer: &Issuer<'_, impl SigningKey>,
    ) -> Result<Self, rcgen::Error> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        let name = &mut parameters.distinguished_name;
        name.push(DnType::CommonName, user);
        if let Some(group) = group {
            name.push(DnType::OrganizationName, group);
        }
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: parameters.signed_by(&key, issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// The certificate, PEM: `client-certificate-data` of a kubeconfig, in base64.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The key, PEM: `client-key-data` of a kubeconfig, in base64.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl std::fmt::Debug for UserCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserCertificate").finish_non_exhaustive()
    }
}
