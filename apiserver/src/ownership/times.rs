//! The times of entries, when nothing else changes.

use serde_json::Value;

/// Gives the entries of `new` the times of `old` if nothing else differs, so that the write changes nothing.
///
/// (apiserver: `IgnoreManagedFieldsTimestampsTransformer`.)
pub(crate) fn keep_times(old: &Value, new: &mut Value) {
    let Some(before) = old["metadata"]["managedFields"].as_array() else {
        return;
    };
    let Some(after) = new
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
    else {
        return;
    };
    // Most writes change something, which is found before the entries are compared.
    let is_same = is_same_without_owners(old, new)
        && before.len() == after.len()
        && before
            .iter()
            .zip(after)
            .all(|(before, after)| untimed(before).eq(untimed(after)));
    if !is_same {
        return;
    }
    let before = before.clone();
    if let Some(entries) = new.pointer_mut("/metadata/managedFields") {
        *entries = Value::Array(before);
    }
}

/// Whether two objects are equal but for the owners of their fields.
fn is_same_without_owners(old: &Value, new: &Value) -> bool {
    fn fields<'a>(
        value: &'a Value,
        without: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let fields = value.as_object().into_iter().flatten();
        fields.filter(move |(name, _)| *name != without)
    }
    fields(old, "metadata").eq(fields(new, "metadata"))
        && fields(&old["metadata"], "managedFields").eq(fields(&new["metadata"], "managedFields"))
}

/// The fields of an entry except its time.
fn untimed(entry: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = entry.as_object().into_iter().flatten();
    fields.filter(|(name, _)| *name != "time")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(time: &str, data: &str) -> Value {
        json!({
            "metadata": {"managedFields": [{"manager": "a", "time": time, "fieldsV1": {"f:data": {}}}]},
            "data": data,
        })
    }

    #[test]
    fn a_time_alone_is_not_a_change() {
        let old = object("2026-01-01T00:00:00Z", "x");
        let mut new = object("2026-01-01T00:00:01Z", "x");
        keep_times(&old, &mut new);
        assert_eq!(new, old);
    }

    #[test]
    fn a_time_with_another_change_stays() {
        let old = object("2026-01-01T00:00:00Z", "x");
        for mut new in [
            object("2026-01-01T00:00:01Z", "y"),
            json!({"metadata": {"managedFields": [{"manager": "b", "time": "2026-01-01T00:00:01Z"}]}, "data": "x"}),
            json!({"metadata": {"managedFields": [{"manager": "a", "subresource": "status", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {}}}]}, "data": "x"}),
        ] {
            let sent = new.clone();
            keep_times(&old, &mut new);
            assert_eq!(new, sent);
        }
    }
}
