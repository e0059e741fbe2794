//! The description of messages, from which their readers are made.

/// Implements [`Value`](super::values::Value) for types of k8s-openapi.
///
/// A message has its name in the table, its type, and its fields. A field has a mode, its number on the wire, and its name
/// in the type:
///
/// | mode | the field |
/// |---|---|
/// | `must` | is on the wire in any case, a zero too |
/// | `opt` | is left out of the object when it is empty |
/// | `any` | is in the object when it is on the wire |
/// | `v1_34` and so on | as `any`, since this version of Kubernetes |
///
/// `@2 { … }` is field 2, a message whose fields the type has itself.
macro_rules! messages {
    ($($name:literal $type:path {
        $($mode:ident $number:literal $field:ident,)*
        $(@ $outer:literal {
            $($inner_mode:ident $inner_number:literal $inner_field:ident,)*
        })*
    })*) => {
        $(impl $crate::direct::values::Value for $type {
            #[inline]
            fn fresh() -> Self {
                Self::default()
            }

            fn read(&mut self, cursor: &mut $crate::direct::cursor::Cursor<'_>) -> Option<bool> {
                const MUST: u32 = 0
                    $(+ $crate::direct::message::must!($mode))*
                    $(+ 1 $(+ $crate::direct::message::must!($inner_mode))*)*;
                const FIELDS: &[$crate::direct::cursor::Must] = &[
                    $($crate::direct::cursor::Must {
                        count: $crate::direct::message::must!($mode),
                        inlined: None,
                        number: $number,
                    },)*
                    $($crate::direct::cursor::Must {
                        count: 1,
                        inlined: None,
                        number: $outer,
                    },
                    $($crate::direct::cursor::Must {
                        count: $crate::direct::message::must!($inner_mode),
                        inlined: Some($outer),
                        number: $inner_number,
                    },)*)*
                ];
                let mut former = cursor.former(self);
                let mut fields = cursor.fields()?;
                let mut musts = 0;
                loop {
                    match fields.next()? {
                        0 => break,
                        $($number => {
                            musts += $crate::direct::message::must!($mode) * u32::from(!fields.leaves_out());
                            $crate::direct::message::read!($mode, fields, self, former, $field);
                        })*
                        $($outer => {
                            musts += 1;
                            let mut inner = fields.fields()?;
                            loop {
                                match inner.next()? {
                                    0 => break,
                                    $($inner_number => {
                                        musts += $crate::direct::message::must!($inner_mode)
                                            * u32::from(!inner.leaves_out());
                                        $crate::direct::message::read!($inner_mode, inner, self, former, $inner_field);
                                    })*
                                    _ => inner.skip_unread($name, Some($outer))?,
                                }
                            }
                        })*
                        _ => fields.skip_unread($name, None)?,
                    }
                }
                (musts == MUST || fields.lacks_only_left_out(musts, FIELDS)).then_some(true)
            }
        })*

        #[cfg(test)]
        pub(super) const DESCRIBED: &[$crate::direct::described::Described] = &[
            $($crate::direct::described::Described {
                name: $name,
                fields: &[$((stringify!($mode), $number, stringify!($field)),)*],
                inlined: &[$(
                    ($outer, &[$((stringify!($inner_mode), $inner_number, stringify!($inner_field)),)*]),
                )*],
            },)*
        ];
    };
}

/// One for a field that is on the wire in any case.
macro_rules! must {
    (must) => {
        1
    };
    ($other:ident) => {
        0
    };
}

/// Reads one field.
macro_rules! read {
    (opt, $fields:ident, $into:ident, $former:ident, $field:ident) => {
        $fields.read_filled(&mut $into.$field, $former.as_mut().map(|former| &mut former.$field))?
    };
    (v1_34, $fields:ident, $($rest:tt)*) => {
        k8s_openapi::k8s_if_ge_1_34! { $crate::direct::message::read!(any, $fields, $($rest)*); }
        k8s_openapi::k8s_if_le_1_33! { $fields.skip(); }
    };
    (v1_35, $fields:ident, $($rest:tt)*) => {
        k8s_openapi::k8s_if_ge_1_35! { $crate::direct::message::read!(any, $fields, $($rest)*); }
        k8s_openapi::k8s_if_le_1_34! { $fields.skip(); }
    };
    (v1_36, $fields:ident, $($rest:tt)*) => {
        k8s_openapi::k8s_if_ge_1_36! { $crate::direct::message::read!(any, $fields, $($rest)*); }
        k8s_openapi::k8s_if_le_1_35! { $fields.skip(); }
    };
    ($other:ident, $fields:ident, $into:ident, $former:ident, $field:ident) => {
        $fields.read(&mut $into.$field, $former.as_mut().map(|former| &mut former.$field))?
    };
}

pub(super) use {messages, must, read};
