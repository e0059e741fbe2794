//! The `apiVersion` of objects from a data directory whose format did not have it.

use serde_json::Value;

use super::storage::STORAGE;
use crate::kinds;
use crate::resource::ResourceInfo;
use crate::store::Found;

/// Finds the `apiVersion` of the objects of a storage. Those of a definition that has had several storage versions are
/// not known; they count as objects of another version than any, until they are written.
pub(crate) fn former_versions() -> impl Fn(&str, &Found) -> String {
    let built_in = kinds::builtin();
    move |storage, found| match &found.object(STORAGE, storage) {
        Some(definition) => of_definition(definition),
        None => {
            let of = built_in.iter().find(|info| info.storage == storage);
            of.map(|info: &ResourceInfo| info.stored_in.clone())
                .unwrap_or_default()
        }
    }
}

fn of_definition(definition: &Value) -> String {
    let versions = definition["status"]["storedVersions"].as_array();
    match versions.map(Vec::as_slice) {
        Some([Value::String(version)]) => {
            let group = definition["spec"]["group"].as_str().unwrap_or_default();
            format!("{group}/{version}")
        }
        _ => String::new(),
    }
}
