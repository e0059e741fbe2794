//! One entry of `metadata.managedFields`.

use serde_json::{Map, Value, json};

use super::super::set::Set;

/// The way in which a manager came to own fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// By applying them.
    Apply,
    /// By any other write.
    Update,
}

/// The fields of one manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    pub(crate) kind: Kind,
    pub(crate) api_version: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    /// In the format of `metadata`.
    pub(crate) time: Option<String>,
    pub(crate) fields: Set,
}

// === impl Kind ===

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

// === impl Entry ===

impl Entry {
    /// The identity of an entry, as text. Entries by apply have one whatever the version; no time belongs to it.
    pub(crate) fn id(&self) -> String {
        let mut id = String::from("{");
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                let comma = if id.len() > 1 { "," } else { "" };
                id.push_str(&format!("{comma}\"{name}\":{}", json!(value)));
            }
        };
        add("manager", &self.manager);
        add("operation", self.kind.name());
        if self.kind == Kind::Update {
            add("apiVersion", &self.api_version);
        }
        add("subresource", &self.subresource);
        id.push('}');
        id
    }

    /// The same identity, with other fields.
    pub(crate) fn with_fields(&self, fields: Set) -> Self {
        Self {
            fields,
            manager: self.manager.clone(),
            kind: self.kind,
            api_version: self.api_version.clone(),
            subresource: self.subresource.clone(),
            time: self.time.clone(),
        }
    }

    /// The manager as conflicts name it.
    pub(crate) fn shown(&self) -> String {
        let mut shown = crate::field::quote(&self.manager);
        if !self.subresource.is_empty() {
            let subresource = crate::field::quote(&self.subresource);
            shown = format!("{shown} with subresource {subresource}");
        }
        match self.kind {
            Kind::Update => format!("{shown} using {}", self.api_version),
            Kind::Apply => shown,
        }
    }

    /// Its form in `managedFields`.
    pub(crate) fn encode(&self) -> Value {
        let mut entry = Map::new();
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                entry.insert(name.to_owned(), value.into());
            }
        };
        add("manager", &self.manager);
        add("operation", self.kind.name());
        add("apiVersion", &self.api_version);
        add("subresource", &self.subresource);
        add("time", self.time.as_deref().unwrap_or_default());
        add("fieldsType", "FieldsV1");
        entry.insert("fieldsV1".to_owned(), self.fields.encode());
        Value::Object(entry)
    }

    /// Reads the entry at index `at`.
    ///
    /// # Errors
    /// Why it is not one.
    pub(crate) fn decode(entry: &Value, at: usize) -> Result<Self, String> {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let kind = match text("operation").as_str() {
            "Apply" => Kind::Apply,
            "Update" => Kind::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType").as_str() {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => {
                return Err(format!(
                    "invalid fieldsType {} in managed fields entry {at}",
                    crate::field::quote(other)
                ));
            }
        }
        let fields = Set::decode(&entry["fieldsV1"])
            .map_err(|why| format!("error decoding versioned set from {entry}: {why}"))?;
        Ok(Self {
            manager: text("manager"),
            kind,
            api_version,
            subresource: text("subresource"),
            time: Some(text("time")).filter(|time| !time.is_empty()),
            fields,
        })
    }
}

/// Why `managedFields` cannot be read.
pub(crate) fn managers_problem(managed_fields: &Value) -> Option<String> {
    let entries = managed_fields.as_array()?.iter().enumerate();
    let mut read = entries.map(|(at, entry)| Entry::decode(entry, at));
    read.find_map(Result::err)
}
