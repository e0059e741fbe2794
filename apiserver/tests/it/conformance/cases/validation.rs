//! Custom resources against their schema.

use serde_json::{Value, json};

use super::{cases, widget};
use crate::conformance::case::MERGE;

cases! { "validation";
    ["CRD-4"] "unknown fields are pruned, but not where the schema preserves them" => |t| {
        t.post("{w}?fieldValidation=Ignore", widget("a", json!({"unknown": 1, "free": {"any": {"thing": 1}}, "ports": [{"name": "x", "odd": 1}]}))).await;
    }
    ["CRD-4"] "defaults are added, also nested ones" => |t| {
        t.post("{w}", widget("a", json!({"ports": [{"name": "x"}, {"name": "y", "protocol": "UDP"}]}))).await;
    }
    ["CRD-4"] "defaults of a missing spec are not added" => |t| {
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a"}})).await;
    }
    ["CRD-4"] "null becomes the default, stays where it is allowed, and is removed elsewhere" => |t| {
        t.post("{w}", widget("a", json!({"mode": null, "note": null, "color": null}))).await;
    }
    ["CRD-4"] "an embedded resource keeps its unknown fields and needs kind and apiVersion" => |t| {
        t.post("{w}", widget("a", json!({"pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "odd": 1}, "spec": {"any": 1}}}))).await;
        t.post("{w}", widget("b", json!({"pod": {"spec": {"any": 1}}}))).await;
    }
    ["CRD-5"] "a number too low or too high" => |t| {
        t.post("{w}", widget("a", json!({"replicas": -1}))).await;
        t.post("{w}", widget("a", json!({"replicas": 101}))).await;
        t.post("{w}", widget("a", json!({"ratio": 1}))).await;
        t.post("{w}", widget("a", json!({"even": 3}))).await;
    }
    ["CRD-5"] "a wrong type" => |t| {
        t.post("{w}", widget("a", json!({"replicas": "1"}))).await;
        t.post("{w}", widget("a", json!({"color": 5}))).await;
        t.post("{w}", widget("a", json!({"flag": "yes"}))).await;
        t.post("{w}", widget("a", json!({"tags": "x"}))).await;
        t.post("{w}", widget("a", json!({"strict": []}))).await;
        t.post("{w}", widget("a", json!({"replicas": 1.5}))).await;
    }
    ["CRD-5"] "a spec that is not an object" => |t| {
        t.post("{w}", widget("a", json!("x"))).await;
        t.post("{w}", widget("a", Value::Null)).await;
    }
    ["CRD-5"] "a value not in the enumeration" => |t| {
        t.post("{w}", widget("a", json!({"size": "huge"}))).await;
    }
    ["CRD-5"] "a text that does not match the pattern, is too long or too short" => |t| {
        t.post("{w}", widget("a", json!({"color": "Red"}))).await;
        t.post("{w}", widget("a", json!({"color": "abcdefghijk"}))).await;
        t.post("{w}", widget("a", json!({"color": "a"}))).await;
    }
    ["CRD-5"] "patterns have Go's meaning" => |t| {
        let tried = [
            ("^\\d+$", "12"), ("^\\d+$", "١٢"), ("^\\w$", "é"), ("^\\s$", "\u{b}"), ("^[\\D]$", "x"), ("^a{,2}$", "a{,2}"), ("^[[a]$", "["),
            ("^[a&&b]+$", "a&b"), ("^[a~~b]+$", "~"), ("\\bx\\b", "éx"), ("^\\p{Greek}\\P{^Lu}$", "αA"), ("^\\Qa.b\\E$", "axb"), ("^\\103$", "C"),
            ("(?i)^AB(?-i:c)$", "abC"), ("^a.b$", "a\nb"), ("^[[:^alpha:]]$", "a"), ("^(?P<n>a)(?P<n>b)$", "ab"), ("^.$", "ü"),
        ];
        let mut properties = serde_json::Map::new();
        let mut spec = serde_json::Map::new();
        for (at, (pattern, text)) in tried.iter().enumerate() {
            properties.insert(format!("p{at:02}"), json!({"type": "string", "pattern": pattern}));
            spec.insert(format!("p{at:02}"), json!(text));
        }
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
        t.make(super::kinds::DEFINITIONS, super::kinds::own("rats", "Rat", schema)).await;
        let rats = "/apis/{own}/v1/namespaces/{ns}/rats";
        t.until(rats, |answer| answer.code == 200).await;
        let answer = t.setup_any("POST", rats, &[], json!({"apiVersion": "{own}/v1", "kind": "Rat", "metadata": {"name": "a"}, "spec": spec})).await;
        let mut causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes.sort_by_key(Value::to_string);
        t.note("code and causes", json!([answer.code, causes]));
    }
    ["CRD-5"] "a text that is not a date" => |t| {
        t.post("{w}", widget("a", json!({"day": "yesterday"}))).await;
        t.post("{w}", widget("a", json!({"day": "2026-01-01T00:00:00Z"}))).await;
    }
    ["CRD-5"] "a required field that is missing" => |t| {
        t.post("{w}", widget("a", json!({"strict": {"may": "x"}}))).await;
        t.post("{w}", widget("a", json!({"ports": [{"number": 1}]}))).await;
    }
    ["CRD-5"] "too many items and too many properties" => |t| {
        t.post("{w}", widget("a", json!({"tags": ["a", "b", "c", "d", "e"]}))).await;
        t.post("{w}", widget("a", json!({"limits": {"a": 1, "b": 2, "c": 3, "d": 4}}))).await;
        t.post("{w}", widget("a", json!({"limits": {"a": "x"}}))).await;
    }
    ["CRD-5"] "exactly one of two" => |t| {
        t.post("{w}", widget("a", json!({"either": {"a": 1}}))).await;
        t.post("{w}", widget("b", json!({"either": {"a": 1, "b": 2}}))).await;
        t.post("{w}", widget("c", json!({"either": {}}))).await;
    }
    ["CRD-5"] "several errors at once, in any order" => |t| {
        let body = widget("a", json!({"replicas": -1, "size": "huge", "color": "X1"}));
        let answer = t.setup_any("POST", "{w}", &[], body).await;
        let mut causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes.sort_by_key(Value::to_string);
        t.note("code and causes", json!([answer.code, causes]));
    }
    ["CRD-7"] "a set with a duplicate, a map list with a duplicate key" => |t| {
        t.post("{w}", widget("a", json!({"tags": ["x", "y", "x"]}))).await;
        t.post("{w}", widget("a", json!({"ports": [{"name": "x"}, {"name": "x", "number": 2}]}))).await;
    }
    ["CRD-7"] "an int-or-string accepts only these two types" => |t| {
        t.post("{w}", widget("a", json!({"port": 80}))).await;
        t.post("{w}", widget("b", json!({"port": "http"}))).await;
        t.post("{w}", widget("c", json!({"port": true}))).await;
    }
    ["CRD-7"] "an int32 out of range" => |t| {
        t.post("{w}", widget("a", json!({"ports": [{"name": "x", "number": 3_000_000_000_i64}]}))).await;
    }
    ["CRD-6"] "a rule with a message expression, a path and a reason" => |t| {
        t.post("{w}", widget("a", json!({"low": 5, "high": 3}))).await;
        t.post("{w}", widget("b", json!({"low": 3, "high": 5}))).await;
    }
    ["CRD-6"] "a rule with a plain message" => |t| {
        t.post("{w}", widget("a", json!({"color": "beige"}))).await;
    }
    ["CRD-6"] "a transition rule does not run on a create and runs on an update" => |t| {
        t.post("{w}", widget("a", json!({"fixed": "x"}))).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"fixed": "y"}})).await;
        t.patch(MERGE, "{w}/a", json!({"spec": {"color": "red"}})).await;
    }
    ["CRD-6"] "rules are skipped when types are wrong" => |t| {
        t.post("{w}", widget("a", json!({"low": 5, "high": 3, "replicas": "x"}))).await;
    }
    ["CRD-6"] "rules also run with other errors of values" => |t| {
        t.post("{w}", widget("a", json!({"low": 5, "high": 3, "replicas": -1}))).await;
    }
    ["CRD-5"] "a value that was invalid before the schema changed may stay" => |t| {
        let definitions = super::kinds::DEFINITIONS;
        let schema = |maximum: Value| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "maximum": maximum}, "m": {"type": "integer"}}}}});
        t.make(definitions, super::kinds::own("rats", "Rat", schema(json!(10)))).await;
        let rats = "/apis/{own}/v1/namespaces/{ns}/rats";
        t.until(rats, |answer| answer.code == 200).await;
        t.make(rats, json!({"apiVersion": "{own}/v1", "kind": "Rat", "metadata": {"name": "a"}, "spec": {"n": 9, "m": 1}})).await;
        t.setup("PATCH", &format!("{definitions}/rats.{{own}}"), json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema(json!(5))}}]}})).await;

        // The new schema is active when the server refuses the object.
        t.refused_within(rats, json!({"apiVersion": "{own}/v1", "kind": "Rat", "metadata": {"name": "b"}, "spec": {"n": 9}})).await;
        t.patch(MERGE, &format!("{rats}/a"), json!({"spec": {"m": 2}})).await;
        t.patch(MERGE, &format!("{rats}/a"), json!({"spec": {"n": 8}})).await;
    }
    ["CRD-6"] "a value that broke a rule before the rule existed may stay, with a warning" => |t| {
        let definitions = super::kinds::DEFINITIONS;
        let schema = |rules: Value| json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"n": {"type": "integer", "x-kubernetes-validations": rules}, "m": {"type": "integer"}}}}});
        t.make(definitions, super::kinds::own("rats", "Rat", schema(json!([])))).await;
        let rats = "/apis/{own}/v1/namespaces/{ns}/rats";
        t.until(rats, |answer| answer.code == 200).await;
        t.make(rats, json!({"apiVersion": "{own}/v1", "kind": "Rat", "metadata": {"name": "a"}, "spec": {"n": 9, "m": 1}})).await;
        t.setup("PATCH", &format!("{definitions}/rats.{{own}}"), json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema(json!([{"rule": "self < 5", "message": "too many"}]))}}]}})).await;
        t.refused_within(rats, json!({"apiVersion": "{own}/v1", "kind": "Rat", "metadata": {"name": "b"}, "spec": {"n": 9}})).await;
        t.patch(MERGE, &format!("{rats}/a"), json!({"spec": {"m": 2}})).await;
        t.patch(MERGE, &format!("{rats}/a"), json!({"spec": {"n": 8}})).await;
    }
    ["CRD-6"] "rules that fail, and patterns in rules" => |t| {
        let rule = |rule: &str| json!([{"rule": rule}]);
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "port": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": rule("self > 5")},
            "list": {"type": "array", "maxItems": 9, "items": {"type": "integer"}, "x-kubernetes-validations": rule("self[5] == 1")},
            "text": {"type": "string", "maxLength": 99, "x-kubernetes-validations": rule("self.matches('^\\\\d+$')")},
            "found": {"type": "string", "maxLength": 99, "x-kubernetes-validations": rule("self.find('[0-9]+') == '12' && self.findAll('[0-9]+').size() == 2 && self.findAll('[0-9]+', 1).size() == 1")},
            "rows": {"type": "array", "maxItems": 9, "items": {"type": "object", "properties": {"n": {"type": "integer"}, "on": {"type": "boolean"}}},
                "x-kubernetes-validations": rule("self.filter(r, r.on).map(r, r.n * 2) == [2, 6] && self.map(r, has(r.n), r.n).sum() == 6")},
            "by": {"type": "integer", "x-kubernetes-validations": rule("10 / self > 1")},
        }}}});
        t.make(super::kinds::DEFINITIONS, super::kinds::own("rats", "Rat", schema)).await;
        let rats = "/apis/{own}/v1/namespaces/{ns}/rats";
        t.until(rats, |answer| answer.code == 200).await;
        for spec in [
            json!({"port": "x"}), json!({"port": 6}), json!({"list": [1]}), json!({"text": "12"}), json!({"text": "١٢"}), json!({"found": "a12b3"}), json!({"found": "a1"}),
            json!({"rows": [{"n": 1, "on": true}, {"n": 2, "on": false}, {"n": 3, "on": true}]}), json!({"rows": [{"n": 1}]}), json!({"by": 0}), json!({"by": 2}),
        ] {
            let answer = t.setup_any("POST", &format!("{rats}?dryRun=All"), &[], json!({"apiVersion": "{own}/v1", "kind": "Rat", "metadata": {"name": "a"}, "spec": spec})).await;
            t.note(&spec.to_string(), json!([answer.code, answer.body["message"]]));
        }
    }
    ["CRD-6"] "a rule that costs too much for one object" => |t| {
        let definitions = super::kinds::DEFINITIONS;
        let numbers = json!({"type": "array", "maxItems": 1000, "items": {"type": "integer"}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": numbers, "b": numbers},
            "x-kubernetes-validations": [
                {"rule": "self.a.all(x, self.b.all(y, x + y < 5000000))", "message": "too much in all"},
                {"rule": "self.a.all(x, x < 5000000)", "message": "too much in one"},
            ]}}});
        t.make(definitions, super::kinds::own("rats", "Rat", schema)).await;
        let rats = "/apis/{own}/v1/namespaces/{ns}/rats";
        t.until(rats, |answer| answer.code == 200).await;
        let rat = |name: &str, items: i64| json!({"apiVersion": "{own}/v1", "kind": "Rat", "metadata": {"name": name}, "spec": {"a": (0..items).collect::<Vec<_>>(), "b": (0..items).collect::<Vec<_>>()}});
        for (name, items) in [("a", 10), ("b", 1000)] {
            let answer = t.setup_any("POST", rats, &[], rat(name, items)).await;
            t.note(name, json!([answer.code, answer.body["message"]]));
        }
    }
    ["CRD-6"] "rules that together cost too much for one object" => |t| {
        let definitions = super::kinds::DEFINITIONS;
        // The prefix of a long text costs as much as the text and takes no time: also a server on a
        // busy machine evaluates all rules before its deadline for a request.
        let text = json!({"type": "string", "maxLength": 10_000});
        let rule = |n: i64| json!({"rule": format!("self.numbers.all(x, x > -{n} && self.text.startsWith('x'))"), "message": format!("rule {n}")});
        let rows = json!({"type": "array", "maxItems": 5, "items": {"type": "object",
            "properties": {"numbers": {"type": "array", "maxItems": 400, "items": {"type": "integer"}}, "text": text},
            "x-kubernetes-validations": (1..=6).map(rule).collect::<Vec<_>>()}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"rows": rows}}}});
        t.make(definitions, super::kinds::own("rats", "Rat", schema)).await;
        let rats = "/apis/{own}/v1/namespaces/{ns}/rats";
        t.until(rats, |answer| answer.code == 200).await;
        let row = json!({"numbers": (0..400).collect::<Vec<i64>>(), "text": "x".repeat(10_000)});
        for (name, count) in [("a", 2), ("b", 5)] {
            let rat = json!({"apiVersion": "{own}/v1", "kind": "Rat", "metadata": {"name": name}, "spec": {"rows": vec![row.clone(); count]}});
            let answer = t.setup_any("POST", rats, &[], rat).await;
            t.note(name, json!([answer.code, answer.body["message"]]));
        }
    }
    ["CRD-5 CRD-9"] "metadata that cannot be decoded" => |t| {
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "annotations": {"x": 1}}})).await;
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": 5}})).await;
    }
    ["CRD-9"] "annotations of more than 256 KiB are too long" => |t| {
        let long = "x".repeat(262_200);
        let answer = t.setup_any("POST", "{cm}", &[], json!({"metadata": {"name": "a", "annotations": {"long": long}}})).await;
        t.note("answer", answer.body);
    }
    ["CRD-9"] "a request of more than 3 MiB is too large" => |t| {
        let long = "x".repeat(3 * 1024 * 1024 + 100);
        let answer = t.setup_any("POST", "{cm}", &[], json!({"metadata": {"name": "a"}, "data": {"long": long}})).await;
        t.note("answer", answer.body);
    }
    ["CRD-5"] "owner references must be whole" => |t| {
        t.post("{w}", json!({"apiVersion": "{group}/v1", "kind": "Widget", "metadata": {"name": "a", "ownerReferences": [{"kind": "X"}]}})).await;
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid, "controller": true});
        t.post("{cm}", json!({"metadata": {"name": "a", "ownerReferences": [owner("u1"), owner("u2")]}})).await;
    }
}
