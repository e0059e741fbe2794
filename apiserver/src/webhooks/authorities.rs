//! The authorities in a `caBundle`, read as Go reads them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::RootCertStore;
use x509_parser::parse_x509_certificate;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// A block of PEM.
struct Block<'a> {
    kind: &'a str,
    has_headers: bool,
    content: Vec<u8>,
}

/// The certificates of a bundle, in DER. Blocks of another type, with headers, or without a certificate are skipped as long
/// as one is left. (Go: `CertPool.AppendCertsFromPEM`.)
///
/// # Errors
/// Why there is none, in the words of client-go's `createErrorParsingCAData`.
pub(crate) fn certificates(bundle: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let text = String::from_utf8_lossy(bundle);
    let (blocks, rest) = blocks(&text);
    let certificates = blocks
        .into_iter()
        .filter(|block| block.kind == "CERTIFICATE" && !block.has_headers)
        .map(|block| block.content);
    let (parsed, damaged): (Vec<_>, Vec<_>) =
        certificates.partition(|content| is_certificate(content));
    if !parsed.is_empty() {
        return Ok(parsed);
    }
    let why = match (damaged.is_empty(), rest.is_empty()) {
        (false, _) => "failed to parse certificate: x509: malformed certificate",
        (true, false) => "unable to parse bytes as PEM block",
        (true, true) => "no valid certificate authority data seen",
    };
    Err(format!("unable to load root certificates: {why}"))
}

/// Those that the TLS library takes as authorities. It has stricter rules than Go for some, such as those with an unknown
/// critical extension, and one of them would make all others useless.
pub(super) fn usable(certificates: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let is_usable = |der: &Vec<u8>| RootCertStore::empty().add(der.clone().into()).is_ok();
    certificates.into_iter().filter(is_usable).collect()
}

fn is_certificate(der: &[u8]) -> bool {
    matches!(parse_x509_certificate(der), Ok(([], _)))
}

/// The blocks of a text, and what follows the last one. (Go: `pem.Decode`.)
fn blocks(text: &str) -> (Vec<Block<'_>>, &str) {
    let mut blocks = Vec::new();
    let (mut last, mut from) = (text, text);
    while let Some((before, after)) = from.split_once(END) {
        let end = after.split_once(DASHES);
        if let Some((kind, rest)) = end
            && let Some(block) = block(before, kind)
        {
            blocks.push(block);
            last = rest.trim_start_matches([' ', '\t', '\r']);
            last = last.strip_prefix('\n').unwrap_or(last);
            from = rest;
            continue;
        }
        from = after;
    }
    (blocks, last)
}

/// The block that ends after `before`, with `kind` in its last line.
fn block<'a>(before: &'a str, kind: &'a str) -> Option<Block<'a>> {
    let (earlier, rest) = before.rsplit_once(BEGIN)?;
    if !(earlier.is_empty() || earlier.ends_with('\n')) {
        return None;
    }
    let (first, rest) = rest.split_once('\n')?;
    if first.trim_end().strip_suffix(DASHES)? != kind {
        return None;
    }
    let mut lines = rest.lines().peekable();
    let mut has_headers = false;
    while lines.next_if(|line| line.contains(':')).is_some() {
        has_headers = true;
    }
    let content: String = lines.map(str::trim).collect();
    Some(Block {
        kind,
        has_headers,
        content: STANDARD.decode(content).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> String {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().pem()
    }

    fn read(bundle: &str) -> Result<usize, String> {
        certificates(bundle.as_bytes()).map(|certificates| usable(certificates).len())
    }

    #[test]
    fn a_damaged_block_does_not_take_the_others_away() {
        let (one, other) = (authority(), authority());
        let key = "-----BEGIN PRIVATE KEY-----\nYWJj\n-----END PRIVATE KEY-----\n";
        let garbage = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        let no_base64 = "-----BEGIN CERTIFICATE-----\n%%%\n-----END CERTIFICATE-----\n";
        let unfinished = "-----BEGIN CERTIFICATE-----\nYWJj\n";
        let other_end = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END X-----\n";
        for damaged in [
            key,
            garbage,
            no_base64,
            unfinished,
            other_end,
            "# a comment\n",
        ] {
            assert_eq!(read(&format!("{one}{damaged}{other}")), Ok(2), "{damaged}");
            assert_eq!(read(&format!("{damaged}{one}")), Ok(1), "{damaged}");
        }
        let crlf = one.replace('\n', "\r\n");
        assert_eq!(read(&crlf), Ok(1));
    }

    #[test]
    fn a_bundle_without_a_certificate_is_refused_with_its_reason() {
        let key = "-----BEGIN PRIVATE KEY-----\nYWJj\n-----END PRIVATE KEY-----\n";
        let garbage = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        let headers = garbage.replace("\nYWJj", "\na: b\n\nYWJj");
        for (bundle, why) in [
            ("abc", "unable to parse bytes as PEM block"),
            (key, "no valid certificate authority data seen"),
            (&format!("{key}abc"), "unable to parse bytes as PEM block"),
            (&headers, "no valid certificate authority data seen"),
            (
                garbage,
                "failed to parse certificate: x509: malformed certificate",
            ),
        ] {
            let why = format!("unable to load root certificates: {why}");
            assert_eq!(read(bundle), Err(why), "{bundle}");
        }
    }
}
