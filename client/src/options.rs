//! Options of a write.

use kube_core::params::{PatchParams, PostParams, ValidationDirective};

/// The server's treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Refuses the write.
    Strict,
    /// Drops them, and warns. The server's own default.
    Warn,
    /// Drops them.
    Ignore,
}

// === impl FieldValidation ===

impl FieldValidation {
    /// The value in the query.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "Strict",
            Self::Warn => "Warn",
            Self::Ignore => "Ignore",
        }
    }
}

/// Options of a create, an update or a patch. An unset option is the client's
/// ([`Client::field_owner`](crate::Client::field_owner) and others), else the server's default.
///
/// `()` converts to it, for none, and so do the parameters of kube-core.
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
    /// No options.
    pub fn new() -> Self {
        Self::default()
    }

    /// The server does everything but store the result.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Sets the manager of the changed fields; at most 128 bytes.
    pub fn field_owner(mut self, owner: impl Into<String>) -> Self {
        self.field_owner = Some(owner.into());
        self
    }

    /// Sets the treatment of unknown fields.
    pub fn field_validation(mut self, validation: FieldValidation) -> Self {
        self.field_validation = Some(validation);
        self
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The field manager, if set.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.field_owner.as_deref()
    }

    /// The treatment of unknown fields, if set.
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

impl From<()> for WriteOptions {
    fn from((): ()) -> Self {
        Self::new()
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

/// Options of a server-side apply. An owner is required, because fields belong to one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ApplyOptions(pub(crate) WriteOptions);

// === impl ApplyOptions ===

impl ApplyOptions {
    /// Applies as `owner`. Fields that an earlier apply of this owner set and this one does not set are removed.
    pub fn new(owner: impl Into<String>) -> Self {
        Self(WriteOptions::new().field_owner(owner))
    }

    /// Takes fields from other owners, instead of failing with a conflict.
    pub fn force(mut self) -> Self {
        self.0.force = true;
        self
    }

    /// The server does everything but store the result.
    pub fn dry_run(mut self) -> Self {
        self.0.dry_run = true;
        self
    }

    /// Sets the treatment of unknown fields. Default: [`FieldValidation::Strict`] (controller-runtime:
    /// `Apply` is always strict).
    pub fn field_validation(mut self, validation: FieldValidation) -> Self {
        self.0.field_validation = Some(validation);
        self
    }
}
