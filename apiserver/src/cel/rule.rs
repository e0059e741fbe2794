//! One compiled rule.

use kube_cel::cel::common::ast::IdedExpr;
use serde_json::Value;

use super::compile::{compile_then, depth, object_type};
use super::meter::Metered;
use crate::field::ErrorKind;

/// Expressions deeper than this are evaluated on the deep stack: in a debug build a level uses some 40 KiB.
pub(super) const DEEP: usize = 16;

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(super) text: String,
    pub(super) message: Option<String>,
    pub(super) message_expression: Option<(String, Metered)>,
    pub(super) kind: ErrorKind,
    pub(super) field_path: Option<String>,
    pub(super) optional_old_self: bool,
    /// It uses `oldSelf`: without an old value it is skipped.
    pub(super) transition: bool,
    /// It needs more stack than an ordinary thread has.
    pub(super) deep: bool,
    pub(super) program: Result<Metered, String>,
}

/// The kept parts of a compiled expression.
pub(super) struct Compiled {
    pub(super) metered: Metered,
    names_old_self: bool,
    pub(super) depth: usize,
}

// === impl Rule ===

impl Rule {
    /// Compiles one entry of `x-kubernetes-validations`. A rule that does not compile fails each time
    /// it is evaluated; [`compile_error`](super::compile_error) finds it when the CRD is written.
    pub(crate) fn compile(source: &Value) -> Self {
        let text = |name: &str| {
            source[name]
                .as_str()
                .map(str::to_owned)
                .filter(|text| !text.is_empty())
        };
        let rule = text("rule").unwrap_or_default();
        let program = Compiled::read(&rule);
        let message_expression =
            text("messageExpression").and_then(|text| Some((Compiled::read(&text).ok()?, text)));
        let message_depth = message_expression
            .as_ref()
            .map_or(0, |(compiled, _)| compiled.depth);
        let depth = program.as_ref().map_or(0, |compiled| compiled.depth);
        Self {
            deep: depth.max(message_depth) > DEEP,
            message: text("message").map(|message| message.trim().to_owned()),
            message_expression: message_expression.map(|(compiled, text)| (text, compiled.metered)),
            kind: match source["reason"].as_str() {
                Some("FieldValueForbidden") => ErrorKind::Forbidden,
                Some("FieldValueRequired") => ErrorKind::Required,
                Some("FieldValueDuplicate") => ErrorKind::Duplicate,
                _ => ErrorKind::Invalid,
            },
            field_path: text("fieldPath"),
            optional_old_self: source["optionalOldSelf"] == true,
            transition: program
                .as_ref()
                .is_ok_and(|compiled| compiled.names_old_self),
            program: program.map(|compiled| compiled.metered),
            text: rule,
        }
    }

    pub(super) fn message(&self) -> String {
        self.message
            .clone()
            .unwrap_or_else(|| format!("failed rule: {}", self.text.trim()))
    }

    /// The name of the rule in messages.
    pub(super) fn name(&self) -> &str {
        self.message.as_deref().unwrap_or_else(|| self.text.trim())
    }
}

// === impl Compiled ===

impl Compiled {
    fn read(text: &str) -> Result<Self, String> {
        compile_then(text, Self::new).and_then(|compiled| compiled)
    }

    /// Rewrites an expression. Rules have no types of which they could make objects, and the interpreter panics for one.
    pub(super) fn new(expression: IdedExpr) -> Result<Self, String> {
        if let Some(name) = object_type(&expression) {
            return Err(format!(
                "undeclared reference to '{name}' (in container '')"
            ));
        }
        let metered = Metered::new(&expression);
        Ok(Self {
            names_old_self: expression.references().has_variable("oldSelf"),
            depth: depth(metered.expression()),
            metered,
        })
    }
}
