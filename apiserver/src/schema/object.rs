//! The schema of whole objects.

use serde_json::Value;

use super::node::Schema;
use super::{fields, lists, prune, typed, validate};
use crate::cel;
use crate::field::{Errors, Path};
use crate::json_text::Node;

/// The schema of whole objects of one version of one kind.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    root: Schema,
    origin: Origin,
    has_rules: bool,
}

/// The origin of a schema: decides which of two decoders is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A CustomResourceDefinition: validation checks types (422).
    Custom,
    /// A Go type: decoding checks types (400); nothing else does.
    BuiltIn,
}

// === impl ObjectSchema ===

impl ObjectSchema {
    /// The schema of a CRD version, from its `openAPIV3Schema`. Parts that a CRD may not have are ignored;
    /// `crd::validate` refuses them before.
    pub(crate) fn custom(open_api: &Value) -> Self {
        Self::new(Schema::parse(open_api), Origin::Custom)
    }

    /// The schema of a built-in kind.
    pub(crate) fn built_in(root: Schema) -> Self {
        Self::new(root, Origin::BuiltIn)
    }

    fn new(mut root: Schema, origin: Origin) -> Self {
        root.embedded = false;
        let has_rules = root.any(&|schema| !schema.rules.is_empty());
        Self {
            root,
            origin,
            has_rules,
        }
    }

    /// Why a body cannot be decoded, with the text of Go's decoder; it follows
    /// `Foo in version "v1" cannot be handled as a Foo: ` with 400.
    pub(crate) fn decode_error(&self, body: &Node<'_>) -> Option<String> {
        match self.origin {
            Origin::BuiltIn => fields::decode_error(&self.root, body),
            Origin::Custom => fields::metadata_error(&self.root, body),
        }
    }

    /// Whether the body of a built-in kind has nothing that [`ObjectSchema::decode_error`] or
    /// [`ObjectSchema::strict_errors`] would find. Not every such body is known to be.
    pub(crate) fn is_sound(&self, body: &Node<'_>) -> bool {
        self.origin == Origin::BuiltIn && fields::is_sound(&self.root, body)
    }

    /// `unknown field "spec.x"` and `duplicate field "spec.y"`, in a real server's order.
    ///
    /// With `Warn` each is a warning; with `Strict` they are joined by `, ` after
    /// `strict decoding error: ` with 400.
    pub(crate) fn strict_errors(&self, body: &Node<'_>) -> Vec<String> {
        match self.origin {
            Origin::BuiltIn => fields::strict_errors_in_order(&self.root, body),
            Origin::Custom => {
                let mut found: Vec<String> = crate::json_text::duplicate_fields(body)
                    .into_iter()
                    .map(|path| format!("duplicate field \"{path}\""))
                    .collect();
                found.extend(self.unknown_fields(body));
                found
            }
        }
    }

    /// The same for a value without a text, such as the result of a patch: only unknown fields.
    pub(crate) fn strict_errors_of(&self, object: &Value) -> Vec<String> {
        self.strict_errors(&Node::from_value(object))
    }

    fn unknown_fields(&self, body: &Node<'_>) -> Vec<String> {
        fields::unknown_fields(&self.root, body)
            .into_iter()
            .map(|path| format!("unknown field \"{path}\""))
            .collect()
    }

    /// Removes fields that the schema does not have.
    pub(crate) fn prune(&self, object: &mut Value) {
        self.prune_changed(object, &|_| true);
    }

    /// [`ObjectSchema::prune`] of an object whose top-level fields are those of a stored one, but for those that `changed`
    /// names. What is stored of a built-in kind was pruned, if not by an earlier release; the schema of a custom one may
    /// have changed since.
    pub(crate) fn prune_changed(&self, object: &mut Value, changed: &dyn Fn(&str) -> bool) {
        if self.origin == Origin::BuiltIn {
            typed::settle_object(&self.root, object, changed);
        } else {
            prune::prune_object(&self.root, object);
            prune::integral_numbers(object);
        }
    }

    /// Sets defaults, and removes forbidden nulls, as decoding does.
    pub(crate) fn default(&self, object: &mut Value) {
        self.set_defaults(object);
        if self.origin == Origin::Custom {
            prune::remove_forbidden_nulls(&self.root, object);
        }
    }

    /// Sets defaults. A forbidden null without a default stays, so that [`ObjectSchema::validate`] refuses it: an apply
    /// leaves one where it removes the last entry of a map or list that still has an owner.
    pub(crate) fn set_defaults(&self, object: &mut Value) {
        if self.origin == Origin::Custom {
            prune::set_defaults(&self.root, object);
        }
    }

    /// Validates a pruned and defaulted object without its metadata, in a real server's order.
    ///
    /// With `old`, unchanged violations are tolerated (ratcheting) and transition rules
    /// are evaluated.
    ///
    /// `before` and `between` are errors that were found elsewhere: of metadata, and of scale. They keep
    /// their place in the order, and wrong types among them also keep rules from being evaluated.
    /// Broken rules that are tolerated are added to `warnings`.
    pub(crate) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        before: Errors,
        between: Errors,
        warnings: &mut Vec<String>,
    ) -> Errors {
        let mut errors = before;
        if self.origin == Origin::BuiltIn {
            return errors;
        }
        errors.extend(validate::validate(&self.root, object, old));
        errors.extend(lists::embedded_errors(&self.root, object));
        let had_duplicates =
            old.is_some_and(|old| !lists::duplicate_errors(&self.root, old).is_empty());
        if !had_duplicates {
            errors.extend(lists::duplicate_errors(&self.root, object));
        }
        errors.extend(between);
        if self.has_rules {
            if errors.iter().any(cel::blocks) {
                errors.push(cel::not_checked());
            } else {
                let findings = cel::evaluate(&self.root, object, old, &Path::root());
                errors.extend(findings.errors);
                warnings.extend(findings.warnings);
            }
        }
        errors
    }
}
