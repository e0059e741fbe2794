//! Rules for names: label keys and values, DNS labels and subdomains, with Kubernetes' texts.
//!
//! Each function returns the errors of a value; none if it is valid.
//! (apimachinery: `util/validation`.)

const LABEL_KEY_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_KEY_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const DNS_LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const DNS_SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const WILDCARD_TEXT: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
const DNS_1035_LABEL_TEXT: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";

const CONFIG_KEY_TEXT: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Errors of a label key, an annotation key in lower case, or a finalizer.
pub(crate) fn qualified_name(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                for text in dns_subdomain(prefix) {
                    wrong.push(format!("prefix part {text}"));
                }
            }
            *name
        }
        _ => {
            let text = format_error(
                LABEL_KEY_TEXT,
                LABEL_KEY_FORMAT,
                &["MyName", "my.name", "123-abc"],
            );
            wrong.push(format!(
                "a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return wrong;
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_label_key(name) {
        let text = format_error(
            LABEL_KEY_TEXT,
            LABEL_KEY_FORMAT,
            &["MyName", "my.name", "123-abc"],
        );
        wrong.push(format!("name part {text}"));
    }
    wrong
}

/// Errors of the value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > 63 {
        wrong.push("must be no more than 63 bytes".to_owned());
    }
    if !value.is_empty() && !is_label_key(value) {
        let format = format!("({LABEL_KEY_FORMAT})?");
        wrong.push(format_error(
            LABEL_VALUE_TEXT,
            &format,
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

/// Errors of a DNS subdomain, the form of most names.
pub(crate) fn dns_subdomain(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > 253 {
        wrong.push("must be no more than 253 bytes".to_owned());
    }
    if !is_dns_subdomain(value) {
        let format = format!("{DNS_LABEL_FORMAT}(\\.{DNS_LABEL_FORMAT})*");
        wrong.push(format_error(DNS_SUBDOMAIN_TEXT, &format, &["example.com"]));
    }
    wrong
}

/// Errors of a DNS subdomain whose first label is `*`.
pub(crate) fn wildcard_dns_subdomain(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > 253 {
        wrong.push("must be no more than 253 bytes".to_owned());
    }
    if !value.strip_prefix("*.").is_some_and(is_dns_subdomain) {
        let format = format!("\\*\\.{DNS_LABEL_FORMAT}(\\.{DNS_LABEL_FORMAT})*");
        wrong.push(format_error(WILDCARD_TEXT, &format, &["*.example.com"]));
    }
    wrong
}

/// Errors of a DNS label of RFC 1123, the form of a namespace's name.
pub(crate) fn dns_label(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > 63 {
        wrong.push("must be no more than 63 bytes".to_owned());
    }
    if !is_dns_label(value) {
        if is_dns_subdomain(value) {
            wrong.push("must not contain dots".to_owned());
        } else {
            wrong.push(format_error(
                DNS_LABEL_TEXT,
                DNS_LABEL_FORMAT,
                &["my-name", "123-abc"],
            ));
        }
    }
    wrong
}

/// Errors of a DNS label of RFC 1035: the form of a Service's name and of CRD names.
pub(crate) fn dns_1035_label(value: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if value.len() > 63 {
        wrong.push("must be no more than 63 bytes".to_owned());
    }
    if !is_dns_label(value) || !value.starts_with(|first: char| first.is_ascii_lowercase()) {
        wrong.push(format_error(
            DNS_1035_LABEL_TEXT,
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    wrong
}

/// Errors of a key of a ConfigMap or Secret.
pub(crate) fn config_key(value: &str) -> Vec<String> {
    let is_in_set = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_key = !value.is_empty() && value.chars().all(is_in_set);
    let rules = [
        (value.len() > 253, "must be no more than 253 bytes"),
        (!is_key, CONFIG_KEY_TEXT),
        (value == ".", "must not be '.'"),
        (value == "..", "must not be '..'"),
        (
            value.starts_with("..") && value.len() > 2,
            "must not start with '..'",
        ),
    ];
    broken(&rules)
}

fn broken(rules: &[(bool, &str)]) -> Vec<String> {
    let broken = rules.iter().filter(|(broken, _)| *broken);
    broken.map(|(_, text)| (*text).to_owned()).collect()
}

/// Errors of the name of a port.
pub(crate) fn port_name(value: &str) -> Vec<String> {
    let is_in_set = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let rules = [
        (value.len() > 15, "must be no more than 15 bytes"),
        (
            value.is_empty() || !value.chars().all(is_in_set),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !value.contains(|c: char| c.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (value.contains("--"), "must not contain consecutive hyphens"),
        (
            value.starts_with('-') || value.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ];
    broken(&rules)
}

/// Errors of a name that is one segment of a path (Roles, bindings).
pub(crate) fn path_segment(value: &str) -> Vec<String> {
    match value {
        "." => return vec!["may not be '.'".to_owned()],
        ".." => return vec!["may not be '..'".to_owned()],
        _ => {}
    }
    ['/', '%']
        .into_iter()
        .filter(|illegal| value.contains(*illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// Text, an expression and examples in one sentence, in Kubernetes' format.
pub(crate) fn format_error(text: &str, format: &str, examples: &[&str]) -> String {
    let mut sentence = text.to_owned();
    if examples.is_empty() {
        sentence.push_str(&format!(" (regex used for validation is '{format}')"));
        return sentence;
    }
    let quoted: Vec<String> = examples
        .iter()
        .map(|example| format!("'{example}', "))
        .collect();
    sentence.push_str(" (e.g. ");
    sentence.push_str(&quoted.join(" or "));
    sentence.push_str(&format!("regex used for validation is '{format}')"));
    sentence
}

fn is_label_key(value: &str) -> bool {
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_dns_label(value: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = value.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    alphanumeric(first)
        && alphanumeric(last)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
}

fn is_dns_subdomain(value: &str) -> bool {
    value.split('.').all(is_dns_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_have_nothing_wrong() {
        for key in ["a", "app.kubernetes.io/name", "A_b-c.d", "1"] {
            assert!(qualified_name(key).is_empty(), "{key}");
        }
        for value in ["", "a", "A_b-c.d"] {
            assert!(label_value(value).is_empty(), "{value}");
        }
        assert!(dns_subdomain("a.b-c.d1").is_empty());
        assert!(dns_label("a-1").is_empty());
        assert!(dns_1035_label("a-1").is_empty());
        assert!(path_segment("system:admin").is_empty());
    }

    #[test]
    fn what_is_wrong_is_worded_as_kubernetes_words_it() {
        let key = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        let cases: Vec<(&str, Vec<String>, Vec<String>)> = vec![
            (
                "empty key",
                qualified_name(""),
                vec![
                    "name part must be non-empty".to_owned(),
                    format!("name part {key}"),
                ],
            ),
            (
                "two slashes",
                qualified_name("a/b/c"),
                vec![format!(
                    "a valid label key {key} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                )],
            ),
            (
                "no prefix",
                qualified_name("/b"),
                vec!["prefix part must be non-empty".to_owned()],
            ),
            (
                "long name",
                qualified_name(&"a".repeat(64)),
                vec!["name part must be no more than 63 bytes".to_owned()],
            ),
            (
                "label with dots",
                dns_label("a.b"),
                vec!["must not contain dots".to_owned()],
            ),
            (
                "subdomain in capitals",
                dns_subdomain("A"),
                vec![
                    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".to_owned(),
                ],
            ),
            (
                "path segment",
                path_segment("a/b%c"),
                vec![
                    "may not contain '/'".to_owned(),
                    "may not contain '%'".to_owned(),
                ],
            ),
        ];
        for (name, found, expected) in cases {
            assert_eq!(found, expected, "{name}");
        }
    }
}
