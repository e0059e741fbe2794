//! Any JSON document, read by a [`Mapping`]. Pure.

use serde_json::Value;

use super::address::{MOST_IN_A_TEXT, addresses};
use super::alerts::{self, Alerts, Resolved, Unreadable, Unusable, Verdict, Wanted};
use super::labels::{bounded, lasting};
use super::mapping::{GROUP, Mapping, Pointers};
use crate::api::Alert;
use crate::target::Target;

/// Whether an element fires.
enum Status {
    Firing,
    Resolved,
    Other(String),
}

/// Reads a body.
pub(super) fn read(body: &[u8], mapping: &Mapping, ranges: bool) -> Result<Alerts, Unreadable> {
    let malformed = |problem: String| Unreadable::Malformed {
        payload: "document that the mapping fits",
        problem,
    };
    let document: Value =
        serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))?;
    let items = &mapping.raw.items;
    let elements = match document.pointer(items) {
        Some(Value::Array(elements)) => elements.as_slice(),
        Some(one @ Value::Object(_)) => std::slice::from_ref(one),
        Some(_) => {
            let problem = format!("{} is neither an array nor an object", place(items));
            return Err(malformed(problem));
        }
        None => return Err(malformed(format!("there is no {}", place(items)))),
    };
    let mut read = Alerts::default();
    for (position, element) in elements.iter().enumerate() {
        judge(element, mapping, ranges, |verdict| {
            read.add(position, [verdict]);
        });
    }
    Ok(read)
}

/// Passes the verdicts of an element to `add`, one after another: an element may have many addresses.
fn judge(element: &Value, mapping: &Mapping, ranges: bool, mut add: impl FnMut(Verdict)) {
    let raw = &mapping.raw;
    let firing = match status(element, mapping) {
        Status::Firing => true,
        Status::Resolved => false,
        Status::Other(why) => return add(Verdict::Ignored(why)),
    };
    let texts = texts(element, &raw.ip);
    if texts.is_empty() {
        let places: Vec<&str> = raw.ip.all().iter().map(|it| place(it)).collect();
        let why = format!("it has no text at {}", places.join(" or "));
        return add(Verdict::Ignored(why));
    }
    let first = |pointers| self::texts(element, pointers).into_iter().next();
    let given = first(&raw.duration);
    let reason = first(&raw.reason)
        .or(raw.defaults.reason.clone())
        .unwrap_or_else(|| "alert without a description".into());
    let reason = alerts::reason(&reason);
    let by = first(&raw.by).or(raw.defaults.by.clone());
    let by = by.map(|by| alerts::by(&by));
    let alert = first(&raw.id).map(|id| bounded(id.trim()));
    if !firing && !raw.id.is_empty() && alert.is_none() {
        return add(Verdict::Ignored("it is resolved, and has no id".into()));
    }
    let alert = alert.unwrap_or_default();
    for text in &texts {
        let found = found(text, mapping, ranges);
        if found.is_empty() {
            let why = "the pattern matches nothing in its text";
            add(Verdict::Ignored(why.into()));
        }
        let verdicts = found.into_iter().map(|entry| match entry {
            Ok((target, raw)) if firing => {
                let (duration, remark) = lasting(given.as_deref(), &target);
                Verdict::Ban(Wanted {
                    target,
                    raw,
                    duration: duration.or(mapping.raw.defaults.duration.clone()),
                    reason: reason.clone(),
                    by: by.clone(),
                    alert: alert.clone(),
                    named: Some(Alert {
                        rule: None,
                        fingerprint: Some(alert.clone()).filter(|id| !id.is_empty()),
                    }),
                    remark,
                })
            }
            Ok((target, raw)) => Verdict::Resolved(Resolved {
                target,
                raw,
                alert: alert.clone(),
            }),
            Err(why) if firing => Verdict::Invalid(why.0),
            Err(why) => Verdict::Ignored(why.0),
        });
        verdicts.for_each(&mut add);
    }
}

fn status(element: &Value, mapping: &Mapping) -> Status {
    let raw = &mapping.raw;
    if raw.status.is_empty() {
        return Status::Firing;
    }
    match texts(element, &raw.status).into_iter().next() {
        Some(text) if raw.firing.contains(&text) => Status::Firing,
        Some(text) if raw.resolved.contains(&text) => Status::Resolved,
        Some(text) => {
            let short: String = text.chars().take(64).collect();
            Status::Other(format!("its status is {short:?}"))
        }
        None => Status::Other("it has no status".into()),
    }
}

/// The addresses in a text: its entries, or the matches of the pattern.
fn found(text: &str, mapping: &Mapping, ranges: bool) -> Vec<Result<(Target, String), Unusable>> {
    let owned = |entry: Result<(Target, &str), Unusable>| {
        entry.map(|(target, raw)| (target, raw.to_owned()))
    };
    let Some(pattern) = &mapping.pattern else {
        return addresses(text, ranges).into_iter().map(owned).collect();
    };
    let matches = pattern.0.captures_iter(text);
    let mut all = Vec::new();
    for captures in matches.take(MOST_IN_A_TEXT) {
        if let Some(group) = captures.name(GROUP) {
            all.extend(addresses(group.as_str(), ranges).into_iter().map(owned));
        }
    }
    all
}

/// The texts at the first of `pointers` that leads to one, or to an array of them. Numbers and booleans are texts, too.
fn texts(element: &Value, pointers: &Pointers) -> Vec<String> {
    let mut found = pointers
        .all()
        .iter()
        .map(|pointer| match element.pointer(pointer) {
            Some(Value::Array(values)) => values.iter().filter_map(text).collect(),
            Some(value) => text(value).into_iter().collect(),
            None => Vec::new(),
        });
    found
        .find(|texts: &Vec<String>| !texts.is_empty())
        .unwrap_or_default()
}

fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() {
        "the body"
    } else {
        pointer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::RawMapping;
    use crate::trigger::alerts::MOST_ALERTS;
    use serde_json::json;

    fn mapping(yaml: &str) -> Mapping {
        let raw: RawMapping = serde_saphyr::from_str(yaml).unwrap();
        raw.define().unwrap()
    }

    fn alerts(yaml: &str, body: &Value) -> Alerts {
        read(body.to_string().as_bytes(), &mapping(yaml), false).unwrap()
    }

    fn shown(alerts: &Alerts) -> Vec<String> {
        let judged = alerts.judged.iter();
        judged
            .map(|judged| {
                let at = judged.position;
                match &judged.verdict {
                    Verdict::Ban(it) => {
                        let duration = it.duration.as_deref().unwrap_or("default");
                        format!("{at} ban {} for {duration}: {}", it.target, it.reason)
                    }
                    Verdict::Resolved(it) => format!("{at} resolved {}", it.target),
                    Verdict::Ignored(why) => format!("{at} ignored: {why}"),
                    Verdict::Invalid(why) => format!("{at} invalid: {why}"),
                }
            })
            .collect()
    }

    #[test]
    fn the_parts_are_found_by_their_pointers() {
        let yaml = "
items: /data/events
ip: [/labels/src, /client]
duration: /ttl
reason: /message
status: /state
firing: [open, 'true']
resolved: [closed]
by: /user
id: /id
defaults: {duration: 2h, reason: WAF, by: waf}";
        let body = json!({"data": {"events": [
            {"labels": {"src": "192.0.2.1"}, "ttl": "5m", "message": "sql\ninjection", "state": "open", "user": "ops", "id": 7},
            {"client": ["192.0.2.2", "192.0.2.3:80"], "state": true},
            {"client": "192.0.2.4", "state": "closed", "id": "x"},
            {"client": "192.0.2.5", "state": "waiting"},
            {"client": "192.0.2.6"},
            {"state": "open"},
            {"client": "example.com", "state": "open"},
            {"client": "192.0.2.7", "state": "open", "ttl": "soon"},
            {"client": "192.0.2.8", "state": "closed"},
        ]}});
        let alerts = alerts(yaml, &body);
        let shown = shown(&alerts);
        let expected = [
            "0 ban 192.0.2.1 for 5m: sql injection",
            "1 ban 192.0.2.2 for 2h: WAF",
            "1 ban 192.0.2.3 for 2h: WAF",
            "2 resolved 192.0.2.4",
            "3 ignored: its status is \"waiting\"",
            "4 ignored: it has no status",
            "5 ignored: it has no text at /labels/src or /client",
        ];
        assert_eq!(shown[..7], expected);
        assert!(shown[7].starts_with("6 invalid: "), "{}", shown[7]);
        assert_eq!(shown[8], "7 ban 192.0.2.7 for 2h: WAF");
        assert_eq!(shown[9], "8 ignored: it is resolved, and has no id");
        let Verdict::Ban(first) = &alerts.judged[0].verdict else {
            panic!("{shown:?}");
        };
        assert_eq!(
            (first.by.as_deref(), first.alert.as_str()),
            (Some("ops"), "7")
        );
    }

    #[test]
    fn a_body_is_one_object_or_an_array_of_them_or_of_texts() {
        let one = json!({"ip": "192.0.2.1"});
        assert_eq!(shown(&alerts("{ip: /ip}", &one)).len(), 1);
        assert_eq!(shown(&alerts("{ip: /ip}", &json!([one, one]))).len(), 2);
        let texts = json!(["192.0.2.1", "192.0.2.2"]);
        assert_eq!(shown(&alerts("{ip: ''}", &texts)).len(), 2);
    }

    #[test]
    fn a_pattern_finds_the_addresses_of_a_free_text() {
        let yaml = "{ip: /line, pattern: 'from (?<ip>\\S+) port'}";
        let body = json!([
            {"line": "Failed password for root from 192.0.2.1 port 22 and from 2001:db8::1 port 22"},
            {"line": "Accepted publickey"},
        ]);
        assert_eq!(
            shown(&alerts(yaml, &body)),
            [
                "0 ban 192.0.2.1 for default: alert without a description",
                "0 ban 2001:db8::1 for default: alert without a description",
                "1 ignored: the pattern matches nothing in its text",
            ]
        );
    }

    #[test]
    fn a_body_that_the_mapping_does_not_fit_is_refused() {
        let mapping = mapping("{items: /alerts, ip: /ip}");
        for (body, part) in [
            ("", "EOF"),
            ("{}", "there is no /alerts"),
            (
                r#"{"alerts": "x"}"#,
                "/alerts is neither an array nor an object",
            ),
        ] {
            let error = read(body.as_bytes(), &mapping, false)
                .unwrap_err()
                .to_string();
            assert!(error.contains(part), "{body}: {error}");
        }
    }

    #[test]
    fn addresses_past_the_limit_are_counted_and_the_others_are_read() {
        for body in [
            json!(vec![json!({"ip": "192.0.2.1"}); MOST_ALERTS + 3]),
            json!({"ip": vec!["192.0.2.1"; MOST_ALERTS + 3]}),
        ] {
            let alerts = alerts("{ip: /ip}", &body);
            assert_eq!((alerts.judged.len(), alerts.not_read), (MOST_ALERTS, 3));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_document_makes_the_reader_panic(body in r#"[\[\]{}":,a-z0-9./]{0,200}"#) {
            let mapping = mapping("{items: /a, ip: [/b, ''], status: /s, pattern: '(?<ip>[0-9.]+)'}");
            let _ = read(body.as_bytes(), &mapping, true);
        }
    }
}
