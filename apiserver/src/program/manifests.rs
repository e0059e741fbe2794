//! Objects in files: YAML or JSON, several in a file, several files in a folder.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Maximum size of one file in bytes.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;

/// One object and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    pub(super) place: Place,
    pub(super) object: Value,
}

/// The place of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) flag: &'static str,
    pub(super) file: PathBuf,
    /// From 1 on.
    pub(super) document: usize,
}

/// The reason why objects cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{flag} {path}: {source}")]
    Read {
        flag: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{flag} {path}: it has {size} bytes, and {LARGEST_FILE} are the limit")]
    Large {
        flag: &'static str,
        path: PathBuf,
        size: u64,
    },
    #[error("{flag} {path}: {error}")]
    Syntax {
        flag: &'static str,
        path: PathBuf,
        error: String,
    },
    #[error("{place}: {why}")]
    Object { place: Place, why: &'static str },
    #[error("{flag} {path}: no {wanted} is there")]
    Nothing {
        flag: &'static str,
        path: PathBuf,
        wanted: &'static str,
    },
}

// === impl Place ===

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            flag,
            file,
            document,
        } = self;
        write!(f, "{flag} {}, document {document}", file.display())
    }
}

// === impl Document ===

impl Document {
    /// The text of a field; empty for none.
    fn text(&self, field: &str) -> &str {
        self.object[field].as_str().unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &str {
        self.text("kind")
    }

    pub(super) fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    pub(super) fn group(&self) -> &str {
        let api_version = self.api_version();
        api_version.split_once('/').map_or("", |(group, _)| group)
    }

    pub(super) fn is_definition(&self) -> bool {
        self.kind() == "CustomResourceDefinition" && self.group() == "apiextensions.k8s.io"
    }
}

/// The definitions of the paths. A folder's other objects are skipped; a path without a definition is an error.
pub(super) fn definitions(paths: &[PathBuf]) -> Result<Vec<Document>, Error> {
    const FLAG: &str = "--crd-dir";
    let mut all = Vec::new();
    for path in paths {
        let mut found = read(FLAG, path)?;
        found.retain(Document::is_definition);
        if found.is_empty() {
            return Err(Error::Nothing {
                flag: FLAG,
                path: path.clone(),
                wanted: "CustomResourceDefinition",
            });
        }
        all.append(&mut found);
    }
    Ok(all)
}

/// The objects of the paths. A path without one is an error.
pub(super) fn objects(paths: &[PathBuf]) -> Result<Vec<Document>, Error> {
    const FLAG: &str = "--manifests";
    let mut all = Vec::new();
    for path in paths {
        let mut found = read(FLAG, path)?;
        if found.is_empty() {
            return Err(Error::Nothing {
                flag: FLAG,
                path: path.clone(),
                wanted: "object",
            });
        }
        all.append(&mut found);
    }
    Ok(all)
}

/// All documents of a file or a folder, in the order of names. Folders in the folder are skipped.
fn read(flag: &'static str, path: &Path) -> Result<Vec<Document>, Error> {
    let failed = |path: &Path, source| Error::Read {
        flag,
        path: path.to_owned(),
        source,
    };
    let metadata = std::fs::metadata(path).map_err(|source| failed(path, source))?;
    if !metadata.is_dir() {
        return read_file(flag, path);
    }
    let entries = std::fs::read_dir(path).map_err(|source| failed(path, source))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(|source| failed(path, source))?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("yaml" | "yml" | "json")) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    let mut documents = Vec::new();
    for file in files {
        documents.append(&mut read_file(flag, &file)?);
    }
    Ok(documents)
}

fn read_file(flag: &'static str, path: &Path) -> Result<Vec<Document>, Error> {
    let failed = |source| Error::Read {
        flag,
        path: path.to_owned(),
        source,
    };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > LARGEST_FILE {
        return Err(Error::Large {
            flag,
            path: path.to_owned(),
            size,
        });
    }
    let content = std::fs::read(path).map_err(failed)?;
    parse(flag, path, &content)
}

/// The documents of a file; the items of a `List` are documents of their own with its number.
fn parse(flag: &'static str, path: &Path, content: &[u8]) -> Result<Vec<Document>, Error> {
    // JSON is YAML as well; its own reader is faster, and its errors have lines of JSON.
    let read = if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        let stream = serde_json::Deserializer::from_slice(content).into_iter();
        let all: Result<Vec<Value>, _> = stream.collect();
        all.map_err(|error| error.to_string())
    } else {
        crate::yaml::read_all(content)
    };
    let values = read.map_err(|error| Error::Syntax {
        flag,
        path: path.to_owned(),
        error,
    })?;
    let mut documents = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let place = Place {
            flag,
            file: path.to_owned(),
            document: index + 1,
        };
        flatten(value, &place, &mut documents)?;
    }
    Ok(documents)
}

fn flatten(mut value: Value, place: &Place, into: &mut Vec<Document>) -> Result<(), Error> {
    let wrong = |why| Error::Object {
        place: place.clone(),
        why,
    };
    if !value.is_object() {
        return Err(wrong("it is not an object"));
    }
    let is_text = |field: &str| value[field].as_str().is_some_and(|text| !text.is_empty());
    if !is_text("kind") || !is_text("apiVersion") {
        return Err(wrong("apiVersion or kind is missing"));
    }
    let is_list = value["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => {
            for item in items {
                flatten(item, place, into)?;
            }
        }
        Some(_) if is_list => return Err(wrong("items of a list are missing")),
        _ => into.push(Document {
            place: place.clone(),
            object: value,
        }),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, content: &str) -> Result<Vec<(usize, String)>, String> {
        let documents = parse("--manifests", Path::new(name), content.as_bytes());
        let documents = documents.map_err(|error| error.to_string())?;
        let named = |one: Document| {
            let name = one.object["metadata"]["name"].as_str().unwrap_or_default();
            (one.place.document, name.to_owned())
        };
        Ok(documents.into_iter().map(named).collect())
    }

    #[test]
    fn documents_of_yaml_and_json_and_items_of_lists_are_objects() {
        let yaml = "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\n# none\n---\napiVersion: v1\nkind: List\nitems:\n\
                    - {apiVersion: v1, kind: B, metadata: {name: b}}\n- {apiVersion: v1, kind: C, metadata: {name: c}}\n";
        let numbered = |number: usize, name: &str| (number, name.to_owned());
        assert_eq!(
            parsed("x.yaml", yaml).unwrap(),
            [numbered(1, "a"), numbered(2, "b"), numbered(2, "c")]
        );
        let json = r#"{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}"#;
        let two = format!("{json}\n{json}");
        assert_eq!(
            parsed("x.json", &two).unwrap(),
            [numbered(1, "a"), numbered(2, "a")]
        );
        assert_eq!(parsed("x.yaml", json).unwrap(), [numbered(1, "a")]);
        assert_eq!(parsed("x.yaml", "").unwrap(), []);
    }

    #[test]
    fn errors_name_the_flag_the_file_and_the_document() {
        let second = "apiVersion: v1\nkind: A\n---\nkind: B\n";
        assert_eq!(
            parsed("x.yaml", second).unwrap_err(),
            "--manifests x.yaml, document 2: apiVersion or kind is missing"
        );
        let error = parsed("x.yaml", "a: [\n").unwrap_err();
        assert!(error.starts_with("--manifests x.yaml: "), "{error}");
        assert!(error.contains("line"), "{error}");
        let error = parsed("x.json", "{\"a\":\n").unwrap_err();
        assert!(error.contains("line 2"), "{error}");
        let error = parsed("x.yaml", "- 1\n").unwrap_err();
        assert!(error.contains("is not an object"), "{error}");
        let error = parsed("x.yaml", "apiVersion: v1\nkind: List\nitems: 3\n").unwrap_err();
        assert!(error.contains("items"), "{error}");
    }
}
