// The first conversions of the page `versions.md`.
impl From<v1::Site> for v1alpha1::Site {
    fn from(new: v1::Site) -> Self {
        let host = new.spec.hosts.into_iter().next().unwrap_or_default();
        Self { metadata: new.metadata, spec: v1alpha1::SiteSpec { host } }
    }
}
impl From<v1alpha1::Site> for v1::Site {
    fn from(old: v1alpha1::Site) -> Self {
        let spec = v1::SiteSpec { hosts: vec![old.spec.host], color: None };
        Self { metadata: old.metadata, spec }
    }
}
impl From<v1::Site> for v1beta1::Site {
    fn from(new: v1::Site) -> Self {
        Self { metadata: new.metadata, spec: v1beta1::SiteSpec { hosts: new.spec.hosts } }
    }
}
impl From<v1beta1::Site> for v1::Site {
    fn from(old: v1beta1::Site) -> Self {
        Self { metadata: old.metadata, spec: v1::SiteSpec { hosts: old.spec.hosts, color: None } }
    }
}
