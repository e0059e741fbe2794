//! Makes answers comparable: versions as ranks, uids and times as placeholders.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// One line of a conversation.
pub enum Line {
    Text(String),
    Json(String, Value),
}

/// Replaces values that differ from run to run.
pub struct Normalizer {
    replacements: Vec<(String, &'static str)>,
    keep_managed_fields: bool,
    versions: BTreeSet<u64>,
    uids: BTreeMap<String, usize>,
}

// === impl Normalizer ===

impl Normalizer {
    pub fn new(keep_managed_fields: bool) -> Self {
        Self {
            replacements: Vec::new(),
            keep_managed_fields,
            versions: BTreeSet::new(),
            uids: BTreeMap::new(),
        }
    }

    /// Replaces `text` by `placeholder` from now on.
    pub fn replace(&mut self, text: &str, placeholder: &'static str) {
        self.replacements.push((text.to_owned(), placeholder));
    }

    /// The lines for the record.
    pub fn transcript(mut self, lines: Vec<Line>) -> Vec<String> {
        for line in &lines {
            if let Line::Json(head, value) = line
                && !head.starts_with('>')
            {
                self.collect_versions(value);
            }
        }
        lines
            .into_iter()
            .map(|line| match line {
                Line::Text(text) => self.text(&text),
                Line::Json(head, value) => {
                    let value = self.value(value, "", false);
                    format!("{} {value}", self.text(&head))
                }
            })
            .collect()
    }

    /// The versions of objects. Each is one write of the case, so their ranks are the same on every server. Versions of
    /// lists and bookmarks also count writes of other cases and are shown relative to these.
    fn collect_versions(&mut self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.collect_versions(value)),
            Value::Object(map) => {
                if !is_collective(map)
                    && let Some(version) = version_of(map)
                {
                    self.versions.insert(version);
                }
                if map.get("type").is_some_and(|kind| kind == "BOOKMARK") {
                    return;
                }
                map.values().for_each(|value| self.collect_versions(value));
            }
            _ => {}
        }
    }

    fn value(&mut self, value: Value, key: &str, collective: bool) -> Value {
        match value {
            Value::String(text) => Value::String(match key {
                "resourceVersion" => self.version(&text, collective),
                "continue" if !text.is_empty() => "<continue>".to_owned(),
                "token" => "<token>".to_owned(),
                "cells" if is_age(&text) => "<age>".to_owned(),
                "clusterIP" | "clusterIPs" if text.parse::<std::net::IpAddr>().is_ok() => {
                    "<ip>".to_owned()
                }
                _ => self.text(&text),
            }),
            Value::Array(mut values) if key == "managedFields" => {
                // They are ordered by time, to the second.
                values.sort_by_key(|entry| {
                    let subresource = entry["subresource"].as_str().unwrap_or_default();
                    (
                        entry["manager"].to_string(),
                        entry["operation"].to_string(),
                        subresource.to_owned(),
                    )
                });
                values
                    .into_iter()
                    .map(|value| self.value(value, "", collective))
                    .collect()
            }
            Value::Array(values) => values
                .into_iter()
                .map(|value| self.value(value, key, collective))
                .collect(),
            Value::Object(map) => {
                let bookmark = map.get("type").is_some_and(|kind| kind == "BOOKMARK");
                // `metadata` is visited with the kind of its object.
                let collective = if key == "metadata" {
                    collective
                } else {
                    collective_below(&map, key, collective) || bookmark
                };
                let mut shown = Map::new();
                for (key, value) in map {
                    if key == "managedFields" && !self.keep_managed_fields {
                        continue;
                    }
                    let value = self.value(value, &key, collective);
                    shown.insert(self.text(&key), value);
                }
                Value::Object(shown)
            }
            other => other,
        }
    }

    fn version(&self, text: &str, collective: bool) -> String {
        let Ok(version) = text.parse::<u64>() else {
            return text.to_owned();
        };
        if version == 0 {
            return text.to_owned();
        }
        let rank = self.versions.range(..=version).count();
        if collective {
            format!("<at least v{rank}>")
        } else {
            format!("<v{rank}>")
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.replacements {
            text = text.replace(from.as_str(), to);
        }
        let text = self.replace_uids(&text);
        let text = replace_times(&text);
        replace_object(&replace_token(&replace_numbers_after(&text)))
    }

    fn replace_uids(&mut self, text: &str) -> String {
        let mut shown = String::new();
        let mut rest = text;
        while let Some(start) =
            (0..rest.len()).find(|start| rest.get(*start..*start + 36).is_some_and(is_uid))
        {
            let uid = &rest[start..start + 36];
            let next = self.uids.len() + 1;
            let number = *self.uids.entry(uid.to_owned()).or_insert(next);
            shown.push_str(&rest[..start]);
            shown.push_str(&format!("<uid{number}>"));
            rest = &rest[start + 36..];
        }
        shown + rest
    }
}

fn version_of(map: &Map<String, Value>) -> Option<u64> {
    map.get("metadata")?
        .get("resourceVersion")?
        .as_str()?
        .parse()
        .ok()
}

/// A list or a table: its version is the store's.
fn is_collective(map: &Map<String, Value>) -> bool {
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
    kind.ends_with("List") || kind == "Table" || (map.get("items").is_some_and(Value::is_array))
}

fn collective_below(map: &Map<String, Value>, key: &str, above: bool) -> bool {
    // The object of a bookmark looks like any other.
    is_collective(map) || (above && key == "object")
}

/// An age in a table: a second can pass between a write and its row.
fn is_age(text: &str) -> bool {
    let seconds = text.strip_suffix('s').unwrap_or_default();
    !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    })
}

/// `2026-01-01T00:00:00Z`, also with a fraction, becomes `<time>`.
fn replace_times(text: &str) -> String {
    let shape = |text: &str| {
        text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            _ => byte.is_ascii_digit(),
        })
    };
    let mut shown = String::new();
    let mut rest = text;
    while let Some(start) =
        (0..rest.len()).find(|start| rest.get(*start..*start + 19).is_some_and(shape))
    {
        shown.push_str(&rest[..start]);
        let after = &rest[start + 19..];
        let digits = after.strip_prefix('.').map_or(0, |fraction| {
            1 + fraction.bytes().take_while(u8::is_ascii_digit).count()
        });
        let after = &after[digits..];
        rest = after.strip_prefix('Z').unwrap_or(after);
        shown.push_str(if digits > 0 { "<microtime>" } else { "<time>" });
    }
    shown + rest
}

/// A whole object quoted in a text, with Go's order of fields and with internal fields of the server.
fn replace_object(text: &str) -> String {
    let Some((before, after)) = text.split_once("Invalid value: \"{\\\"") else {
        return text.to_owned();
    };
    match after.split_once("}\": ") {
        Some((_, after)) => format!("{before}Invalid value: <object>: {after}"),
        None => text.to_owned(),
    }
}

/// A continue token of a server in the query of a request; invented tokens of cases are shorter.
fn replace_token(text: &str) -> String {
    let Some((before, after)) = text.split_once("continue=") else {
        return text.to_owned();
    };
    let end = after.find(['&', ' ']).unwrap_or(after.len());
    let token = if end > 20 {
        "<continue>"
    } else {
        &after[..end]
    };
    format!("{before}continue={token}{}", &after[end..])
}

/// Replaces versions in texts and in the query of a request.
fn replace_numbers_after(text: &str) -> String {
    let mut text = text.to_owned();
    for before in [
        "too old resource version: ",
        "Too large resource version: ",
        "current: ",
        "resourceVersion=",
        "ResourceVersion in the precondition (",
        "ResourceVersion in record (",
        "resourceVersion\":\"",
        "resourceVersion\\\":\\\"",
    ] {
        let mut shown = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(before) {
            let end = at + before.len();
            shown.push_str(&rest[..end]);
            rest = &rest[end..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            // Small numbers are part of the case.
            shown.push_str(if digits > 1 {
                "<version>"
            } else {
                &rest[..digits]
            });
            rest = &rest[digits..];
            if let Some(after) = rest.strip_prefix(" (") {
                let digits = after.bytes().take_while(u8::is_ascii_digit).count();
                if digits > 0 && after[digits..].starts_with(')') {
                    shown.push_str(" (<version>)");
                    rest = &after[digits + 1..];
                }
            }
        }
        text = shown + rest;
    }
    text
}

#[test]
fn versions_are_ranks_and_uids_are_numbered_in_order_of_appearance() {
    let object = serde_json::json!({"kind": "A", "metadata": {"resourceVersion": "70", "uid": "0a1b2c3d-0000-1111-2222-333344445555"}});
    let list = serde_json::json!({"kind": "AList", "metadata": {"resourceVersion": "75"}, "items": [
        {"metadata": {"resourceVersion": "71", "creationTimestamp": "2026-01-01T00:00:00Z"}}]});
    let lines = vec![
        Line::Json("<".into(), object),
        Line::Json("<".into(), list),
        Line::Text("too old resource version: 70 (71)".into()),
    ];
    assert_eq!(
        Normalizer::new(false).transcript(lines),
        [
            r#"< {"kind":"A","metadata":{"resourceVersion":"<v1>","uid":"<uid1>"}}"#,
            r#"< {"items":[{"metadata":{"creationTimestamp":"<time>","resourceVersion":"<v2>"}}],"kind":"AList","metadata":{"resourceVersion":"<at least v2>"}}"#,
            "too old resource version: <version> (<version>)",
        ]
    );
}

#[test]
fn the_age_in_a_row_is_shown_without_its_seconds() {
    let row = |age: &str| {
        vec![Line::Json(
            "~".into(),
            serde_json::json!({"cells": ["a", "red", 2, age]}),
        )]
    };
    for age in ["0s", "1s", "12s"] {
        assert_eq!(
            Normalizer::new(false).transcript(row(age)),
            [r#"~ {"cells":["a","red",2,"<age>"]}"#]
        );
    }
    assert_eq!(
        Normalizer::new(false).transcript(row("s")),
        [r#"~ {"cells":["a","red",2,"s"]}"#]
    );
}
