//! Request bodies as structs, by [`body!`]: such a struct reads itself from [`Fields`], field by field in the order of
//! its declaration, and derives its schema from the same types, so that the description matches what is read. The
//! meaning of the values is up to the routes.

use serde_json::{Map, Value, json};

use crate::fields::Fields;
use crate::response::Problem;
use weir_base::clock::UnixMicros;

/// A type of a field of a body.
pub(super) trait Field: Sized {
    /// Whether a body without the field is refused.
    const IS_REQUIRED: bool = false;

    /// Takes the field out of a body.
    ///
    /// # Errors
    ///
    /// The field is missing and required, or has another type.
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem>;

    /// The JSON schema of the values that a client may send.
    fn schema() -> Value;
}

/// Implements [`Field`] for field types: `Option` for those that may be absent, and of them those whose null is
/// refused.
macro_rules! fields {
    ($($kind:ty, $take:ident, $schema:tt;)*) => {$(
        impl Field for Option<$kind> {
            fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
                fields.$take(name)
            }

            fn schema() -> Value {
                json!($schema)
            }
        }
    )*};
}

fields! {
    String, text, {"type": "string"};
    bool, boolean, {"type": "boolean"};
    UnixMicros, time, {"type": "string", "format": "date-time"};
    Vec<String>, texts, {"type": "array", "items": {"type": "string"}};
    Vec<i64>, ids, {"type": "array", "items": {"type": "integer"}};
    Value, value, {};
    Option<bool>, nullable_boolean, {"type": ["boolean", "null"]};
    Option<String>, nullable_text, {"type": ["string", "null"]};
    Option<UnixMicros>, nullable_time, {"type": ["string", "null"], "format": "date-time"};
    Option<i64>, nullable_integer, {"type": ["integer", "null"]};
}

/// Any JSON; `Some(None)` for null.
impl Field for Option<Option<Value>> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.nullable_value(name))
    }

    fn schema() -> Value {
        json!({})
    }
}

/// A field whose error is reported later: errors about the state of the object take precedence.
#[derive(Debug)]
pub struct Later<T>(pub(super) Result<T, Problem>);

impl<T: Field> Field for Later<T> {
    const IS_REQUIRED: bool = T::IS_REQUIRED;

    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(Self(T::take(fields, name)))
    }

    fn schema() -> Value {
        T::schema()
    }
}

/// A text whose white space is preserved, such as a password.
#[derive(Debug)]
pub struct Exact(pub String);

impl Field for Option<Exact> {
    fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
        Ok(fields.exact_text_if_any(name)?.map(Exact))
    }

    fn schema() -> Value {
        json!({"type": ["string", "null"]})
    }
}

/// Implements [`Field`] for required fields.
macro_rules! required {
    ($($kind:ty;)*) => {$(
        impl Field for $kind {
            const IS_REQUIRED: bool = true;

            fn take(fields: &mut Fields, name: &'static str) -> Result<Self, Problem> {
                fields.require(name)?;
                Ok(<Option<$kind> as Field>::take(fields, name)?.unwrap_or_default())
            }

            fn schema() -> Value {
                <Option<$kind> as Field>::schema()
            }
        }
    )*};
}

required! {
    String;
    bool;
    Vec<String>;
}

/// Takes a field out of a body; it is required if its type or the operation requires it.
///
/// # Errors
///
/// Those of [`Field::take`].
pub(super) fn take<K: Field>(fields: &mut Fields, name: &'static str) -> Result<K, Problem> {
    fields.check_needed(name)?;
    K::take(fields, name)
}

/// A field of a schema.
#[derive(Debug)]
pub(super) struct Described {
    name: &'static str,
    schema: Value,
    is_required: bool,
}

impl Described {
    /// A field with its documentation (`about`) and what its type does not express (`more`).
    pub(super) fn of<K: Field>(name: &'static str, about: &[&str], more: &[Value]) -> Self {
        let mut schema = K::schema();
        if let Value::Object(fields) = &mut schema {
            if !about.is_empty() {
                fields.insert("description".to_owned(), json!(about.concat().trim()));
            }
            fields.extend(more.iter().filter_map(Value::as_object).flatten().map(owned));
        }
        Self { name, schema, is_required: K::IS_REQUIRED }
    }
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// The name of a field in JSON; of one that is a keyword of Rust, such as `r#type`, that is the keyword.
pub(super) fn name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// The schema of a body with these fields.
pub(super) fn schema(fields: Vec<Described>) -> Map<String, Value> {
    let required: Vec<&str> =
        fields.iter().filter(|field| field.is_required).map(|field| field.name).collect();
    let mut schema = Map::from_iter([("type".to_owned(), json!("object"))]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    let properties = fields.into_iter().map(|field| (field.name.to_owned(), field.schema));
    schema.insert("properties".to_owned(), properties.collect());
    schema
}

/// Declares a body: a struct whose fields are [`Field`]s; `= {...}` after a type adds to its schema.
macro_rules! body {
    (
        $(#[$of:meta])*
        $vis:vis struct $name:ident {
            $($(#[doc = $about:literal])* $field:ident: $kind:ty $(= $more:tt)?,)*
        }
    ) => {
        $(#[$of])*
        #[derive(Debug)]
        $vis struct $name {
            $($(#[doc = $about])* $vis $field: $kind,)*
        }

        impl $name {
            /// Reads the body.
            ///
            /// # Errors
            ///
            /// That of the first field that cannot be read.
            $vis fn read(
                fields: &mut crate::fields::Fields,
            ) -> Result<Self, crate::response::Problem> {
                Ok(Self {
                    $($field: crate::body::take(
                        fields,
                        crate::body::name(stringify!($field)),
                    )?,)*
                })
            }
        }

        impl crate::operation::input::InBody for $name {
            fn describe(shape: &mut crate::openapi::Shape) {
                let is_required = false $(|| <$kind as crate::body::Field>::IS_REQUIRED)*;
                shape.body = Some(crate::openapi::Body::of::<Self>(is_required));
            }

            fn take(
                fields: &mut crate::fields::Fields,
            ) -> Result<Self, crate::response::Problem> {
                Self::read(fields)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                crate::body::schema(vec![$(
                    crate::body::Described::of::<$kind>(
                        crate::body::name(stringify!($field)),
                        &[$($about),*],
                        &[$(serde_json::json!($more))?],
                    ),
                )*])
                .into()
            }
        }
    };
}

pub(super) use body;

#[cfg(test)]
mod tests {
    use schemars::SchemaGenerator;
    use serde_json::json;

    use crate::fields::Fields;

    body! {
        /// A body.
        struct Write {
            /// What it is called.
            name: String = {"maxLength": 9},
            tags: Option<Vec<String>>,
            owner: Option<Option<i64>>,
            r#type: Option<bool>,
        }
    }

    #[test]
    fn a_body_is_read_as_it_is_described() {
        let read = |body: &serde_json::Value| {
            let mut fields = Fields::parse("", body.to_string().as_bytes()).unwrap();
            Write::read(&mut fields)
        };
        let body = json!({"name": " a ", "owner": null, "more": 1});
        let own = read(&body).unwrap();
        assert_eq!((own.name.as_str(), own.tags, own.owner), ("a", None, Some(None)));
        assert_eq!(read(&json!({"name": "a", "type": true})).unwrap().r#type, Some(true));
        // The error is that of the first wrong field of the struct, whatever the order in the body.
        for (body, name) in [
            (json!({"tags": 1}), "name"),
            (json!({"name": null}), "name"),
            (json!({"owner": {}, "tags": 1, "name": "a"}), "tags"),
            (json!({"tags": null, "name": "a"}), "tags"),
        ] {
            let problem = format!("{:?}", read(&body).unwrap_err());
            assert!(problem.contains(&format!("Name(\"{name}\")")), "{body}: {problem}");
        }
        let schema = SchemaGenerator::default().into_root_schema_for::<Write>().to_value();
        assert_eq!(schema["required"], json!(["name"]));
        let name = json!({"type": "string", "description": "What it is called.", "maxLength": 9});
        let properties = json!({
            "name": name,
            "tags": {"type": "array", "items": {"type": "string"}},
            "owner": {"type": ["integer", "null"]},
            "type": {"type": "boolean"},
        });
        assert_eq!(schema["properties"], properties);
    }
}
