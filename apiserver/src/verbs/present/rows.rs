//! The shape `Table`: each row is written as soon as it is made.

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Presenter, write_metadata};
use crate::resource::{Conversion, ResourceInfo};
use crate::store::Object;
use crate::store::wanted::read;
use crate::table::{IncludeObject, Rows};

/// The cells of an object as JSON.
struct Shown {
    text: Box<[u8]>,
    /// The times at which the cells are these.
    valid: Range<Timestamp>,
}

/// The key of cells: the columns are those of this resource.
struct ColumnsOf(Arc<ResourceInfo>);

/// What kept cells take in memory besides their text, about.
const FORM: usize = 256;

// === impl Presenter ===

impl Presenter {
    /// What makes the rows of this resource.
    pub(super) fn rows(&self) -> Rows<'_> {
        Rows::new(&self.info.columns, self.now)
    }

    /// Appends a Table of one object.
    pub(super) fn write_table(
        &self,
        object: &Object,
        version: &str,
        columns: bool,
        metadata: &Value,
        out: &mut BytesMut,
    ) {
        self.write_table_head(version, columns, metadata, out);
        self.write_row(&self.rows(), object, version, false, out);
        out.extend_from_slice(b"]}");
    }

    /// Appends a Table up to its first row; `version` is that of the Table's group, `metadata` that of the list.
    pub(super) fn write_table_head(
        &self,
        version: &str,
        columns: bool,
        metadata: &Value,
        out: &mut BytesMut,
    ) {
        let definitions = columns.then(|| self.rows().definitions());
        let api_version = format!("meta.k8s.io/{version}");
        out.extend_from_slice(b"{\"apiVersion\":");
        write(&api_version, out);
        out.extend_from_slice(b",\"columnDefinitions\":");
        write(&definitions, out);
        out.extend_from_slice(b",\"kind\":\"Table\",\"metadata\":");
        write(metadata, out);
        out.extend_from_slice(b",\"rows\":[");
    }

    /// `kept`: whether to keep the cells for the next list.
    pub(super) fn write_row(
        &self,
        rows: &Rows<'_>,
        object: &Object,
        version: &str,
        kept: bool,
        out: &mut BytesMut,
    ) {
        out.extend_from_slice(b"{\"cells\":");
        // A converted object is made for each list.
        if kept && !object.is_converted() {
            out.extend_from_slice(&self.kept_cells(rows, object).text);
        } else {
            write(&self.cells(rows, object).0, out);
        }
        out.extend_from_slice(b",\"object\":");
        match self.include_object {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => write_metadata(object, version, out),
            IncludeObject::Object => self.write_whole(object, true, out),
        }
        out.extend_from_slice(b"}");
    }

    /// The cells as JSON: as an earlier list made them, while no age in them has changed.
    fn kept_cells(&self, rows: &Rows<'_>, object: &Object) -> Arc<Shown> {
        let make = || {
            let (cells, valid) = self.cells(rows, object);
            let text = serde_json::to_vec(&cells).unwrap_or_default();
            Arc::new(Shown {
                text: text.into(),
                valid,
            })
        };
        object.row_while(
            ColumnsOf(self.info.clone()),
            |shown: &Arc<Shown>| shown.valid.contains(&self.now),
            make,
            |shown| shown.text.len() + FORM,
        )
    }

    /// Whether a list has kept the cells.
    #[cfg(test)]
    pub(super) fn has_cells(&self, object: &Object) -> bool {
        let mut kept = true;
        object.row_while(
            ColumnsOf(self.info.clone()),
            |_: &Arc<Shown>| true,
            || {
                kept = false;
                Arc::new(Shown {
                    text: Box::default(),
                    valid: self.now..self.now,
                })
            },
            |_| 0,
        );
        kept
    }

    /// The cells, and the times at which they are the same.
    fn cells(&self, rows: &Rows<'_>, object: &Object) -> (Vec<Value>, Range<Timestamp>) {
        // Columns of a built-in kind in two forms are those of the stored one.
        if self.info.conversion == Conversion::BuiltIn && !self.info.storage_version {
            return rows.cells_valid(&object.stored_value());
        }
        let mut value = match object.known_value() {
            // Computed cells need no type.
            Some(value) if !self.info.custom => return rows.cells_valid(&value),
            Some(value) => Arc::unwrap_or_clone(value),
            None if rows.reads_managers() => object.to_value(),
            None => read(
                &object.encoded_without_managers(),
                self.info.strategy.read_by_columns(),
            ),
        };
        if let Some(map) = value.as_object_mut() {
            map.insert("apiVersion".to_owned(), json!(self.info.api_version()));
            map.insert("kind".to_owned(), json!(self.info.kind));
        }
        rows.cells_valid(&value)
    }
}

// === impl ColumnsOf ===

impl PartialEq for ColumnsOf {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Appends JSON.
fn write(value: &impl Serialize, out: &mut BytesMut) {
    // Neither values nor memory fail to be written.
    let _ = serde_json::to_writer(out.writer(), value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::media::Shape;
    use crate::kinds::builtin;

    fn row(include: IncludeObject, columns: bool) -> Value {
        let mut all = builtin().into_iter();
        let info = all.find(|info| info.kind == "ConfigMap").unwrap();
        let now = "2026-11-21T11:46:11Z".parse().unwrap();
        let presenter = Presenter::new(&info.into(), Shape::Table("v1"), include, now);
        let object = Object::new(
            json!({
                "metadata": {"name": "x", "creationTimestamp": "2026-11-21T11:16:11Z", "managedFields": [{"manager": "m"}]},
                "data": {"a": "1", "b": "2"},
            }),
            7,
        );
        // Parsed for the cells alone, as in a list of objects that were not read lately.
        let object = Object::at_version(&Arc::new(object), 8);
        let mut out = BytesMut::new();
        presenter.write_one(&object, true, columns, &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn cells_of_a_list_are_kept_until_an_age_in_them_changes() {
        let mut all = builtin().into_iter();
        let info = all.find(|info| info.kind == "ConfigMap").unwrap();
        let (info, other) = (Arc::new(info.clone()), Arc::new(info));
        let object = Object::new(
            json!({"metadata": {"name": "x", "creationTimestamp": "2026-11-21T11:00:00Z"}, "data": {"a": "1"}}),
            7,
        );
        let cells = |info: &Arc<ResourceInfo>, now: &str| {
            let include = IncludeObject::None;
            let presenter = Presenter::new(info, Shape::Table("v1"), include, now.parse().unwrap());
            presenter.kept_cells(&presenter.rows(), &object)
        };
        // Other tests of this process keep forms, too.
        let _held = object.hold_rows();
        let first = cells(&info, "2026-11-21T11:20:30Z");
        assert_eq!(*first.text, *br#"["x",1,"20m"]"#);
        let second = cells(&other, "2026-11-21T11:20:30Z");
        assert!(!Arc::ptr_eq(&first, &second), "columns of another version");
        for same in ["2026-11-21T11:20:00Z", "2026-11-21T11:20:59.999Z"] {
            assert!(Arc::ptr_eq(&first, &cells(&info, same)), "{same}");
            assert!(Arc::ptr_eq(&second, &cells(&other, same)), "{same}");
        }
        let later = cells(&info, "2026-11-21T11:21:00Z");
        assert_eq!(*later.text, *br#"["x",1,"21m"]"#);
        assert_eq!(
            *cells(&info, "2026-11-21T11:20:30Z").text,
            *first.text,
            "the clock was set back"
        );
    }

    #[test]
    fn a_row_has_the_cells_and_what_was_asked_for_of_the_object() {
        let table = row(IncludeObject::Metadata, true);
        assert_eq!(table["kind"], "Table");
        assert_eq!(table["metadata"]["resourceVersion"], "8");
        assert_eq!(table["columnDefinitions"][1]["name"], "Data");
        assert_eq!(table["rows"][0]["cells"], json!(["x", 2, "30m"]));
        let shown = &table["rows"][0]["object"];
        assert_eq!(shown["kind"], "PartialObjectMetadata");
        assert_eq!(shown["apiVersion"], "meta.k8s.io/v1");
        assert_eq!(shown["metadata"]["resourceVersion"], "8");
        assert_eq!(shown["metadata"]["managedFields"][0]["manager"], "m");
        let whole = row(IncludeObject::Object, false);
        assert_eq!(whole["columnDefinitions"], Value::Null);
        let shown = &whole["rows"][0]["object"];
        assert_eq!(
            (&shown["kind"], &shown["data"]["b"]),
            (&json!("ConfigMap"), &json!("2"))
        );
        assert_eq!(
            row(IncludeObject::None, false)["rows"][0]["object"],
            Value::Null
        );
    }
}
