//! What a write may say beside its object.

use kube_core::params::{PatchParams, PostParams, ValidationDirective};

/// What the server does about fields that the kind does not have, or that are given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Refuses the write.
    Strict,
    /// Takes the write without them, and warns. The server's own default.
    Warn,
    /// Takes the write without them.
    Ignore,
}

// === impl FieldValidation ===

impl FieldValidation {
    /// As the query says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Warn => "Warn",
            Self::Ignore => "Ignore",
        }
    }
}

/// What a create, an update or a patch says beside its object. What is not said here is the client's
/// ([`Client::field_owner`](super::Client::field_owner) and others), else the server's default.
///
/// The parameters of kube-core turn into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_owner: Option<String>,
    pub(crate) field_validation: Option<FieldValidation>,
    pub(crate) force: bool,
}

// === impl WriteOptions ===

impl WriteOptions {
    /// Nothing said.
    pub fn new() -> Self {
        Self::default()
    }

    /// The server does everything but keep the result.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Who is noted as the manager of the fields that change; at most 128 bytes.
    pub fn field_owner(mut self, owner: impl Into<String>) -> Self {
        self.field_owner = Some(owner.into());
        self
    }

    /// What the server does about unknown fields.
    pub fn field_validation(mut self, validation: FieldValidation) -> Self {
        self.field_validation = Some(validation);
        self
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Who is noted as manager, if said.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.field_owner.as_deref()
    }

    /// What is done about unknown fields, if said.
    #[must_use]
    pub fn validation(&self) -> Option<FieldValidation> {
        self.field_validation
    }

    /// Whether an apply takes fields from other managers.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.force
    }
}

impl From<&PatchParams> for WriteOptions {
    fn from(params: &PatchParams) -> Self {
        Self {
            dry_run: params.dry_run,
            field_owner: params.field_manager.clone(),
            field_validation: params
                .field_validation
                .as_ref()
                .map(|validation| match validation {
                    ValidationDirective::Strict => FieldValidation::Strict,
                    ValidationDirective::Warn => FieldValidation::Warn,
                    ValidationDirective::Ignore => FieldValidation::Ignore,
                }),
            force: params.force,
        }
    }
}

impl From<&PostParams> for WriteOptions {
    fn from(params: &PostParams) -> Self {
        Self {
            dry_run: params.dry_run,
            field_owner: params.field_manager.clone(),
            ..Self::default()
        }
    }
}

/// What a server-side apply says beside its object. There is none without an owner: fields belong to one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ApplyOptions(pub(crate) WriteOptions);

// === impl ApplyOptions ===

impl ApplyOptions {
    /// Applies in the name of `owner`. Fields that an earlier apply of this owner set and this one does not are
    /// removed.
    pub fn new(owner: impl Into<String>) -> Self {
        Self(WriteOptions::new().field_owner(owner))
    }

    /// Takes fields that others own, instead of failing with a conflict.
    pub fn force(mut self) -> Self {
        self.0.force = true;
        self
    }

    /// The server does everything but keep the result.
    pub fn dry_run(mut self) -> Self {
        self.0.dry_run = true;
        self
    }

    /// What the server does about unknown fields. [`FieldValidation::Strict`] unless said (controller-runtime:
    /// `Apply` is always strict).
    pub fn field_validation(mut self, validation: FieldValidation) -> Self {
        self.0.field_validation = Some(validation);
        self
    }
}
