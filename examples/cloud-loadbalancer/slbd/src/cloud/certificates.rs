//! Certificates of HTTPS listeners.
//!
//! What is uploaded is parsed, and kept as PEM of its own writing, so that the data plane gets nothing but a chain and its key.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::{Map, Value, json};

use super::context::time;
use super::state::{Certificate, PrivateKey, State};
use super::{Answered, Context, Refusal, fields};
use crate::parameters::Parameters;

const LONGEST_NAME: usize = 80;
/// The longest chain, and the longest key, in bytes.
const LONGEST_PEM: usize = 32 << 10;
/// The most certificates of a chain.
const LONGEST_CHAIN: usize = 10;
/// The characters of a line of PEM.
const LINE: usize = 64;

fn name(call: &Parameters) -> Result<String, Refusal> {
    let name = "ServerCertificateName";
    let text = call.required(name)?;
    if text.chars().count() > LONGEST_NAME || text.chars().any(char::is_control) {
        return Err(Refusal::invalid(name));
    }
    Ok(text.to_owned())
}

fn malformed(name: &str) -> Refusal {
    let message = format!("The specified parameter {name} format is error.");
    Refusal::new(400, "InvalidParameter", message)
}

pub(super) fn upload(state: &mut State, context: Context<'_>, call: &Parameters) -> Answered {
    let most = context.rules.certificates;
    if state.certificates.len() >= most {
        let code = "ServerCertificateNumberOverLimit";
        return Err(Refusal::quota(code, "server certificates", most));
    }
    let name = match call.text("ServerCertificateName") {
        Some(_) => Some(name(call)?),
        None => None,
    };
    let chain = chain(call.required("ServerCertificate")?)?;
    let key = key(call.required("PrivateKey")?)?;
    let (chain_pem, key_pem) = (
        chain.iter().map(|one| pem("CERTIFICATE", one)).collect(),
        key_pem(&key),
    );
    let fingerprint = fingerprint(&chain[0]);
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let message = "The certificate and the key do not match.";
            Refusal::new(400, "CertificateNotMatchPrivateKey", message)
        }
        rustls::Error::InvalidCertificate(_) => malformed("ServerCertificate"),
        _ => malformed("PrivateKey"),
    })?;
    let id = state.new_id("cert");
    let certificate = Certificate {
        name: name.unwrap_or_else(|| id.clone()),
        chain: chain_pem,
        key: PrivateKey::new(key_pem),
        fingerprint,
        created_at: context.now,
        id: id.clone(),
    };
    let answer = shown(context, &certificate);
    state.certificates.insert(id, certificate);
    Ok(answer)
}

fn chain(text: &str) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    let wrong = || malformed("ServerCertificate");
    if text.len() > LONGEST_PEM {
        return Err(wrong());
    }
    let chain = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| wrong())?;
    if chain.is_empty() || chain.len() > LONGEST_CHAIN {
        return Err(wrong());
    }
    Ok(chain)
}

fn key(text: &str) -> Result<PrivateKeyDer<'static>, Refusal> {
    if text.len() > LONGEST_PEM {
        return Err(malformed("PrivateKey"));
    }
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
        if text.contains("ENCRYPTED") {
            return Refusal::new(400, "PrivateKeyEncryption", "The key is encrypted.");
        }
        malformed("PrivateKey")
    })
}

fn key_pem(key: &PrivateKeyDer<'_>) -> String {
    let label = match key {
        PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
        PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
        _ => "PRIVATE KEY",
    };
    pem(label, key.secret_der())
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(LINE) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

fn fingerprint(certificate: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, certificate);
    let bytes = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    bytes.collect::<Vec<String>>().join(":")
}

fn shown(context: Context<'_>, certificate: &Certificate) -> Map<String, Value> {
    fields(json!({
        "ServerCertificateId": certificate.id,
        "ServerCertificateName": certificate.name,
        "Fingerprint": certificate.fingerprint,
        "RegionId": context.rules.region,
        "CreateTime": time(certificate.created_at),
        "CreateTimeStamp": certificate.created_at.as_millisecond(),
        "IsAliCloudCertificate": 0,
    }))
}

pub(super) fn list(state: &State, context: Context<'_>, call: &Parameters) -> Answered {
    let id = call.text("ServerCertificateId");
    let certificates = state.certificates.values();
    let found = certificates.filter(|one| id.is_none_or(|id| one.id == id));
    let found: Vec<Value> = found
        .map(|one| Value::Object(shown(context, one)))
        .collect();
    Ok(fields(
        json!({ "ServerCertificates": { "ServerCertificate": found } }),
    ))
}

pub(super) fn set_name(state: &mut State, _: Context<'_>, call: &Parameters) -> Answered {
    let id = call.required("ServerCertificateId")?;
    let name = name(call)?;
    let certificate = state.certificates.get_mut(id);
    let certificate = certificate.ok_or_else(|| Refusal::no_certificate(id))?;
    certificate.name = name;
    Ok(fields(json!({
        "ServerCertificateId": id,
        "ServerCertificateName": certificate.name,
    })))
}

pub(super) fn delete(state: &mut State, _: Context<'_>, call: &Parameters) -> Answered {
    let id = call.required("ServerCertificateId")?;
    state.certificate(id)?;
    let mut listeners = state.listeners();
    if listeners.any(|(_, one)| one.certificates().any(|used| used == id)) {
        let message = "A listener has the certificate.";
        return Err(Refusal::new(
            400,
            "CertificateAndPrivateKeyIsRefered",
            message,
        ));
    }
    drop(listeners);
    state.certificates.remove(id);
    Ok(Map::new())
}
