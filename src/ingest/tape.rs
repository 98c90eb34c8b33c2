//! JSON cursor: walks a parsed document and knows the byte range of each value in the original text.
//!
//! simd-json produces two parallel sequences: the tape (one node per value and key) and the offsets
//! of all structural characters (`{ } [ ] : ,`, opening quotes and the first byte of other
//! scalars). Walking both in step gives the byte range of any value for free, so that `properties`
//! is stored as it was sent instead of being encoded again. Keys are not interpreted here.

use std::ops::Range;

use simd_json::{Buffers, Node, StaticNode, Tape};

/// Nesting limit of a body. `serde_json` has the same, so what is stored can be read back.
pub const DEPTH_MAX: usize = 127;

/// Bytes that simd-json may read past the end of a document.
const PADDING_BYTES: usize = 64;

/// Buffers of a parse, which the next parse uses again.
pub struct Scratch {
    input: Vec<u8>,
    buffers: Buffers,
    tape: Option<Tape<'static>>,
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("body_capacity", &self.body_capacity()).finish()
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self { input: Vec::new(), buffers: Buffers::with_max_depth(0, DEPTH_MAX), tape: None }
    }
}

impl Scratch {
    /// Capacity of the input buffer, in bytes.
    fn body_capacity(&self) -> usize {
        self.input.capacity()
    }

    /// Memory of the buffers. A small body of short values can take much.
    pub fn memory_bytes(&self) -> usize {
        let tape = self.tape.as_ref().map_or(0, |tape| tape.0.capacity());
        self.input.capacity()
            + tape * size_of::<Node<'static>>()
            + size_of_val(self.buffers.structural_indexes())
    }

    /// Parses `body` and hands the document to `read`. The body itself is not changed: simd-json
    /// unescapes in place, in a copy.
    ///
    /// # Errors
    ///
    /// The error of simd-json; its offsets are not reliable.
    pub fn parse<T>(
        &mut self,
        body: &[u8],
        read: impl FnOnce(Cursor<'_>) -> T,
    ) -> Result<T, simd_json::Error> {
        self.input.clear();
        self.input.reserve(body.len() + PADDING_BYTES);
        self.input.extend_from_slice(body);
        self.input.resize(body.len() + PADDING_BYTES, 0);
        let base = self.input.as_ptr().addr();
        let mut tape = self.tape.take().unwrap_or(Tape(Vec::new())).reset();
        let parsed =
            simd_json::fill_tape_padded(&mut self.input, body.len(), &mut self.buffers, &mut tape);
        let outcome = parsed.map(|()| {
            read(Cursor {
                body,
                base,
                nodes: &tape.0,
                structurals: self.buffers.structural_indexes(),
                node: 0,
                structural: 0,
            })
        });
        self.tape = Some(tape.reset());
        outcome
    }
}

/// One value of the document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// An unescaped string.
    String(&'a str),
    /// A number; integers beyond u64 are floats.
    Number(f64),
    /// A number that is a whole number in i64's range.
    Integer(i64),
    /// `true` or `false`.
    Boolean(bool),
    /// `null`.
    Null,
    /// An object or an array.
    Container {
        /// Whether it is an object.
        is_object: bool,
        /// Number of its members.
        len: usize,
    },
}

/// Counts of the parts of a document that take memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Keys and values.
    pub nodes: usize,
    /// Objects, including empty ones.
    pub objects: usize,
    /// Keys and values inside of containers whose keys were selected.
    pub below: usize,
}

/// A position in a document. Cheap to copy, so a caller can look ahead and come back.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    body: &'a [u8],
    base: usize,
    nodes: &'a [Node<'a>],
    structurals: &'a [u32],
    node: usize,
    structural: usize,
}

impl<'a> Cursor<'a> {
    /// The original bytes of the whole document.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Counts the parts of the whole document. `is_selected` selects the keys of [`Census::below`].
    pub fn census(&self, is_selected: impl Fn(&str) -> bool) -> Census {
        let mut census = Census { nodes: self.nodes.len(), ..Census::default() };
        let (mut is_below, mut counted) = (false, 0);
        for (index, node) in self.nodes.iter().enumerate() {
            let selected = std::mem::take(&mut is_below);
            match node {
                // A string value may equal a selected key; the container after it counts too then.
                Node::String(text) => is_below = is_selected(text),
                Node::Object { count, .. } | Node::Array { count, .. } => {
                    census.objects += usize::from(matches!(node, Node::Object { .. }));
                    if selected && index >= counted {
                        census.below += count;
                        counted = index + count;
                    }
                }
                Node::Static(_) => {}
            }
        }
        census
    }

    /// The value at this position. A cursor past the end reads `null`.
    pub fn value(&self) -> Value<'a> {
        match self.nodes.get(self.node) {
            Some(Node::String(text)) => Value::String(text),
            Some(Node::Object { len, .. }) => Value::Container { is_object: true, len: *len },
            Some(Node::Array { len, .. }) => Value::Container { is_object: false, len: *len },
            Some(Node::Static(value)) => from_static(*value),
            None => Value::Null,
        }
    }

    /// Offset in the body of the first byte of the value at this position.
    pub fn offset(&self) -> u32 {
        self.structurals.get(self.structural).copied().unwrap_or(0)
    }

    /// Offset in the body just after the value that was stepped over last.
    pub fn end(&self) -> usize {
        let last = self.structural.checked_sub(1).and_then(|last| self.structurals.get(last));
        last.map_or(0, |at| widen(*at) + 1)
    }

    /// Steps over the value at this position and returns its range in the body.
    pub fn skip(&mut self) -> Range<usize> {
        let start = self.offset();
        let below = match self.nodes.get(self.node) {
            Some(Node::Object { count, .. } | Node::Array { count, .. }) => *count,
            _ => return self.skip_scalar(start),
        };
        let nodes = self.nodes.get(self.node..=self.node + below).unwrap_or_default();
        self.structural += nodes.iter().map(structurals_of).sum::<usize>();
        self.node += below + 1;
        // The last structural of a container is its closing bracket.
        let last = self.structurals.get(self.structural - 1).copied().unwrap_or(start);
        widen(start)..widen(last) + 1
    }

    /// Steps over a scalar. Its end is found backwards from the next structural character, past
    /// white space; the next after a scalar is always `,` `}` or `]`, or the end of the document.
    fn skip_scalar(&mut self, start: u32) -> Range<usize> {
        self.node += 1;
        self.structural += 1;
        let start = widen(start);
        let next = self.structurals.get(self.structural).map_or(self.body.len(), |at| widen(*at));
        let scalar = self.body.get(start..next).unwrap_or_default().trim_ascii_end();
        start..start + scalar.len()
    }

    /// Steps over the container at this position, like [`Cursor::skip`], in constant time if another
    /// key of the enclosing object follows. For the array that is nearly the whole document.
    pub fn skip_large(&mut self) {
        let Some(Node::Object { count, .. } | Node::Array { count, .. }) =
            self.nodes.get(self.node)
        else {
            self.skip();
            return;
        };
        let Some(Node::String(next_key)) = self.nodes.get(self.node + count + 1) else {
            // No member follows, so the position matters only for the closing bracket.
            self.skip();
            return;
        };
        let quote = next_key.as_ptr().addr().checked_sub(self.base + 1);
        let quote = quote.and_then(|offset| u32::try_from(offset).ok());
        let found = quote.and_then(|quote| self.structurals.binary_search(&quote).ok());
        match found {
            // The structural before the quote is the comma that ends this member.
            Some(index) => {
                self.node += count + 1;
                self.structural = index - 1;
            }
            None => {
                self.skip();
            }
        }
    }

    /// Enters the object at this position: calls `member` for each key with a cursor at the value.
    /// `member` must step over the value, by [`Cursor::skip`] or by entering it. A value that is not an
    /// object is only stepped over. Stops at the first error.
    ///
    /// # Errors
    ///
    /// The error of `member`.
    pub fn object<E>(
        &mut self,
        mut member: impl FnMut(Key<'a>, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let Value::Container { is_object: true, len } = self.value() else {
            self.skip();
            return Ok(());
        };
        self.node += 1;
        self.structural += 1;
        for index in 0..len {
            // The comma before every member but the first.
            self.structural += usize::from(index > 0);
            let text = match self.nodes.get(self.node) {
                Some(Node::String(text)) => text,
                _ => "",
            };
            let key = Key { text, offset: self.offset() };
            self.node += 1;
            // The opening quote and the colon.
            self.structural += 2;
            member(key, self)?;
        }
        self.structural += 1;
        Ok(())
    }

    /// Enters the array at this position: calls `item` with a cursor at each item, which `item` must
    /// step over. A value that is not an array is only stepped over.
    ///
    /// # Errors
    ///
    /// The error of `item`.
    pub fn array<E>(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let Value::Container { is_object: false, len } = self.value() else {
            self.skip();
            return Ok(());
        };
        self.node += 1;
        self.structural += 1;
        for index in 0..len {
            self.structural += usize::from(index > 0);
            item(self)?;
        }
        self.structural += 1;
        Ok(())
    }
}

/// A key of an object.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The unescaped name.
    pub text: &'a str,
    /// Offset of its opening quote in the body.
    pub offset: u32,
}

/// Structural characters of a node without those of the nodes below it. A string or other scalar has
/// one; a container has two brackets, its commas, and a colon per key (the key's quote belongs to the
/// key's own node).
fn structurals_of(node: &Node<'_>) -> usize {
    match node {
        Node::String(_) | Node::Static(_) => 1,
        Node::Array { len, .. } => 2 + len.saturating_sub(1),
        Node::Object { len, .. } => 2 + len + len.saturating_sub(1),
    }
}

fn widen(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "JSON numbers are doubles to every reader of them")]
fn from_static(value: StaticNode) -> Value<'static> {
    match value {
        StaticNode::I64(number) => Value::Integer(number),
        StaticNode::U64(number) => match i64::try_from(number) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Number(number as f64),
        },
        StaticNode::F64(number) => Value::Number(number),
        StaticNode::Bool(truth) => Value::Boolean(truth),
        StaticNode::Null => Value::Null,
    }
}

#[cfg(test)]
mod tests;
