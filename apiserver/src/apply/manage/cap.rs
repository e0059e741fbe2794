//! The bound on the number of entries.

use std::collections::BTreeMap;

use super::entry::{Entry, Kind};
use super::managers::Managers;

/// The number of updaters that an object remembers.
pub(super) const MOST_UPDATERS: usize = 10;
/// The name of the entry that the oldest updaters of a version merge into.
const ANCIENT: &str = "ancient-changes";

/// Merges the oldest updaters of a version into one entry until there are at most ten. Each version keeps an entry, so
/// more can be left.
pub(super) fn cap(managers: &mut Managers) {
    let mut updaters: Vec<(Option<String>, String)> = managers
        .iter()
        .filter(|(_, entry)| entry.kind == Kind::Update)
        .map(|(id, entry)| (entry.time.clone(), id.clone()))
        .collect();
    let mut left = updaters.len();
    if left <= MOST_UPDATERS {
        return;
    }
    updaters.sort();
    let mut first_of_version: BTreeMap<String, String> = BTreeMap::new();
    for (time, id) in updaters {
        if left <= MOST_UPDATERS {
            return;
        }
        let Some(entry) = managers.get(&id).cloned() else {
            continue;
        };
        let Some(first) = first_of_version.get(&entry.api_version) else {
            first_of_version.insert(entry.api_version, id);
            continue;
        };
        let mut bucket = Entry {
            manager: ANCIENT.to_owned(),
            kind: Kind::Update,
            api_version: entry.api_version.clone(),
            subresource: String::new(),
            // The younger of the two.
            time,
            fields: entry.fields.clone(),
        };
        let bucket_id = bucket.id();
        let older = managers.take(&bucket_id).or_else(|| managers.take(first));
        if let Some(older) = older {
            bucket.fields = bucket.fields.union(&older.fields);
        }
        managers.take(&id);
        managers.put(bucket);
        left -= 1;
    }
}
