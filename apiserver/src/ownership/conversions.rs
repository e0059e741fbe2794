//! The conversions by a webhook that one write needs to follow ownership through all versions.
//!
//! The rules of ownership do not wait. They fail for a conversion that is not known yet; the write makes the missing
//! ones with [`Conversions::load`] and applies the rules again. (apimachinery: `managedfields/internal/versionconverter.go`.)

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::resource::ResourceInfo;
use crate::verbs::conversion;
use crate::webhooks::Network;

/// The conversions by a webhook that one write needs.
#[derive(Debug)]
pub(crate) struct Conversions {
    /// All served versions.
    versions: Vec<Arc<ResourceInfo>>,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    known: Vec<(Wanted, Result<Value, String>)>,
    missing: Vec<Wanted>,
}

/// An object, and the `apiVersion` that it is wanted in.
#[derive(Debug, PartialEq)]
struct Wanted {
    object: Value,
    to: String,
}

// === impl Conversions ===

impl Conversions {
    /// For a resource with these served versions.
    pub(super) fn new(versions: Vec<Arc<ResourceInfo>>) -> Arc<Self> {
        Arc::new(Self {
            versions,
            made: Mutex::default(),
        })
    }

    /// The object in another version.
    ///
    /// # Errors
    /// Why it cannot be converted; any text for a conversion that is missing.
    pub(super) fn get(&self, object: &Value, to: &str) -> Result<Value, String> {
        let mut made = self.made.lock();
        let mut known = made.known.iter();
        let found = known.find(|(wanted, _)| wanted.to == to && wanted.object == *object);
        if let Some((_, converted)) = found {
            return converted.clone();
        }
        made.missing.push(Wanted {
            object: object.clone(),
            to: to.to_owned(),
        });
        Err(format!("the object is not converted to {to} yet"))
    }

    /// Makes the missing conversions. Whether there were any.
    pub(crate) async fn load(&self, network: Network<'_>) -> bool {
        let missing = std::mem::take(&mut self.made.lock().missing);
        let was_missing = !missing.is_empty();
        for wanted in missing {
            let mut versions = self.versions.iter();
            let to = versions.find(|to| to.api_version() == wanted.to);
            let converted = match to {
                Some(to) => conversion::for_owners(network, to, wanted.object.clone())
                    .await
                    .map_err(|status| status.to_string()),
                None => Err(format!("no corresponding type for {}", wanted.to)),
            };
            self.made.lock().known.push((wanted, converted));
        }
        was_missing
    }
}
