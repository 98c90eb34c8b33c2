//! What an operation is told, as a struct by [`input!`]: each field is part of the path, of the query or the body, is read
//! from there in the order of its declaration, and is described by its type.

use std::marker::PhantomData;

use bytes::Bytes;
use uuid::Uuid;

use crate::fields::{Fields, missing};
use crate::openapi::{Paging, Parameter, Shape};
use crate::page::Page;
use crate::request::Request;
use crate::response::Problem;

/// Reads a body that is a form, by its `Content-Type`.
pub type ReadForm = fn(&str, &Bytes) -> Result<Fields, Problem>;

/// How the fields of a body are read.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// There is no body.
    Nothing,
    /// It is a JSON object.
    Object,
    /// It is a JSON object, or a form that is read so.
    ObjectOrForm(ReadForm),
    /// It is a list of JSON objects; a single object counts as a list of one.
    List,
    /// With POST it is a JSON object, else there is none.
    ObjectOfPost,
}

impl Reading {
    /// That of an operation, whose other parts are read as `other`.
    pub const fn or(self, other: Self) -> Self {
        match self {
            Self::Nothing => other,
            own => own,
        }
    }
}

/// What can be read from a request.
pub trait Input: Sized + Send {
    /// How the body is read, if it has a part in that.
    const READING: Reading;

    /// Adds its parts to the description.
    fn describe(shape: &mut Shape);

    /// Reads it.
    ///
    /// # Errors
    ///
    /// That of the first part that cannot be read.
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

/// A type of what is in a path.
pub trait InPath: Sized {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// 404: nothing has such a name.
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

/// What a path has under this name.
///
/// # Errors
///
/// Those of [`InPath::of`].
pub fn part<T: InPath>(path: &Named, name: &str) -> Result<T, Problem> {
    let found = path.iter().find(|(own, _)| *own == name);
    T::of(found.map_or("", |(_, value)| value.as_str()))
}

/// A type of what is in a query.
pub trait InQuery: Sized {
    /// Adds it to the description, under this name.
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape);

    /// Reads it.
    ///
    /// # Errors
    ///
    /// 400 for a value that it cannot have.
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

/// `limit` and `offset`, whatever the field is called.
impl InQuery for Page {
    fn describe(_: &'static str, _: &'static str, shape: &mut Shape) {
        shape.paging = Paging::Offset;
    }

    fn take(request: &Request, _: &'static str) -> Result<Self, Problem> {
        Ok(Self::of(request))
    }
}

/// A text that many endpoints take under the name of the field, such as `search`; empty without one.
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

/// Texts; the parameter comes once for each.
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

/// A text without which a request is refused.
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

/// The kind of what an operation is about, which no part of a request says.
#[derive(Debug)]
pub struct Of<K>(PhantomData<K>);

impl<K> InQuery for Of<K> {
    fn describe(_: &'static str, _: &'static str, _: &mut Shape) {}

    fn take(_: &Request, _: &'static str) -> Result<Self, Problem> {
        Ok(Self(PhantomData))
    }
}

/// A type of what is in a query, and with POST in the body, too.
pub trait InBoth: Sized {
    /// Adds it to the description.
    fn describe(shape: &mut Shape);

    /// Reads it.
    ///
    /// # Errors
    ///
    /// 400 for a value that it cannot have.
    fn take(parts: &mut Parts<'_>) -> Result<Self, Problem>;
}

/// A type of a body.
pub trait InBody: Sized {
    /// How its fields are read.
    const READING: Reading = Reading::Object;

    /// Adds it to the description.
    fn describe(shape: &mut Shape);

    /// Reads it.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be read.
    fn take(fields: &mut Fields) -> Result<Self, Problem>;
}

/// A body that makes something or changes it, where a new thing needs fields that a change does not.
pub trait Creates: InBody {
    /// These fields.
    const NEEDS: &'static [&'static str];
}

/// A body that makes something, or replaces the whole of it.
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

    /// It is not in the body.
    pub const fn reading<T>() -> Reading {
        Reading::Nothing
    }

    /// The description has the parameters of a path by the path.
    pub fn describe<T: InPath>(_: &'static str, _: &'static str, _: &mut Shape) {}

    /// Reads the part of this name.
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

    /// It is not in the body.
    pub const fn reading<T>() -> Reading {
        Reading::Nothing
    }

    /// Adds it to the description.
    pub fn describe<T: InQuery>(name: &'static str, about: &'static str, shape: &mut Shape) {
        T::describe(name, about, shape);
    }

    /// Reads the parameter of this name.
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

    /// How its fields are read.
    pub const fn reading<T: InBody>() -> Reading {
        T::READING
    }

    /// Adds it to the description.
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

/// Queries with bodies, for [`input!`].
pub mod both {
    use super::{InBoth, Parts, Reading};
    use crate::openapi::Shape;
    use crate::response::Problem;

    /// How the body is read.
    pub const fn reading<T>() -> Reading {
        Reading::ObjectOfPost
    }

    /// Adds it to the description.
    pub fn describe<T: InBoth>(_: &'static str, _: &'static str, shape: &mut Shape) {
        T::describe(shape);
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// 400.
    pub fn take<T: InBoth>(parts: &mut Parts<'_>, _: &'static str) -> Result<T, Problem> {
        T::take(parts)
    }
}

/// Declares what an operation is told: a struct with the place of each field before its name, `path`, `query`, `body`,
/// or `both` for a query with a body. A field of the path is the `:name` of its row in the table, one of the query the parameter of its name. A struct may
/// have one parameter, a type such as the kind of what it is about.
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
