//! Bodies with slots, so that a body costs the copy of its bytes.

use bytes::{BufMut as _, Bytes, BytesMut};

/// A text with slots: `@NAME@`, `@VERSION@`, `@STEP@` and `@TEN@`.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    parts: Vec<Part>,
    length: usize,
}

/// What fills the slots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fill<'a> {
    pub(crate) name: &'a str,
    /// The resourceVersion; 0 is an empty one.
    pub(crate) version: u64,
    /// A number that changes the object.
    pub(crate) step: u64,
    /// The last digit of the object's number, for label selectors.
    pub(crate) ten: usize,
}

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Name,
    Version,
    Step,
    Ten,
}

// === impl Template ===

impl Template {
    pub(crate) fn new(text: &str) -> Self {
        let parts: Vec<Part> = text
            .split('@')
            .map(|part| match part {
                "NAME" => Part::Name,
                "VERSION" => Part::Version,
                "STEP" => Part::Step,
                "TEN" => Part::Ten,
                text => Part::Text(text.to_owned()),
            })
            .collect();
        Self {
            length: text.len() + 64,
            parts,
        }
    }

    pub(crate) fn fill(&self, fill: Fill<'_>) -> Bytes {
        let mut body = BytesMut::with_capacity(self.length);
        for part in &self.parts {
            match part {
                Part::Text(text) => body.put_slice(text.as_bytes()),
                Part::Name => body.put_slice(fill.name.as_bytes()),
                Part::Version if fill.version == 0 => {}
                Part::Version => body.put_slice(fill.version.to_string().as_bytes()),
                Part::Step => body.put_slice(fill.step.to_string().as_bytes()),
                Part::Ten => body.put_slice(fill.ten.to_string().as_bytes()),
            }
        }
        body.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_filled_and_a_new_object_has_no_version() {
        let template = Template::new(r#"{"n":"@NAME@","v":"@VERSION@","s":"@STEP@"}"#);
        let fill = Fill {
            name: "a",
            step: 3,
            ..Fill::default()
        };
        assert_eq!(template.fill(fill), r#"{"n":"a","v":"","s":"3"}"#);
        let fill = Fill {
            version: 12,
            ..fill
        };
        assert_eq!(template.fill(fill), r#"{"n":"a","v":"12","s":"3"}"#);
    }
}
