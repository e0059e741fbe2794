// The conversions of the page `versions.md` that keep what an older version has no field for.
/// What an older version has no field for, in an annotation.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Kept { hosts: Vec<String>, color: Option<String> }

const KEPT: &str = "sites.example.com/kept";

impl Kept {
    fn put(self, metadata: &mut ObjectMeta) {
        if self != Self::default() {
            let text = serde_json::to_string(&self).expect("texts");
            metadata.annotations.get_or_insert_default().insert(KEPT.into(), text);
        }
    }

    /// Also removes the annotation: the hub has the fields.
    fn take(metadata: &mut ObjectMeta) -> Self {
        let text = metadata.annotations.as_mut().and_then(|annotations| annotations.remove(KEPT));
        metadata.annotations.take_if(|annotations| annotations.is_empty());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
}

impl From<v1::Site> for v1alpha1::Site {
    fn from(mut new: v1::Site) -> Self {
        let mut hosts = new.spec.hosts.into_iter();
        let host = hosts.next().unwrap_or_default();
        Kept { hosts: hosts.collect(), color: new.spec.color }.put(&mut new.metadata);
        Self { metadata: new.metadata, spec: v1alpha1::SiteSpec { host } }
    }
}
impl From<v1alpha1::Site> for v1::Site {
    fn from(mut old: v1alpha1::Site) -> Self {
        let kept = Kept::take(&mut old.metadata);
        let hosts = std::iter::once(old.spec.host).chain(kept.hosts).collect();
        Self { metadata: old.metadata, spec: v1::SiteSpec { hosts, color: kept.color } }
    }
}
impl From<v1::Site> for v1beta1::Site {
    fn from(mut new: v1::Site) -> Self {
        Kept { hosts: Vec::new(), color: new.spec.color }.put(&mut new.metadata);
        Self { metadata: new.metadata, spec: v1beta1::SiteSpec { hosts: new.spec.hosts } }
    }
}
impl From<v1beta1::Site> for v1::Site {
    fn from(mut old: v1beta1::Site) -> Self {
        let color = Kept::take(&mut old.metadata).color;
        Self { metadata: old.metadata, spec: v1::SiteSpec { hosts: old.spec.hosts, color } }
    }
}
