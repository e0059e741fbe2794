//! What a compact entry owns: its bytes, as they are or in their short form, and the places of fields in them. The bytes
//! are a JSON text, or a message of protobuf.

use std::borrow::Cow;
use std::sync::Arc;

use super::packing::{Dictionary, Packing, unpack};

/// The bytes before the head of a packed text: the lengths of head and text.
const LENGTHS: usize = 2 * size_of::<u32>();

/// The bytes of an object.
pub(super) enum Body {
    Plain(Box<[u8]>),
    Packed {
        /// The two lengths; the head, which has the values that are read without the rest; the short form of the bytes.
        bytes: Box<[u8]>,
        dictionary: Arc<Dictionary>,
    },
}

/// A part of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u32,
    pub(super) to: u32,
}

/// The positions of fields in the text; empty for a missing field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) metadata: Span,
    pub(super) owner_references: Span,
    pub(super) labels: Span,
    pub(super) name: Span,
    pub(super) namespace: Span,
    pub(super) uid: Span,
    pub(super) resource_version: Span,
}

/// A header in less memory. Labels, name, namespace, uid and version of a packed entry are positions in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) metadata: Span,
    pub(super) owner_references: Span,
    pub(super) labels: Span,
    from: [u32; 4],
    lengths: [u16; 4],
}

// === impl Span ===

impl Span {
    /// The positions in a text, which is refused before this if it is longer than 4 GiB.
    pub(super) fn between(from: usize, to: usize) -> Self {
        let [from, to] = [from, to].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        Self { from, to }
    }

    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        bytes
            .get(self.from as usize..self.to as usize)
            .unwrap_or_default()
    }
}

// === impl Header ===

impl Header {
    /// The values that are read without the text.
    fn head(&mut self) -> [&mut Span; 5] {
        let Self {
            labels,
            name,
            namespace,
            uid,
            resource_version,
            ..
        } = self;
        [labels, name, namespace, uid, resource_version]
    }

    /// `None` if a name, uid or version is longer than 64 KB.
    pub(super) fn places(&self) -> Option<Places> {
        let values = [self.name, self.namespace, self.uid, self.resource_version];
        let mut lengths = [0; 4];
        for (length, span) in lengths.iter_mut().zip(values) {
            *length = u16::try_from(span.to - span.from).ok()?;
        }
        Some(Places {
            metadata: self.metadata,
            owner_references: self.owner_references,
            labels: self.labels,
            from: values.map(|span| span.from),
            lengths,
        })
    }
}

// === impl Places ===

impl Places {
    pub(super) fn name(&self) -> Span {
        self.value(0)
    }

    pub(super) fn namespace(&self) -> Span {
        self.value(1)
    }

    pub(super) fn uid(&self) -> Span {
        self.value(2)
    }

    pub(super) fn resource_version(&self) -> Span {
        self.value(3)
    }

    fn value(&self, number: usize) -> Span {
        let from = self.from[number];
        Span {
            from,
            to: from + u32::from(self.lengths[number]),
        }
    }
}

// === impl Body ===

impl Body {
    /// The bytes as they are, or in their short form if the store packs and that is shorter, and the positions in them.
    pub(super) fn new(whole: Vec<u8>, header: Header, packing: Option<&Packing>) -> (Self, Header) {
        let Some(packing) = packing else {
            return (Self::Plain(whole.into()), header);
        };
        let mut inside = header;
        let mut head = Vec::new();
        for span in inside.head() {
            let from = head.len();
            head.extend_from_slice(span.of(&whole));
            *span = Span::between(from, head.len());
        }
        let Some(packed) = packing.pack(&head, &whole) else {
            return (Self::Plain(whole.into()), header);
        };
        let head_length = Span::between(0, head.len()).to;
        let bytes: [&[u8]; 4] = [
            &head_length.to_le_bytes(),
            &packed.length.to_le_bytes(),
            &head,
            &packed.bytes,
        ];
        let body = Self::Packed {
            bytes: bytes.concat().into(),
            dictionary: packed.dictionary,
        };
        (body, inside)
    }

    /// All bytes.
    pub(super) fn whole(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Plain(whole) => Cow::Borrowed(whole),
            Self::Packed { bytes, dictionary } => {
                // It was packed by this process: no bytes would be a defect, and is an error for its reader.
                let whole = lengths(bytes).and_then(|(head, length, rest)| {
                    let (head, packed) = rest.split_at_checked(head)?;
                    unpack(dictionary, head, packed, length)
                });
                Cow::Owned(whole.unwrap_or_default())
            }
        }
    }

    /// A part of the bytes, or of the head of packed bytes.
    pub(super) fn of(&self, span: Span) -> &[u8] {
        match self {
            Self::Plain(whole) => span.of(whole),
            Self::Packed { bytes, .. } => span.of(bytes.get(LENGTHS..).unwrap_or_default()),
        }
    }

    /// As [`Body::of`], a text.
    pub(super) fn text(&self, span: Span) -> &str {
        str::from_utf8(self.of(span)).unwrap_or_default()
    }

    /// The bytes on the heap, without the dictionary, which entries share.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Plain(whole) => whole.len(),
            Self::Packed { bytes, .. } => bytes.len(),
        }
    }
}

/// The lengths of the head and of the text, and what follows them.
fn lengths(bytes: &[u8]) -> Option<(usize, usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_first_chunk()?;
    let [head, text] = [head, text].map(|length| u32::from_le_bytes(*length) as usize);
    Some((head, text, rest))
}
