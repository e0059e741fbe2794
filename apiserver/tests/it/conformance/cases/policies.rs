//! Admission policies: expressions that check or change what is written.

use std::time::Duration;

use serde_json::{Value, json};

use super::conversions::{V1, converted, dog, dogs};
use super::{cases, config_map, widget};
use crate::conformance::case::{APPLY, Answer, Case, MERGE};
use crate::conformance::webhook::Webhook;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const VALIDATING: &str = "ValidatingAdmissionPolicy";
const MUTATING: &str = "MutatingAdmissionPolicy";

/// Stores an object of the group; only a failure is recorded.
async fn store(t: &Case, plural: &str, kind: &str, name: &str, spec: Value) {
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": format!("{{me}}-{name}")}, "spec": spec});
    t.setup("POST", &format!("{GROUP}/{plural}"), body).await;
}

/// Stores a policy for ConfigMaps of the namespace, with these fields.
async fn policy(t: &Case, kind: &str, name: &str, fields: Value) {
    let mut spec = json!({"matchConstraints": {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
        "resourceRules": [rule(&["CREATE", "UPDATE"], "", "v1", "configmaps")]}});
    if kind == MUTATING {
        spec["reinvocationPolicy"] = json!("Never");
    }
    for (field, value) in fields.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    let plural = if kind == VALIDATING {
        "validatingadmissionpolicies"
    } else {
        "mutatingadmissionpolicies"
    };
    store(t, plural, kind, name, spec).await;
}

/// Binds a policy, with these fields.
async fn bind(t: &Case, kind: &str, name: &str, fields: Value) {
    let mut spec = json!({"policyName": format!("{{me}}-{name}")});
    if kind == VALIDATING {
        spec["validationActions"] = json!(["Deny"]);
    }
    for (field, value) in fields.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    let plural = format!(
        "{}bindings",
        if kind == VALIDATING {
            "validatingadmissionpolicy"
        } else {
            "mutatingadmissionpolicy"
        }
    );
    store(t, &plural, &format!("{kind}Binding"), name, spec).await;
}

fn rule(operations: &[&str], group: &str, version: &str, resource: &str) -> Value {
    json!({"operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resource]})
}

/// Stores a policy with one validation and its binding.
async fn check(t: &Case, name: &str, fields: Value) {
    policy(t, VALIDATING, name, fields).await;
    bind(t, VALIDATING, name, json!({})).await;
}

/// Stores a policy with these mutations and its binding.
async fn change(t: &Case, name: &str, mutations: &[Value], fields: Value) {
    let mut all = json!({"mutations": mutations});
    for (field, value) in fields.as_object().expect("fields") {
        all[field] = value.clone();
    }
    policy(t, MUTATING, name, all).await;
    bind(t, MUTATING, name, json!({})).await;
}

fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn json_patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// Waits until a dry run has an answer as expected: the policies are in use.
async fn in_use(t: &Case, collection: &str, body: Value, is_expected: impl Fn(&Answer) -> bool) {
    let path = format!("{collection}?dryRun=All");
    let mut last = Value::Null;
    for _ in 0..300 {
        let answer = t.setup_any("POST", &path, &[], body.clone()).await;
        if is_expected(&answer) {
            return;
        }
        last = answer.body;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("a policy was not in use within 15 s: {last}");
}

fn is_refused(answer: &Answer) -> bool {
    answer.code >= 400
}

/// A ConfigMap with a label.
fn with_label(name: &str, label: &str, value: &str) -> Value {
    let mut object = config_map(name, "1");
    object["metadata"]["labels"] = json!({label: value});
    object
}

cases! { "policies";
    ["A-5"] "a policy refuses what its validations do not allow" => |t| {
        check(t, "a", json!({"validations": [
            {"expression": "object.data.key != 'bad'"},
            {"expression": "object.data.key != 'worse'", "message": "worse is not allowed"},
            {"expression": "object.data.key != 'named'", "messageExpression": "'no ' + object.data.key + ' in ' + object.metadata.name"},
            {"expression": "object.data.key != 'forbidden'", "reason": "Forbidden"},
            {"expression": "object.data.key != 'large'", "reason": "RequestEntityTooLarge"},
        ]})).await;
        in_use(t, "{cm}", config_map("probe", "bad"), is_refused).await;
        t.post("{cm}", config_map("good", "1")).await;
        for value in ["bad", "worse", "named", "forbidden", "large"] {
            t.post("{cm}", config_map("a", value)).await;
        }
        t.setup("GET", "{cm}", Value::Null).await;
        t.put("{cm}/good", config_map("good", "bad")).await;
        t.patch(MERGE, "{cm}/good", json!({"data": {"key": "worse"}})).await;
        t.patch(APPLY, "{cm}/good?fieldManager=me&force=true", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "good"}, "data": {"key": "bad"}})).await;
        t.delete("{cm}/good").await;
    }
    ["A-5"] "the actions of a binding decide about a failed validation" => |t| {
        policy(t, VALIDATING, "a", json!({"validations": [{"expression": "object.data.key == '1'", "message": "not 1"}]})).await;
        bind(t, VALIDATING, "a", json!({"validationActions": ["Warn", "Audit"]})).await;
        let path = "{cm}?dryRun=All";
        let mut warned = t.warnings_of("POST", path, config_map("a", "2")).await;
        for _ in 0..300 {
            if !warned.1.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            warned = t.warnings_of("POST", path, config_map("a", "2")).await;
        }
        t.note("warned", json!(warned));
        let quiet = t.warnings_of("POST", path, config_map("a", "1")).await;
        t.note("quiet", json!(quiet));
    }
    ["A-5"] "a policy without a binding has no effect" => |t| {
        policy(t, VALIDATING, "a", json!({"validations": [{"expression": "false"}]})).await;
        check(t, "b", json!({"validations": [{"expression": "object.data.key != 'bad'"}]})).await;
        in_use(t, "{cm}", config_map("probe", "bad"), is_refused).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-5"] "a validation that fails refuses the write, unless failures are ignored" => |t| {
        check(t, "a", json!({"validations": [
            {"expression": "object.data.missing == '1'"},
            {"expression": "object.data.key != 'bad'"},
        ]})).await;
        in_use(t, "{cm}", config_map("probe", "bad"), is_refused).await;
        t.post("{cm}", config_map("a", "1")).await;
        t.setup("DELETE", &format!("{GROUP}/validatingadmissionpolicies/{{me}}-a"), Value::Null).await;
        check(t, "b", json!({"failurePolicy": "Ignore", "validations": [
            {"expression": "object.data.missing == '1'"},
            {"expression": "object.data.key != 'bad'"},
        ]})).await;
        in_use(t, "{cm}", config_map("probe", "1"), |answer| answer.code == 201).await;
        in_use(t, "{cm}", config_map("probe", "bad"), is_refused).await;
        t.post("{cm}", config_map("a", "1")).await;
        t.post("{cm}", config_map("b", "bad")).await;
    }
    ["A-5"] "variables are shared by the expressions of a policy" => |t| {
        check(t, "a", json!({
            "variables": [
                {"name": "key", "expression": "object.data.key"},
                {"name": "isBad", "expression": "variables.key.startsWith('bad')"},
                {"name": "missing", "expression": "object.data.missing"},
            ],
            "validations": [
                {"expression": "!variables.isBad", "messageExpression": "'bad: ' + variables.key"},
                {"expression": "variables.key != 'use' || variables.missing == '1'"},
            ],
        })).await;
        in_use(t, "{cm}", config_map("probe", "bad"), is_refused).await;
        t.post("{cm}", config_map("a", "bad1")).await;
        t.post("{cm}", config_map("a", "use")).await;
        t.post("{cm}", config_map("a", "good")).await;
    }
    ["A-5"] "conditions decide whether a policy is asked" => |t| {
        check(t, "a", json!({
            "matchConditions": [{"name": "one", "expression": "request.operation != 'UPDATE'"}, {"name": "two", "expression": "object.metadata.?labels.?skip.orValue('') != 'yes'"}],
            "validations": [{"expression": "false", "message": "never"}],
        })).await;
        in_use(t, "{cm}", config_map("probe", "1"), is_refused).await;
        t.post("{cm}", config_map("a", "1")).await;
        t.post("{cm}", with_label("a", "skip", "yes")).await;
        t.setup("GET", "{cm}", Value::Null).await;
        t.put("{cm}/a", config_map("a", "2")).await;
    }
    ["A-5"] "a condition that fails refuses the write" => |t| {
        check(t, "a", json!({
            "matchConditions": [{"name": "one", "expression": "object.data.missing == '1'"}],
            "validations": [{"expression": "true"}],
        })).await;
        in_use(t, "{cm}", config_map("probe", "1"), is_refused).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-5"] "expressions see the request, the namespace and the rights of the user" => |t| {
        check(t, "a", json!({"validations": [
            {"expression": "request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap' && request.name == object.metadata.name"},
            {"expression": "namespaceObject.metadata.name == request.namespace"},
            {"expression": "namespaceObject.metadata.name != object.metadata.namespace || object.data.key != 'bad'", "messageExpression": "'op ' + request.operation + ' dry ' + string(request.dryRun)"},
            {"expression": "oldObject == null || oldObject.data.key != 'fixed'", "message": "is fixed"},
            {"expression": "authorizer.group('').resource('configmaps').namespace(request.namespace).check('delete').allowed()"},
        ]})).await;
        in_use(t, "{cm}", config_map("probe", "bad"), is_refused).await;
        t.post("{cm}", config_map("a", "fixed")).await;
        t.post("{cm}", config_map("b", "bad")).await;
        t.setup("GET", "{cm}", Value::Null).await;
        t.put("{cm}/a", config_map("a", "2")).await;
    }
    ["A-6"] "a policy takes its limits from parameters" => |t| {
        policy(t, VALIDATING, "a", json!({
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}}, "resourceRules": [rule(&["CREATE"], "", "v1", "secrets")]},
            "validations": [{"expression": "params == null || object.metadata.name.size() <= int(params.data.key)", "messageExpression": "'longer than ' + params.data.key"}],
        })).await;
        t.setup("POST", "{cm}", config_map("limit", "5")).await;
        bind(t, VALIDATING, "a", json!({"paramRef": {"name": "limit", "parameterNotFoundAction": "Deny"}})).await;
        let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let secrets = "/api/v1/namespaces/{ns}/secrets";
        in_use(t, secrets, secret("probe-of-more"), is_refused).await;
        t.post(secrets, secret("short")).await;
        t.post(secrets, secret("longer")).await;
        t.setup("DELETE", "{cm}/limit", Value::Null).await;
        in_use(t, secrets, secret("s"), is_refused).await;
        t.post(secrets, secret("none")).await;
    }
    ["A-6"] "parameters are selected by their labels, and may be absent" => |t| {
        policy(t, VALIDATING, "a", json!({
            "paramKind": {"apiVersion": "{group}/v1", "kind": "Widget"},
            "validations": [{"expression": "object.data.key != params.spec.color", "messageExpression": "'not ' + params.spec.color"}],
        })).await;
        bind(t, VALIDATING, "a", json!({"paramRef": {"selector": {"matchLabels": {"of": "{me}"}}, "parameterNotFoundAction": "Allow"}})).await;
        let mut param = widget("a", json!({"color": "red"}));
        param["metadata"]["labels"] = json!({"of": "{me}"});
        t.setup("POST", "{w}", param).await;
        in_use(t, "{cm}", config_map("probe", "red"), is_refused).await;
        t.post("{cm}", config_map("a", "red")).await;
        t.post("{cm}", config_map("b", "blue")).await;
        t.setup("DELETE", "{w}/a", Value::Null).await;
        in_use(t, "{cm}", config_map("probe", "red"), |answer| answer.code == 201).await;
        t.post("{cm}", config_map("c", "red")).await;
    }
    ["A-6"] "parameters of an unknown type refuse the write" => |t| {
        check(t, "a", json!({
            "paramKind": {"apiVersion": "example.com/v1", "kind": "Missing"},
            "validations": [{"expression": "true"}],
        })).await;
        in_use(t, "{cm}", config_map("probe", "1"), is_refused).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-5"] "rules name, exclude and select objects" => |t| {
        policy(t, VALIDATING, "a", json!({
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
                "objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
                "resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "resourceNames": ["a", "b", "probe"]}],
                "excludeResourceRules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"], "resourceNames": ["b"]}],
            },
            "validations": [{"expression": "false", "message": "never"}],
        })).await;
        bind(t, VALIDATING, "a", json!({"matchResources": {"objectSelector": {"matchExpressions": [{"key": "unbound", "operator": "DoesNotExist"}]}}})).await;
        in_use(t, "{cm}", config_map("probe", "1"), is_refused).await;
        t.post("{cm}", config_map("a", "1")).await;
        t.post("{cm}", config_map("b", "1")).await;
        t.post("{cm}", config_map("c", "1")).await;
        t.post("{cm}", with_label("a", "skip", "1")).await;
        t.delete("{cm}/a").await;
        t.post("{cm}", with_label("a", "unbound", "1")).await;
    }
    ["A-5"] "a policy that costs too much refuses the write" => |t| {
        check(t, "a", json!({"validations": [
            {"expression": "object.data.key != 'much' || [1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a + b + c + d + e + f > 0))))))"},
            {"expression": "object.data.key != 'bad'"},
        ]})).await;
        in_use(t, "{cm}", config_map("probe", "bad"), is_refused).await;
        t.post("{cm}", config_map("a", "much")).await;
    }
    ["A-7"] "a policy adds fields, and replaces those that are there" => |t| {
        change(t, "a", &[
            apply("Object{metadata: Object.metadata{labels: Object.metadata.labels{added: 'yes'}}, data: {'other': object.data.key + '!'}}"),
            apply("Object{metadata: Object.metadata{annotations: {'saw': object.data.other}}}"),
        ], json!({})).await;
        in_use(t, "{cm}", config_map("probe", "1"), |answer| answer.body["data"]["other"] == "1!").await;
        t.post("{cm}?fieldManager=me", with_label("a", "own", "1")).await;
        t.post("{cm}?fieldManager=me", config_map("b", "1")).await;
        t.setup("GET", "{cm}", Value::Null).await;
        t.patch(MERGE, "{cm}/b?fieldManager=other", json!({"data": {"key": "2"}})).await;
        t.patch(APPLY, "{cm}/b?fieldManager=third&force=true", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"key": "3"}})).await;
    }
    ["A-7"] "a policy changes objects with a JSON patch" => |t| {
        change(t, "a", &[
            json_patch("[JSONPatch{op: 'test', path: '/data/key', value: 'old'}, JSONPatch{op: 'replace', path: '/data/key', value: 'new'}]"),
            json_patch("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'is/' + jsonpatch.escapeKey('a'): 'b'}}]"),
            json_patch("object.data.key == 'bad' ? [JSONPatch{op: 'remove', path: '/data/missing'}] : []"),
        ], json!({})).await;
        in_use(t, "{cm}", config_map("probe", "old"), |answer| answer.body["data"]["key"] == "new").await;
        t.post("{cm}", config_map("a", "old")).await;
        t.post("{cm}", config_map("b", "1")).await;
        t.post("{cm}", config_map("c", "bad")).await;
    }
    ["A-7"] "lists of objects are merged by their keys" => |t| {
        change(t, "a", &[apply("Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: 'ADDED', value: c.image}]})}}")],
            json!({"matchConstraints": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}}, "resourceRules": [rule(&["CREATE"], "", "v1", "pods")]}})).await;
        let pods = "/api/v1/namespaces/{ns}/pods";
        let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"serviceAccountName": "default", "automountServiceAccountToken": false, "containers": [{"name": "a", "image": "i", "env": [{"name": "OWN", "value": "1"}]}, {"name": "b", "image": "j"}]}});
        in_use(t, pods, pod("probe"), |answer| answer.body["spec"]["containers"][1]["env"][0]["name"] == "ADDED").await;
        t.post(pods, pod("a")).await;
    }
    ["A-7"] "a mutation that fails refuses the write" => |t| {
        let fails = [
            ("eval", apply("Object{data: {'other': object.data.missing}}")),
            ("atomic", apply("Object{metadata: Object.metadata{managedFields: []}}")),
            ("types", apply("Object{metadata: Object.spec{name: 'a'}}")),
            ("schema", apply("Object{wrong: 'a'}")),
            ("path", json_patch("[JSONPatch{op: 'replace', path: '/data/missing/more', value: 'a'}]")),
        ];
        for (name, mutation) in &fails {
            change(t, name, std::slice::from_ref(mutation), json!({"matchConditions": [{"name": "only", "expression": format!("object.data.key == '{name}'")}]})).await;
        }
        for (name, _) in &fails {
            in_use(t, "{cm}", config_map("probe", name), is_refused).await;
            t.post("{cm}", config_map("a", name)).await;
        }
        t.post("{cm}", config_map("a", "none")).await;
    }
    ["A-7"] "a policy is asked again after a later one changed the object, if it wants" => |t| {
        let counts = |label: &str| apply(&format!("Object{{metadata: Object.metadata{{labels: {{'{label}': string(object.metadata.?labels.?{label}.orValue('0') == '0' ? 1 : 2), 'seen-by-{label}': string(object.metadata.?labels.orValue({{}}).size())}}}}}}"));
        change(t, "a", &[counts("a")], json!({"reinvocationPolicy": "IfNeeded"})).await;
        change(t, "b", &[counts("b")], json!({"reinvocationPolicy": "Never"})).await;
        in_use(t, "{cm}", config_map("probe", "1"), |answer| {
            let labels = &answer.body["metadata"]["labels"];
            labels["a"] == "2" && labels["b"] == "1"
        })
        .await;
        let made = t.setup("POST", "{cm}", config_map("a", "1")).await;
        t.note("asked again", json!([made.body["metadata"]["labels"]["a"], made.body["metadata"]["labels"]["b"]]));
    }
    ["A-7"] "a custom resource is changed by its schema" => |t| {
        change(t, "a", &[apply("Object{spec: Object.spec{size: 'big'}}"), json_patch("object.spec.color == 'bad' ? [JSONPatch{op: 'add', path: '/spec/unknown', value: 'x'}] : []")],
            json!({"matchConstraints": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}}, "resourceRules": [rule(&["CREATE"], "{group}", "v1", "widgets")]}})).await;
        in_use(t, "{w}", widget("probe", json!({"color": "red"})), |answer| answer.body["spec"]["size"] == "big").await;
        t.post("{w}", widget("a", json!({"color": "red"}))).await;
        t.post("{w}", widget("b", json!({"color": "bad"}))).await;
    }
    ["A-5"] "expressions are evaluated as by cel-go" => |t| {
        let expressions = [
            "[dyn({}), dyn({'p': true})].exists(c, c.p)",
            "[dyn({}), dyn({'p': false})].all(c, c.p)",
            "[dyn({}), dyn({'p': true})].all(c, c.p)",
            "object.left || object.right",
            "object.right && object.left == 'a'",
            "-(-9223372036854775807 - size(object.data)) > 0",
            "[9223372036854775807, size(object.data)].sum() > 0",
            "quantity('1e100').isGreaterThan(quantity('1')) && !quantity('1e100').isInteger() && quantity('1e100') == quantity('10e99')",
            "object.?data.?key == optional.of('8') && object.?data.?none == optional.none()",
            "[object.?data.?key].exists(o, o.hasValue()) && object.?data.none.orValue('a') == 'a'",
            "dyn(1) == 1.0 && dyn(1u) == 1 && dyn(1) in [1.0] && dyn([1]) == [1.0] && dyn({'a': 1}) == {'a': 1.0} && dyn(1) != 'a'",
            "size('日本') == 2 && '日本'.size() == 2",
            "string(ip('10.0.0.1')) == '10.0.0.1' && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
            "type(size(object.data)) == int && type(object.data.key) == string && type(duration('1s')) == google.protobuf.Duration",
            "bool('t') && int(timestamp('1970-01-01T00:01:00Z')) == 60",
            "string(timestamp('2026-01-01T00:00:00.1200Z')) == '2026-01-01T00:00:00.12Z' && string(duration('90m')) == '5400s'",
            "duration('600h').getMilliseconds() == 2160000000",
            "duration(object.data.key + 'h foo') > duration('1s')",
            "bool(object.data.key)",
            "['x'].all(object, variables.key == '19')",
            "quantity('1e100').asInteger() > 0",
            "object.?data.?none.value() == 'a'",
        ];
        let validations: Vec<Value> = expressions
            .iter()
            .enumerate()
            .map(|(at, expression)| json!({"expression": format!("object.data.key != '{at}' || ({expression})"), "message": format!("{at} is false")}))
            .collect();
        check(t, "a", json!({"variables": [{"name": "key", "expression": "object.data.key"}], "validations": validations})).await;
        in_use(t, "{cm}", config_map("probe", "3"), is_refused).await;
        for at in 0..expressions.len() {
            t.post("{cm}?dryRun=All", config_map("a", &at.to_string())).await;
        }
    }
    ["A-5 A-7"] "a policy whose object is not converted fails by its failure policy" => |t| {
        let webhook = Webhook::start(|request| {
            let address = request["objects"][0]["spec"]["address"].as_str().unwrap_or_default();
            if address.starts_with("none") {
                converted(request, |review| review["response"]["result"] = json!({"status": "Failure", "message": "not today"}))
            } else {
                converted(request, |_| {})
            }
        });
        dogs(t, &webhook).await;
        let matched = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "{ns}"}},
            "resourceRules": [rule(&["CREATE"], "{own}", "v2", "dogs")]});
        let checked = |failure_policy: &str| json!({"matchConstraints": matched, "failurePolicy": failure_policy,
            "validations": [{"expression": "object.spec.host != 'bad'"}]});
        let changed = |failure_policy: &str| json!({"matchConstraints": matched, "failurePolicy": failure_policy,
            "mutations": [apply("Object{spec: Object.spec{port: '2'}}")]});
        policy(t, VALIDATING, "a", checked("Ignore")).await;
        bind(t, VALIDATING, "a", json!({})).await;
        policy(t, MUTATING, "a", changed("Ignore")).await;
        bind(t, MUTATING, "a", json!({})).await;
        in_use(t, V1, dog("v1", "probe", json!({"address": "bad:1"})), is_refused).await;
        in_use(t, V1, dog("v1", "probe", json!({"address": "h:1"})), |answer| answer.body["spec"]["address"] == "h:2").await;
        t.post(V1, dog("v1", "a", json!({"address": "none:1"}))).await;
        policy(t, VALIDATING, "b", checked("Fail")).await;
        bind(t, VALIDATING, "b", json!({})).await;
        in_use(t, V1, dog("v1", "probe", json!({"address": "none:1"})), is_refused).await;
        t.post(V1, dog("v1", "b", json!({"address": "none:1"}))).await;
        policy(t, MUTATING, "b", changed("Fail")).await;
        bind(t, MUTATING, "b", json!({})).await;
        in_use(t, V1, dog("v1", "probe", json!({"address": "none:1"})), |answer| answer.code == 403).await;
        t.post(V1, dog("v1", "c", json!({"address": "none:1"}))).await;
        // What no webhook converts would keep every namespace that is deleted.
        t.setup("DELETE", V1, Value::Null).await;
    }
    ["A-5"] "the conditions of a policy do not get the namespace" => |t| {
        check(t, "a", json!({
            "matchConditions": [{"name": "no-namespace", "expression": "namespaceObject == null"}],
            "validations": [{"expression": "namespaceObject.metadata.name != object.metadata.namespace", "message": "validations get it"}],
        })).await;
        in_use(t, "{cm}", config_map("probe", "1"), is_refused).await;
        t.post("{cm}", config_map("a", "1")).await;
    }
    ["A-7"] "a policy alone is asked again after its own change" => |t| {
        let count = "Object{metadata: Object.metadata{labels: {'count': string(int(object.metadata.?labels.?count.orValue('0')) + 1)}}}";
        change(t, "a", &[apply(count)], json!({"reinvocationPolicy": "IfNeeded"})).await;
        in_use(t, "{cm}", config_map("probe", "1"), |answer| answer.body["metadata"]["labels"]["count"].is_string()).await;
        let made = t.setup("POST", "{cm}", config_map("a", "1")).await;
        t.note("count", made.body["metadata"]["labels"]["count"].clone());
    }
    ["A-7"] "the result of a JSON patch is decoded strictly" => |t| {
        let patches = [
            ("field", "[JSONPatch{op: 'add', path: '/unknown', value: 'a'}]"),
            ("below", "[JSONPatch{op: 'add', path: '/metadata/unknown', value: 'a'}]"),
            ("kind", "[JSONPatch{op: 'replace', path: '/kind', value: 'Other'}]"),
            ("type", "[JSONPatch{op: 'replace', path: '/data/key', value: 1}]"),
        ];
        for (name, patch) in patches {
            change(t, name, &[json_patch(patch)], json!({"matchConditions": [{"name": "only", "expression": format!("object.data.key == '{name}'")}]})).await;
        }
        for (name, _) in patches {
            in_use(t, "{cm}", config_map("probe", name), is_refused).await;
            t.post("{cm}", config_map("a", name)).await;
        }
    }
    ["A-8"] "functions and types in the expressions of a policy are checked" => |t| {
        let path = format!("{GROUP}/validatingadmissionpolicies");
        let with = |validation: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": VALIDATING, "metadata": {"name": "{me}"}, "spec": {
            "matchConstraints": {"resourceRules": [rule(&["CREATE"], "", "v1", "configmaps")]}, "validations": [validation]}});
        for expression in [
            "unknown(object)",
            "object.data.unknown(1) && true",
            "Foo{x: 1}.x == 1",
            "1 == 1 || [object].all(o, other(o))",
        ] {
            t.post(&path, with(json!({"expression": expression}))).await;
        }
        let ask = "authorizer.group('').resource('pods').check('get').reason()";
        t.post(&path, with(json!({"expression": "true", "messageExpression": ask}))).await;
        t.post(&format!("{path}?dryRun=All"), with(json!({"expression": format!("{ask} == ''")}))).await;
    }
    ["A-8"] "the fields of a policy are checked" => |t| {
        let path = format!("{GROUP}/validatingadmissionpolicies");
        let whole = |spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": VALIDATING, "metadata": {"name": "{me}"}, "spec": spec});
        let with = |name: &str, value: Value| {
            let mut spec = json!({"matchConstraints": {"resourceRules": [rule(&["CREATE"], "", "v1", "configmaps")]}, "validations": [{"expression": "true"}]});
            spec[name] = value;
            whole(spec)
        };
        for body in [
            whole(json!({})),
            with("failurePolicy", json!("Other")),
            with("paramKind", json!({"apiVersion": "a/b/c", "kind": "No.Kind"})),
            with("paramKind", json!({})),
            with("paramKind", json!({"apiVersion": "UPPER/1", "kind": "Kind"})),
            with("matchConstraints", json!({"resourceRules": []})),
            with("matchConstraints", json!({"matchPolicy": "Some", "namespaceSelector": {"matchLabels": {"/": "1"}}, "resourceRules": [{"operations": ["SOME"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "resourceNames": ["a", "a", "b/c"]}]})),
            with("matchConditions", json!([{"name": "a", "expression": ""}, {"name": "a", "expression": "true"}, {"name": "", "expression": "true"}])),
            with("variables", json!([{"name": "", "expression": "1"}, {"name": "no-name", "expression": ""}])),
            with("validations", json!([])),
            with("validations", json!([{"expression": " "}, {"expression": "true", "message": " "}, {"expression": "true", "message": "a\nb"}, {"expression": "true", "messageExpression": " "}, {"expression": "true", "reason": "Other"}])),
            with("auditAnnotations", json!([{"key": "a", "valueExpression": "'1'"}, {"key": "a", "valueExpression": " "}, {"key": "not valid", "valueExpression": "'1'"}])),
        ] {
            t.post(&path, body).await;
        }
    }
    ["A-8"] "the fields of a binding are checked" => |t| {
        let path = format!("{GROUP}/validatingadmissionpolicybindings");
        let whole = |spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "{me}"}, "spec": spec});
        for spec in [
            json!({}),
            json!({"policyName": "Not Valid", "validationActions": ["Deny", "Warn"]}),
            json!({"policyName": "a", "validationActions": ["Other", "Deny", "Deny"]}),
            json!({"policyName": "a", "validationActions": ["Deny"], "paramRef": {}}),
            json!({"policyName": "a", "validationActions": ["Deny"], "paramRef": {"name": "a/b", "selector": {}, "parameterNotFoundAction": "Other"}}),
            json!({"policyName": "a", "validationActions": ["Deny"], "matchResources": {"matchPolicy": "Some"}}),
        ] {
            t.post(&path, whole(spec)).await;
        }
    }
    ["A-8"] "the fields of a policy that changes objects are checked" => |t| {
        let path = format!("{GROUP}/mutatingadmissionpolicies");
        let whole = |spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": MUTATING, "metadata": {"name": "{me}"}, "spec": spec});
        let with = |name: &str, value: Value| {
            let mut spec = json!({"reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": [rule(&["CREATE"], "", "v1", "configmaps")]}, "mutations": [apply("Object{}")]});
            spec[name] = value;
            whole(spec)
        };
        for body in [
            whole(json!({})),
            with("reinvocationPolicy", json!("Some")),
            with("mutations", json!([])),
            with("matchConstraints", json!({"resourceRules": [rule(&["DELETE"], "", "v1", "configmaps")]})),
            with("mutations", json!([{"patchType": "Other"}, {"patchType": "JSONPatch"}, {"patchType": "ApplyConfiguration"}])),
            with("mutations", json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": " "}, "applyConfiguration": {"expression": "Object{}"}}])),
        ] {
            t.post(&path, body).await;
        }
    }
}
