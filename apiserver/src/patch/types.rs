//! The type at a place of an object, as strategic merge patch needs it.

use crate::kinds::data::{Data, Form, Patch, Special, Type as DataType};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type {
    /// Nothing below has a list that merges.
    Plain,
    Struct(&'static DataType),
    /// A map with values of this form.
    Map(&'static Form),
}

/// The merge strategy of a field, and the type below it: of a list, that of its items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) strategy: Patch,
    pub(super) of: Type,
}

// === impl Type ===

impl Type {
    /// The type of a whole object.
    pub(super) fn of_kind(root: Option<&'static DataType>) -> Self {
        root.map_or(Self::Plain, Self::Struct)
    }

    /// The rule for the field `name` of this type.
    pub(super) fn field(self, name: &str) -> Field {
        let field = match self {
            Self::Struct(of) => of.field(name),
            Self::Map(form) => {
                return Field {
                    strategy: Patch::Default,
                    of: Self::of(form),
                };
            }
            Self::Plain => None,
        };
        field.map_or(
            Field {
                strategy: Patch::Default,
                of: Self::Plain,
            },
            |field| Field {
                strategy: field.patch,
                of: Self::of(&field.form),
            },
        )
    }

    fn of(form: &'static Form) -> Self {
        match form {
            Form::Scalar(..) => Self::Plain,
            Form::List(_, items) => Self::of(items),
            Form::Map(_, values) => Self::Map(values),
            Form::Named(_) => match form.named() {
                Some(of) if of.special.is_none() => Self::Struct(of),
                Some(of)
                    if matches!(
                        of.special,
                        Some(Special::SchemaOrBoolean | Special::SchemaOrList)
                    ) =>
                {
                    Self::of_kind(Data::get().named("apiextensions.v1.JSONSchemaProps"))
                }
                _ => Self::Plain,
            },
        }
    }
}
