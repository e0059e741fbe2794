//! The parser of `kinds.txt`.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{
    ALL_VERBS, Data, Field, Form, ListType, Patch, Resource, Scalar, Special, Subresource, Type,
    Version,
};

// === impl Data ===

impl Data {
    /// Parses a table.
    ///
    /// # Errors
    /// The first invalid line.
    pub(super) fn parse(text: &'static str) -> Result<Self, String> {
        let lines = || text.lines().filter(|line| !line.starts_with('#'));
        let by_name: HashMap<&str, usize> = lines()
            .filter_map(|line| line.strip_prefix("type "))
            .filter_map(|rest| rest.split(' ').next())
            .enumerate()
            .map(|(index, name)| (name, index))
            .collect();
        let mut data = Self {
            versions: Vec::new(),
            types: Vec::new(),
            by_name,
        };
        for line in lines() {
            data.read(line).ok_or_else(|| line.to_owned())?;
        }
        Ok(data)
    }

    fn read(&mut self, line: &'static str) -> Option<()> {
        if let Some(line) = line.strip_prefix(' ') {
            let field = Field::parse(line, &self.by_name)?;
            let of = self.types.last_mut()?;
            let place = of
                .sorted
                .partition_point(|&index| of.fields[index].name < field.name);
            of.sorted.insert(place, of.fields.len());
            of.by_name.insert(field.name, of.fields.len());
            of.fields.push(field);
            return Some(());
        }
        let (word, rest) = line.split_once(' ')?;
        match word {
            "version" => {
                let (group, name) = rest.split_once('/').unwrap_or(("", rest));
                let resources = Vec::new();
                self.versions.push(Version {
                    group,
                    name,
                    resources,
                });
            }
            "resource" => {
                let resource = Resource::parse(rest, &self.by_name)?;
                self.versions.last_mut()?.resources.push(resource);
            }
            "subresource" => {
                let resource = self.versions.last_mut()?.resources.last_mut()?;
                resource.subresources.push(Subresource::parse(rest)?);
            }
            "type" => self.types.push(Type::parse(rest)?),
            _ => return None,
        }
        Some(())
    }
}

// === impl Resource ===

impl Resource {
    fn parse(line: &'static str, types: &HashMap<&str, usize>) -> Option<Self> {
        let mut words = line.split(' ');
        let mut next = || words.next();
        let mut resource = Self {
            plural: next()?,
            singular: next()?,
            kind: next()?,
            namespaced: next()? == "Namespaced",
            verbs: verbs(next()?),
            of: match next()? {
                "-" => None,
                name => Some(*types.get(name)?),
            },
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
            stored: None,
        };
        for word in words {
            match word.split_once('=')? {
                ("short", names) => resource.short_names = names.split(',').collect(),
                ("stored", version) => resource.stored = Some(version),
                ("categories", names) => resource.categories = names.split(',').collect(),
                _ => return None,
            }
        }
        Some(resource)
    }
}

// === impl Subresource ===

impl Subresource {
    fn parse(line: &'static str) -> Option<Self> {
        let [name, kind, of_verbs] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let (group_version, kind) = match kind.rsplit_once('/') {
            None => (None, kind),
            Some((group_version, kind)) => (Some(group_version.split_once('/')?), kind),
        };
        Some(Self {
            name,
            group_version,
            kind,
            verbs: verbs(of_verbs),
        })
    }
}

fn verbs(word: &'static str) -> Vec<&'static str> {
    match word {
        "*" => ALL_VERBS.to_vec(),
        words => words.split(',').collect(),
    }
}

// === impl Type ===

impl Type {
    fn parse(line: &'static str) -> Option<Self> {
        let mut of = Self {
            name: line,
            special: None,
            atomic: false,
            fields: Vec::new(),
            by_name: HashMap::new(),
            sorted: Vec::new(),
        };
        if let Some((name, form)) = line.split_once(" = ") {
            of.name = name;
            of.special = Some(match form {
                "any" => Special::Any,
                "int-or-string" => Special::IntOrString,
                "micro-time" => Special::MicroTime,
                "quantity" => Special::Quantity,
                "schema-or-boolean" => Special::SchemaOrBoolean,
                "schema-or-list" => Special::SchemaOrList,
                "string" => Special::Text,
                "time" => Special::Time,
                _ => return None,
            });
        } else if let Some(name) = line.strip_suffix(" atomic") {
            of.name = name;
            of.atomic = true;
        }
        Some(of)
    }
}

// === impl Field ===

impl Field {
    fn parse(line: &'static str, types: &HashMap<&str, usize>) -> Option<Self> {
        let mut words = line.split(' ');
        let name = words.next()?;
        let of = words.next()?;
        let bare = of.trim_end_matches(['?', '!']);
        let ends = &of[bare.len()..];
        let plain = bare.strip_prefix('*');
        let mut field = Self {
            name,
            form: Form::parse(plain.unwrap_or(bare), types)?,
            pointer: plain.is_some(),
            omit_empty: ends.contains('?'),
            omit_zero: ends.contains('!'),
            required: false,
            list: None,
            keys: Vec::new(),
            atomic: None,
            patch: Patch::Default,
            patch_strategy: "",
            enumeration: Vec::new(),
            embedded_in: None,
            default: None,
        };
        field.default = field.zero();
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("required", "") => field.required = true,
                ("list", "atomic") => field.list = Some(ListType::Atomic),
                ("list", "set") => field.list = Some(ListType::Set),
                ("list", "map") => field.list = Some(ListType::Map),
                ("keys", keys) => field.keys = keys.split(',').collect(),
                ("map", "atomic") => field.atomic = Some(true),
                ("map", "granular") => field.atomic = Some(false),
                ("patch", strategies) => {
                    field.patch_strategy = strategies;
                    let has = |wanted| strategies.split(',').any(|one| one == wanted);
                    if has("replace") {
                        field.patch = Patch::Replace;
                    } else if has("merge") {
                        field.patch = Patch::MergeSet;
                    }
                }
                ("key", key) if field.patch == Patch::MergeSet => field.patch = Patch::MergeBy(key),
                // Without a strategy it has no effect.
                ("key", _) => {}
                ("enum", values) => field.enumeration = values.split('|').collect(),
                ("in", name) => field.embedded_in = Some(name),
                ("default", "-") => field.default = None,
                ("default", text) => field.default = Some(serde_json::from_str(text).ok()?),
                _ => return None,
            }
        }
        Some(field)
    }

    /// The default of a field that is always written.
    fn zero(&self) -> Option<Value> {
        if self.pointer || self.omit_empty || self.omit_zero {
            return None;
        }
        match &self.form {
            Form::Scalar(Scalar::Text, _) => Some(json!("")),
            Form::Scalar(Scalar::Boolean, _) => Some(json!(false)),
            Form::Scalar(Scalar::Bytes, _) | Form::List(..) | Form::Map(..) => None,
            Form::Scalar(..) => Some(json!(0)),
            Form::Named(_) => Some(json!({})),
        }
    }
}

// === impl Form ===

impl Form {
    fn parse(text: &'static str, types: &HashMap<&str, usize>) -> Option<Self> {
        for (open, close) in [('[', ']'), ('{', '}')] {
            if let Some(rest) = text.strip_prefix(open) {
                let (name, of) = rest.split_once(close)?;
                let of = Box::new(Self::parse(of.strip_prefix('*').unwrap_or(of), types)?);
                return Some(if open == '[' {
                    Self::List(name, of)
                } else {
                    Self::Map(name, of)
                });
            }
        }
        if let Some(&index) = types.get(text) {
            return Some(Self::Named(index));
        }
        let (scalar, name) = text.split_once(':').unwrap_or((text, ""));
        let (scalar, plain) = match scalar {
            "string" => (Scalar::Text, "string"),
            "bytes" => (Scalar::Bytes, "[]uint8"),
            "boolean" => (Scalar::Boolean, "bool"),
            "int32" => (Scalar::Int32, "int32"),
            "int64" => (Scalar::Int64, "int64"),
            "double" => (Scalar::Double, "float64"),
            _ => return None,
        };
        Some(Self::Scalar(
            scalar,
            if name.is_empty() { plain } else { name },
        ))
    }
}
