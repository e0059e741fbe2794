//! The writes: their managers, verbs and bodies.

use std::fmt;

use serde_json::{Map, Value, json};

use super::random::Random;
use super::subjects::{Form, Subject, metadata};

/// The annotation of client-side apply.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager of kubectl's client-side apply, whose fields an apply of [`SERVER_SIDE`] takes over.
const CLIENT_SIDE: &str = "kubectl-client-side-apply";
const SERVER_SIDE: &str = "kubectl";

/// One write.
pub struct Write {
    pub manager: String,
    pub what: What,
    /// The path of the collection.
    pub path: &'static str,
    pub subresource: &'static str,
    pub force: bool,
    pub body: Value,
}

/// The verb of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Apply,
    Create,
    Merge,
    Strategic,
    /// A JSON patch.
    Json,
    /// Reads the object, merges the body into it and writes it.
    Replace,
    Delete,
}

/// How the writes of a sequence are distributed.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// The number of managers that update.
    updaters: usize,
    /// The percentage of kubectl's two managers.
    kubectl: usize,
    pub writes: usize,
}

/// Whether a write creates an absent object through its status. A real server does that for Services alone
/// (kubernetes: `AllowCreateOnUpdate`), which have no addresses then; here they are not found, or have addresses.
pub fn may_create_by_status(subject: &Subject, write: &Write) -> bool {
    subject.kind == "Service" && write.subresource == "/status"
}

// === impl Mix ===

impl Mix {
    /// One of three: a few managers, kubectl's two among them, or so many that the server merges old entries.
    pub fn random(random: &mut Random) -> Self {
        let mix = |updaters, kubectl, writes| Self {
            updaters,
            kubectl,
            writes,
        };
        *random.pick(&[
            mix(4, 0, 10),
            mix(4, 0, 10),
            mix(3, 70, 10),
            mix(3, 70, 10),
            mix(16, 10, 30),
        ])
    }

    fn manager(self, what: What, random: &mut Random) -> String {
        if random.chance(self.kubectl) {
            let applies = what == What::Apply;
            // The other way round sometimes: the server goes by the name and the operation.
            let usual = random.chance(90);
            return if applies == usual {
                SERVER_SIDE
            } else {
                CLIENT_SIDE
            }
            .to_owned();
        }
        let managers = if what == What::Apply {
            4
        } else {
            self.updaters
        };
        format!("m{}", random.below(managers))
    }
}

// === impl Write ===

impl Write {
    pub fn random(subject: &Subject, name: &str, mix: Mix, random: &mut Random) -> Self {
        let form = random.pick(&subject.forms);
        let what = if random.chance(4) {
            What::Delete
        } else {
            *random.pick(&[
                What::Apply,
                What::Apply,
                What::Apply,
                What::Merge,
                What::Strategic,
                What::Json,
                What::Replace,
                What::Create,
            ])
        };
        let what = match what {
            // A real server does not support it there; a case of the conformance suite shows the answer.
            What::Strategic if subject.kind == "Part" => What::Merge,
            what => what,
        };
        let mut write = Self {
            manager: mix.manager(what, random),
            what,
            path: form.path,
            subresource: "",
            force: false,
            body: Value::Null,
        };
        match what {
            What::Delete => return write,
            What::Apply => write.force = random.chance(35),
            _ => {}
        }
        if subject.has_scale && random.chance(12) {
            write.scale(name, random);
        } else if form.status.is_some() && random.chance(20) {
            write.status(subject, form, name, random);
        } else {
            write.whole(subject, form, name, random);
        }
        if what == What::Json {
            write.body = operations(&write.body, random);
        }
        write
    }

    fn scale(&mut self, name: &str, random: &mut Random) {
        self.subresource = "/scale";
        self.never_make();
        let spec = json!({"replicas": random.below(3) + 1});
        self.body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": spec});
    }

    fn status(&mut self, subject: &Subject, form: &Form, name: &str, random: &mut Random) {
        self.subresource = "/status";
        self.never_make();
        let mut body = typed(subject, form, name);
        body["status"] = random.value(form.status.as_ref().unwrap_or(&Value::Null));
        merge_metadata(&mut body, random.value(&metadata()));
        // What is not of the status is reset.
        if random.chance(20) {
            body["spec"] = random.value(&form.parts)["spec"].clone();
        }
        self.body = body;
    }

    fn whole(&mut self, subject: &Subject, form: &Form, name: &str, random: &mut Random) {
        let mut body = typed(subject, form, name);
        let parts = random.value(&form.parts);
        for (field, value) in parts.as_object().into_iter().flatten() {
            if field == "metadata" {
                if random.chance(70) {
                    merge_metadata(&mut body, value.clone());
                }
            } else if field == "spec" || random.chance(70) {
                body[field] = value.clone();
            }
        }
        thin(&mut body, form.kept, random);
        // The status is reset.
        if let Some(status) = form.status.as_ref().filter(|_| random.chance(15)) {
            body["status"] = random.value(status);
        }
        let updates = self.what != What::Apply;
        if updates && self.manager == CLIENT_SIDE && random.chance(90) {
            let applied = body.to_string();
            body["metadata"]["annotations"][LAST_APPLIED] = applied.into();
        }
        self.body = body;
    }

    /// A subresource is not created.
    fn never_make(&mut self) {
        if self.what == What::Create {
            self.what = What::Replace;
        }
        // A Scale has no merge keys.
        if self.subresource == "/scale" && self.what == What::Strategic {
            self.what = What::Merge;
        }
    }
}

fn typed(subject: &Subject, form: &Form, name: &str) -> Value {
    json!({"apiVersion": form.api_version, "kind": subject.kind, "metadata": {"name": name}})
}

fn merge_metadata(body: &mut Value, metadata: Value) {
    if let (Some(all), Value::Object(more)) = (body["metadata"].as_object_mut(), metadata) {
        all.extend(more);
    }
}

/// A JSON patch that adds what `body` has below `metadata`, `spec` and so on, or removes some of it.
fn operations(body: &Value, random: &mut Random) -> Value {
    let mut operations = Vec::new();
    let fields = body.as_object().into_iter().flatten();
    for (field, value) in
        fields.filter(|(field, _)| !["apiVersion", "kind"].contains(&field.as_str()))
    {
        for (name, value) in value.as_object().into_iter().flatten() {
            if name == "name" || !random.chance(70) {
                continue;
            }
            let path = format!("/{field}/{name}");
            operations.push(if random.chance(10) {
                json!({"op": "remove", "path": path})
            } else {
                json!({"op": "add", "path": path, "value": value})
            });
        }
    }
    Value::Array(operations)
}

/// Removes some optional fields below `spec`.
fn thin(body: &mut Value, kept: &[&str], random: &mut Random) {
    if kept.is_empty() {
        return;
    }
    let mut drop_some = |map: &mut Map<String, Value>, keep: &[&str]| {
        map.retain(|name, _| keep.contains(&name.as_str()) || random.chance(60));
    };
    if let Some(spec) = body["spec"].as_object_mut() {
        drop_some(spec, kept);
    }
    for pod in [
        "/spec/template/spec",
        "/spec/jobTemplate/spec/template/spec",
    ] {
        let Some(pod) = body.pointer_mut(pod).and_then(Value::as_object_mut) else {
            continue;
        };
        drop_some(pod, &["containers", "restartPolicy"]);
        let containers = pod["containers"].as_array_mut();
        for container in containers.into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                drop_some(container, &["name", "image"]);
            }
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let force = if self.force { " force" } else { "" };
        write!(
            f,
            "{} {:?}{force} {}{} {}",
            self.manager, self.what, self.path, self.subresource, self.body
        )
    }
}
