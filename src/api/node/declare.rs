//! Declares nodes ([`node!`](crate::node!)) and the words of their fields ([`words!`](crate::words!)).

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Adds a field to the schema of a node, with its description.
pub fn describe<T: JsonSchema>(
    properties: &mut Map<String, Value>,
    generator: &mut SchemaGenerator,
    (name, description): (&str, &str),
) {
    let mut schema = generator.subschema_for::<T>().to_value();
    if !schema.is_object() {
        schema = json!({});
    }
    if let Value::Object(fields) = &mut schema {
        fields.insert("description".to_owned(), Value::from(description.trim()));
    }
    properties.insert(name.to_owned(), schema);
}

/// The schema of a node with these properties.
pub fn schema(kinds: &[&str], description: &str, properties: Map<String, Value>) -> Schema {
    let mut schema = json!({
        "type": "object", "description": description.trim(), "properties": properties,
    });
    if let (false, Value::Object(fields)) = (kinds.is_empty(), &mut schema) {
        fields.insert("required".to_owned(), json!(["kind"]));
        if let Some(Value::Object(properties)) = fields.get_mut("properties") {
            properties.insert("kind".to_owned(), json!({"enum": kinds}));
        }
    }
    Schema::try_from(schema).unwrap_or_default()
}

/// Names as an error lists them: `a, b or c`.
pub fn either(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        one => one.concat(),
    }
}

/// The name of a field in JSON: that of the declaration, unless it gives another one.
#[macro_export]
macro_rules! json_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $json:literal) => {
        $json
    };
}

/// Declares nodes: the kinds, the supertype, and the fields with their names in JSON. Then the fields that clients send
/// without a meaning here, with the reason, and those that are not available.
#[macro_export]
macro_rules! node {
    ($(
        $(#[doc = $about:literal])+
        $node:ident $($kind:literal)|* $(: $base:ty)? {
            $( $(#[doc = $doc:literal])+ $field:ident $(($json:literal))?: $of:ty, )*
        }
        $(ignored $($reason:ident $ignored:expr),+;)?
        $(lacking $lacking:expr;)?
        $(is_entity $is_entity:literal;)?
    )+) => { $(
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $node {
            $(
                /// What all such nodes have.
                pub base: $base,
            )?
            $( $(#[doc = $doc])+ pub $field: $of, )*
        }

        impl $crate::node::Node for $node {
            const FIELDS: $crate::node::Fields = $crate::node::Fields {
                kinds: &[$($kind),*],
                $(base: Some(&<$base as $crate::node::Node>::FIELDS),)?
                read: &[$((
                    $crate::json_name!($field $($json)?),
                    <$of as $crate::node::Content>::FORM,
                )),*],
                $(ignored: &[$(($reason, &$ignored)),+],)?
                $(lacking: &$lacking,)?
                $(is_entity: $is_entity,)?
                ..$crate::node::NOTHING
            };

            fn of(
                sent: &serde_json::Map<String, serde_json::Value>,
                path: &str,
            ) -> Result<Self, $crate::node::NodeError> {
                Ok(Self {
                    $(base: <$base as $crate::node::Node>::of(sent, path)?,)?
                    $($field: $crate::node::field(
                        sent,
                        $crate::json_name!($field $($json)?),
                        path,
                    )?,)*
                })
            }

            fn add_to(&self, object: &mut serde_json::Map<String, serde_json::Value>) {
                $(<$base as $crate::node::Node>::add_to(&self.base, object);)?
                $($crate::node::add_field(
                    object,
                    $crate::json_name!($field $($json)?),
                    &self.$field,
                );)*
            }
        }

        impl $crate::node::Content for $node {
            const FORM: $crate::node::Form =
                $crate::node::Form::Object(&<Self as $crate::node::Node>::FIELDS);

            fn read(
                value: &serde_json::Value,
                path: &str,
            ) -> Result<Self, $crate::node::NodeError> {
                $crate::node::read(value, path)
            }

            fn write(&self) -> Option<serde_json::Value> {
                $crate::node::write(self)
            }

            fn write_given(&self) -> Option<serde_json::Value> {
                Some($crate::node::Node::query(self))
            }
        }

        impl $node {
            /// Adds its fields to a schema.
            pub(crate) fn describe(
                properties: &mut serde_json::Map<String, serde_json::Value>,
                generator: &mut schemars::SchemaGenerator,
            ) {
                $(<$base>::describe(properties, generator);)?
                $($crate::node::declare::describe::<$of>(
                    properties,
                    generator,
                    ($crate::json_name!($field $($json)?), concat!($($doc),+)),
                );)*
            }
        }

        impl schemars::JsonSchema for $node {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($node).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut properties = serde_json::Map::new();
                Self::describe(&mut properties, generator);
                let kinds = <Self as $crate::node::Node>::FIELDS.kinds;
                $crate::node::declare::schema(kinds, concat!($($about),+), properties)
            }
        }
    )+ };
}

/// Declares enumerations with the words that they have in JSON.
#[macro_export]
macro_rules! words {
    ($(
        $(#[doc = $about:literal])+
        $name:ident { $( $(#[doc = $doc:literal])+ $word:ident = $text:literal, )+ }
    )+) => { $(
        $(#[doc = $about])+
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, schemars::JsonSchema, serde::Deserialize, serde::Serialize,
        )]
        #[schemars(inline)]
        pub enum $name {
            $( $(#[doc = $doc])+ #[serde(rename = $text)] $word, )+
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$word),+];

            /// Its word.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)+
                }
            }

            /// The error message if another word was sent.
            pub fn expected() -> String {
                let names = $crate::node::declare::either(&Self::ALL.map(Self::name));
                format!("Expected {names}.")
            }

            /// That of a word.
            pub fn of(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|own| own.name() == word)
            }
        }

        impl $crate::node::Content for $name {
            const IS_TEXT: bool = true;

            fn read(
                value: &serde_json::Value,
                path: &str,
            ) -> Result<Self, $crate::node::NodeError> {
                let found = value.as_str().and_then(Self::of);
                found.ok_or_else(|| $crate::node::NodeError::new(path, Self::expected()))
            }

            fn write(&self) -> Option<serde_json::Value> {
                Some(self.name().into())
            }
        }
    )+ };
}
