//! The input of an operation as a struct by [`input!`]: each field is part of the path, of the query or of the body, is
//! read from there in the order of its declaration, and is described by its type.

use std::marker::PhantomData;

use bytes::Bytes;
use uuid::Uuid;

use crate::fields::{Fields, missing};
use crate::openapi::{Paging, Parameter, Shape};
use crate::page::Page;
use crate::request::Request;
use crate::response::Problem;

/// Reads a body that is a form; the first argument is its `Content-Type`.
pub type ReadForm = fn(&str, &Bytes) -> Result<Fields, Problem>;

/// Format of a body.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// No body.
    Nothing,
    /// A JSON object.
    Object,
    /// A JSON object, or a form that is read by this function.
    ObjectOrForm(ReadForm),
    /// A list of JSON objects; a single object counts as a list of one.
    List,
    /// A JSON object with POST, no body otherwise.
    ObjectOfPost,
}

impl Reading {
    /// The format of an operation whose other parts have the format `other`.
    pub const fn or(self, other: Self) -> Self {
        match self {
            Self::Nothing => other,
            own => own,
        }
    }
}

/// Input that can be read from a request.
pub trait Input: Sized + Send {
    /// Format of the body, if it is part of the input.
    const READING: Reading;

    /// Adds its parts to the OpenAPI description.
    fn describe(shape: &mut Shape);

    /// Reads the input.
    ///
    /// # Errors
    ///
    /// The error of the first part that cannot be read.
    fn take(parts: &mut Parts<'_>) -> Result<Self, Problem>;
}

/// The parts of a request.
#[derive(Debug)]
pub struct Parts<'r> {
    /// The head, with the query.
    pub(crate) request: &'r Request,
    /// Names and values of the `:names` in the path.
    pub(super) path: &'r Named,
    /// The body; empty if the operation has none.
    pub(crate) body: Fields,
}

/// A type of a path parameter.
pub trait InPath: Sized {
    /// Parses the value.
    ///
    /// # Errors
    ///
    /// 404: nothing can have this name.
    fn of(text: &str) -> Result<Self, Problem>;
}

impl InPath for String {
    fn of(text: &str) -> Result<Self, Problem> {
        Ok(text.to_owned())
    }
}

impl InPath for i64 {
    fn of(text: &str) -> Result<Self, Problem> {
        text.parse().map_err(|_| Problem::not_found("Not found."))
    }
}

impl InPath for Uuid {
    fn of(text: &str) -> Result<Self, Problem> {
        Self::try_parse(text).map_err(|_| Problem::not_found("Not found."))
    }
}

/// Names and values of the `:names` in a path.
pub type Named = [(&'static str, String)];

/// The value of the path parameter `name`.
///
/// # Errors
///
/// Those of [`InPath::of`].
pub fn part<T: InPath>(path: &Named, name: &str) -> Result<T, Problem> {
    let found = path.iter().find(|(own, _)| *own == name);
    T::of(found.map_or("", |(_, value)| value.as_str()))
}

/// A type of a query parameter.
pub trait InQuery: Sized {
    /// Adds the parameter to the OpenAPI description.
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape);

    /// Reads the value.
    ///
    /// # Errors
    ///
    /// 400 for an invalid value.
    fn take(request: &Request, name: &'static str) -> Result<Self, Problem>;
}

impl InQuery for Option<String> {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        Ok(request.query(name).map(std::borrow::Cow::into_owned))
    }
}

/// `limit` and `offset`, whatever the name of the field.
impl InQuery for Page {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.paging = Paging::Offset;
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        Ok(Self::of(request))
    }
}

/// A text that many endpoints take under the name of the field, such as `search`; empty if absent.
#[derive(Clone, Debug, Default)]
pub struct Shared(pub String);

impl InQuery for Shared {
    fn describe(name: &'static str, _: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::shared(name));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        Ok(Self(request.query(name).unwrap_or_default().into_owned()))
    }
}

/// Texts; the parameter is repeated for each.
#[derive(Clone, Debug, Default)]
pub struct Each(pub Vec<String>);

impl InQuery for Each {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::texts(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let given = request.query_all().filter(|(own, _)| own == name);
        Ok(Self(given.map(|(_, value)| value.into_owned()).collect()))
    }
}

/// A required text.
#[derive(Clone, Debug)]
pub struct Needed(pub String);

impl InQuery for Needed {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about).required());
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let text = request.query(name).filter(|text| !text.is_empty());
        text.map(|text| Self(text.into_owned())).ok_or_else(|| missing(name))
    }
}

/// The kind of object that an operation is about, as a type parameter; not read from the request.
#[derive(Debug)]
pub struct Of<K>(PhantomData<K>);

impl<K> InQuery for Of<K> {
    fn describe(_: &'static str, _: &'static str, _: &mut Shape) {}

    fn take(_: &Request, _: &'static str) -> Result<Self, Problem> {
        Ok(Self(PhantomData))
    }
}

/// Input in the query, and with POST also in the body.
pub trait InBoth: Sized {
    /// Adds it to the OpenAPI description.
    fn describe(shape: &mut Shape);

    /// Reads the value.
    ///
    /// # Errors
    ///
    /// 400 for an invalid value.
    fn take(parts: &mut Parts<'_>) -> Result<Self, Problem>;
}

/// A type of a body.
pub trait InBody: Sized {
    /// Format of the body.
    const READING: Reading = Reading::Object;

    /// Adds the body to the OpenAPI description.
    fn describe(shape: &mut Shape);

    /// Reads the body.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be read.
    fn take(fields: &mut Fields) -> Result<Self, Problem>;
}

/// A body that creates or changes an object, where creating one requires fields that a change does not.
pub trait Creates: InBody {
    /// Fields that are required to create an object.
    const NEEDS: &'static [&'static str];
}

/// A body that creates an object, or replaces all of it.
#[derive(Debug, Default)]
pub struct New<T>(pub T);

impl<T: Creates> InBody for New<T> {
    const READING: Reading = T::READING;

    fn describe(shape: &mut Shape) {
        T::describe(shape);
        if let Some(body) = &mut shape.body {
            body.required = T::NEEDS;
        }
    }

    fn take(fields: &mut Fields) -> Result<Self, Problem> {
        fields.need(T::NEEDS);
        T::take(fields).map(Self)
    }
}

/// Parts of paths, for [`input!`].
pub mod path {
    use super::{InPath, Parts, Reading, part};
    use crate::openapi::Shape;
    use crate::response::Problem;

    /// Not in the body.
    pub const fn reading<T>() -> Reading {
        Reading::Nothing
    }

    /// Adds nothing: the description takes path parameters from the path.
    pub fn describe<T: InPath>(_: &'static str, _: &'static str, _: &mut Shape) {}

    /// Reads the path parameter `name`.
    ///
    /// # Errors
    ///
    /// 404.
    pub fn take<T: InPath>(parts: &mut Parts<'_>, name: &str) -> Result<T, Problem> {
        part(parts.path, name)
    }
}

/// Parts of queries, for [`input!`].
pub mod query {
    use super::{InQuery, Parts, Reading};
    use crate::openapi::Shape;
    use crate::response::Problem;

    /// Not in the body.
    pub const fn reading<T>() -> Reading {
        Reading::Nothing
    }

    /// Adds the parameter to the OpenAPI description.
    pub fn describe<T: InQuery>(name: &'static str, about: &'static str, shape: &mut Shape) {
        T::describe(name, about, shape);
    }

    /// Reads the query parameter `name`.
    ///
    /// # Errors
    ///
    /// 400.
    pub fn take<T: InQuery>(parts: &mut Parts<'_>, name: &'static str) -> Result<T, Problem> {
        T::take(parts.request, name)
    }
}

/// Bodies, for [`input!`].
pub mod body {
    use super::{InBody, Parts, Reading};
    use crate::openapi::Shape;
    use crate::response::Problem;

    /// Format of the body.
    pub const fn reading<T: InBody>() -> Reading {
        T::READING
    }

    /// Adds the body to the OpenAPI description.
    pub fn describe<T: InBody>(_: &'static str, _: &'static str, shape: &mut Shape) {
        T::describe(shape);
    }

    /// Reads the body.
    ///
    /// # Errors
    ///
    /// 400.
    pub fn take<T: InBody>(parts: &mut Parts<'_>, _: &'static str) -> Result<T, Problem> {
        T::take(&mut parts.body)
    }
}

/// Input in the query or the body, for [`input!`].
pub mod both {
    use super::{InBoth, Parts, Reading};
    use crate::openapi::Shape;
    use crate::response::Problem;

    /// Format of the body.
    pub const fn reading<T>() -> Reading {
        Reading::ObjectOfPost
    }

    /// Adds it to the OpenAPI description.
    pub fn describe<T: InBoth>(_: &'static str, _: &'static str, shape: &mut Shape) {
        T::describe(shape);
    }

    /// Reads the value.
    ///
    /// # Errors
    ///
    /// 400.
    pub fn take<T: InBoth>(parts: &mut Parts<'_>, _: &'static str) -> Result<T, Problem> {
        T::take(parts)
    }
}

/// Declares the input of an operation: a struct with the place of each field before its name, `path`, `query`, `body`,
/// or `both` for a query with a body. A field of the path is the `:name` of its row in the table, one of the query the
/// parameter of its name. A struct may have one type parameter, such as the kind of object that it is about.
macro_rules! input {
    (
        $(#[$of:meta])*
        $vis:vis struct $name:ident $(<$param:ident: $bound:path>)? {
            $($(#[doc = $about:literal])* $place:ident $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$of])*
        #[derive(Debug)]
        $vis struct $name $(<$param: $bound>)? {
            $(
                #[doc = concat!("`", stringify!($field), "` of the ", stringify!($place), ".")]
                #[doc = ""]
                $(#[doc = $about])*
                $vis $field: $kind,
            )*
        }

        impl $(<$param: $bound>)? crate::operation::input::Input for $name $(<$param>)? {
            const READING: crate::operation::input::Reading =
                crate::operation::input::Reading::Nothing
                $(.or(crate::operation::input::$place::reading::<$kind>()))*;

            fn describe(shape: &mut crate::openapi::Shape) {
                let _ = &shape;
                $(crate::operation::input::$place::describe::<$kind>(
                    stringify!($field),
                    concat!($($about),*).trim_ascii(),
                    shape,
                );)*
            }

            fn take(
                parts: &mut crate::operation::input::Parts<'_>,
            ) -> Result<Self, crate::response::Problem> {
                let _ = &parts;
                Ok(Self {
                    $($field: crate::operation::input::$place::take::<$kind>(
                        parts,
                        stringify!($field),
                    )?,)*
                })
            }
        }
    };
}

pub(crate) use input;
