//! The OpenAPI description of an endpoint: [`Words`], which are in its row of the table, and its [`Shape`], which comes
//! from the input and output types of its operation; `document` assembles the whole description.

pub mod bodies;
mod components;
pub mod document;
mod sdk;

use hyper::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

/// An object with any fields.
pub(super) type AnyObject = Map<String, Value>;

/// Makes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// An error response of the components that an operation has besides the common ones, or in place of one of them.
pub(super) type Refusal = (&'static str, &'static str);

/// Invalid query parameters; endpoints with a body have this response anyway.
pub(super) const INVALID: Refusal = ("400", "BadRequest");

/// The same, where some errors have the form `{"error": "..."}`.
pub(super) const REFUSED: Refusal = ("400", "Refused");

/// The parts of an endpoint's description that no type has, from its row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    pub(super) summary: &'static str,
    /// Further explanations.
    pub(super) notes: &'static str,
    /// Prefix of the operation ids; by default the words of the path.
    pub(super) name: Option<&'static str>,
    /// The tag; by default the first word of the path.
    pub(super) tag: Option<&'static str>,
    /// Description of the response, if that of its type is not enough.
    pub(super) says: Option<&'static str>,
    pub(super) refusals: &'static [Refusal],
    pub(super) is_deprecated: bool,
}

/// Input and output of an endpoint.
#[derive(Debug)]
pub struct Shape {
    pub(super) query: Vec<Parameter>,
    pub(super) paging: Paging,
    pub(super) body: Option<Body>,
    /// `None` if the request is always refused.
    pub(super) success: Option<Success>,
    /// Media types of the response besides JSON, and whether each is a text.
    pub(super) files: &'static [(&'static str, bool)],
    /// Other successful responses with a content of their own.
    pub(super) others: Vec<Success>,
}

impl Shape {
    /// No input and no output.
    pub(super) const fn empty() -> Self {
        Self {
            query: Vec::new(),
            paging: Paging::None,
            body: None,
            success: None,
            files: &[],
            others: Vec::new(),
        }
    }
}

impl Words {
    /// Words with this summary, and the defaults for the rest.
    pub(super) const fn new(summary: &'static str) -> Self {
        Self {
            summary,
            notes: "",
            name: None,
            tag: None,
            says: None,
            refusals: &[],
            is_deprecated: false,
        }
    }
}

/// Paging parameters of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paging {
    /// Not a list.
    None,
    /// The whole list is returned.
    Whole,
    /// `limit` and `offset`.
    Offset,
    /// `limit`, and `page` or `offset`.
    Number,
}

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body {
    pub(super) schema: SchemaOf,
    pub(super) is_required: bool,
    /// Fields that are required besides those that the type requires.
    pub(super) required: &'static [&'static str],
}

/// The response to a successful request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Success {
    pub(super) status: StatusCode,
    pub(super) says: &'static str,
    /// `None` without content.
    pub(super) schema: Option<SchemaOf>,
}

impl Body {
    /// A body that is a `T`.
    pub(super) const fn of<T: JsonSchema>(is_required: bool) -> Self {
        let schema: SchemaOf = SchemaGenerator::subschema_for::<T>;
        Self { schema, is_required, required: &[] }
    }
}

impl Success {
    /// A response with a `T`.
    pub(super) const fn of<T: JsonSchema>(status: StatusCode, says: &'static str) -> Self {
        let schema: SchemaOf = SchemaGenerator::subschema_for::<T>;
        Self { status, says, schema: Some(schema) }
    }
}

/// One of two types.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, inline)]
#[expect(dead_code, reason = "stands in the description alone")]
pub(super) enum Either<A, B> {
    One(A),
    Other(B),
}

/// A parameter of the query.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
    pub(super) is_required: bool,
}

/// Type of a parameter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Defined in the components.
    Shared,
    Text,
    Uuid,
    Boolean,
    Integer,
    /// At least this.
    From(i64),
    Between(i64, i64),
    OneOf(&'static [&'static str]),
    Texts,
    /// A type, or this word.
    Or(&'static Kind, &'static str),
    /// A number or a uuid.
    IntegerOrUuid,
    Time,
}

impl Parameter {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, about: "", is_required: false }
    }

    /// A parameter that many endpoints have.
    pub(super) const fn shared(name: &'static str) -> Self {
        Self::new(name, Kind::Shared)
    }

    /// A text.
    pub(super) const fn text(name: &'static str) -> Self {
        Self::new(name, Kind::Text)
    }

    /// A uuid.
    pub(super) const fn uuid(name: &'static str) -> Self {
        Self::new(name, Kind::Uuid)
    }

    /// `true` or `false`.
    pub(super) const fn boolean(name: &'static str) -> Self {
        Self::new(name, Kind::Boolean)
    }

    /// A number.
    pub(super) const fn integer(name: &'static str) -> Self {
        Self::new(name, Kind::Integer)
    }

    /// A number within these inclusive bounds.
    pub(super) const fn between(name: &'static str, min: i64, max: i64) -> Self {
        Self::new(name, Kind::Between(min, max))
    }

    /// One of these words.
    pub(super) const fn one_of(name: &'static str, words: &'static [&'static str]) -> Self {
        Self::new(name, Kind::OneOf(words))
    }

    /// A number of at least this.
    pub(super) const fn from(name: &'static str, min: i64) -> Self {
        Self::new(name, Kind::From(min))
    }

    /// A type, or this word.
    pub(super) const fn or(name: &'static str, kind: &'static Kind, word: &'static str) -> Self {
        Self::new(name, Kind::Or(kind, word))
    }

    /// A number or a uuid.
    pub(super) const fn integer_or_uuid(name: &'static str) -> Self {
        Self::new(name, Kind::IntegerOrUuid)
    }

    /// A point in time.
    pub(super) const fn time(name: &'static str) -> Self {
        Self::new(name, Kind::Time)
    }

    /// Texts; the parameter is repeated for each.
    pub(super) const fn texts(name: &'static str) -> Self {
        Self::new(name, Kind::Texts)
    }

    /// The same with a description.
    pub(super) const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// The same, as required.
    pub(super) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }
}
