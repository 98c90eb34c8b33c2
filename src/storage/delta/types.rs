//! Delta schema: parses and writes `metaData.schemaString`, a JSON text (Delta protocol, "Schema
//! Serialization Format"), and maps Delta types to the Arrow types of data files.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, Fields, TimeUnit};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// Columns, in order. Names are unique without regard to case, which most engines ignore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StructType {
    #[serde(rename = "type")]
    kind: StructKind,
    fields: Vec<StructField>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StructField {
    name: String,
    #[serde(rename = "type")]
    data_type: DataType,
    nullable: bool,
    /// Metadata that engines store for a column, such as a comment. It does not affect the data files of a
    /// table without column mapping.
    #[serde(default)]
    metadata: BTreeMap<String, Json>,
}

/// The type of a column or of a nested field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum DataType {
    Primitive(Primitive),
    Array(Box<ArrayType>),
    Map(Box<MapType>),
    Struct(Box<StructType>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArrayType {
    #[serde(rename = "type")]
    kind: ArrayKind,
    element_type: DataType,
    contains_null: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MapType {
    #[serde(rename = "type")]
    kind: MapKind,
    key_type: DataType,
    value_type: DataType,
    value_contains_null: bool,
}

/// The primitive types of reader version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) enum Primitive {
    String,
    Long,
    Integer,
    Short,
    Byte,
    Float,
    Double,
    Boolean,
    Binary,
    Date,
    /// Microseconds in UTC.
    Timestamp,
    Decimal {
        precision: u8,
        scale: u8,
    },
}

/// Primitive types by name; a decimal has its numbers in its name.
const PRIMITIVES: [(&str, Primitive); 11] = [
    ("string", Primitive::String),
    ("long", Primitive::Long),
    ("integer", Primitive::Integer),
    ("short", Primitive::Short),
    ("byte", Primitive::Byte),
    ("float", Primitive::Float),
    ("double", Primitive::Double),
    ("boolean", Primitive::Boolean),
    ("binary", Primitive::Binary),
    ("date", Primitive::Date),
    ("timestamp", Primitive::Timestamp),
];

/// Maximum digits of a decimal.
const DECIMAL_DIGITS_MAX: u8 = 38;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum StructKind {
    #[serde(rename = "struct")]
    Struct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ArrayKind {
    #[serde(rename = "array")]
    Array,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum MapKind {
    #[serde(rename = "map")]
    Map,
}

impl StructType {
    /// A struct of columns with different names.
    pub(super) fn new(fields: Vec<StructField>) -> Result<Self, String> {
        let schema = Self { kind: StructKind::Struct, fields };
        schema.check().map(|()| schema)
    }

    /// Reads a schema from its JSON text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let schema: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        schema.check().map(|()| schema)
    }

    /// The JSON text.
    pub(super) fn to_json(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    pub(super) fn fields(&self) -> &[StructField] {
        &self.fields
    }

    pub(super) fn field(&self, name: &str) -> Option<&StructField> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The Arrow types of the columns.
    fn to_arrow(&self) -> Fields {
        self.fields.iter().map(StructField::to_arrow).collect()
    }

    fn check(&self) -> Result<(), String> {
        let mut names = hashbrown::HashSet::new();
        for field in &self.fields {
            if !names.insert(field.name.to_lowercase()) {
                return Err(format!("two columns have the name {}", field.name));
            }
            field.data_type.check()?;
        }
        Ok(())
    }
}

impl StructField {
    pub(super) fn new(name: &str, data_type: impl Into<DataType>, nullable: bool) -> Self {
        let (name, data_type) = (name.to_owned(), data_type.into());
        Self { name, data_type, nullable, metadata: BTreeMap::new() }
    }

    /// The same with a comment, which engines show with the column.
    pub(super) fn with_comment(mut self, comment: &str) -> Self {
        self.metadata.insert("comment".to_owned(), Json::String(comment.to_owned()));
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    pub(super) fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// The column in data files.
    pub(super) fn to_arrow(&self) -> Field {
        Field::new(&self.name, self.data_type.to_arrow(), self.nullable)
    }
}

impl DataType {
    pub(super) fn array(element_type: Self, contains_null: bool) -> Self {
        Self::Array(Box::new(ArrayType { kind: ArrayKind::Array, element_type, contains_null }))
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Self::Primitive(_) => Ok(()),
            Self::Array(array) => array.element_type.check(),
            Self::Map(map) => map.key_type.check().and_then(|()| map.value_type.check()),
            Self::Struct(fields) => fields.check(),
        }
    }

    fn to_arrow(&self) -> ArrowType {
        match self {
            Self::Primitive(primitive) => primitive.to_arrow(),
            Self::Array(array) => {
                let element = array.element_type.to_arrow();
                ArrowType::List(Arc::new(Field::new("element", element, array.contains_null)))
            }
            Self::Map(map) => map_type(
                map.key_type.to_arrow(),
                map.value_type.to_arrow(),
                map.value_contains_null,
            ),
            Self::Struct(fields) => ArrowType::Struct(fields.to_arrow()),
        }
    }
}

impl From<Primitive> for DataType {
    fn from(primitive: Primitive) -> Self {
        Self::Primitive(primitive)
    }
}

impl From<StructType> for DataType {
    fn from(fields: StructType) -> Self {
        Self::Struct(Box::new(fields))
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primitive(primitive) => write!(formatter, "{primitive}"),
            Self::Array(array) => write!(formatter, "array<{}>", array.element_type),
            Self::Map(map) => write!(formatter, "map<{}, {}>", map.key_type, map.value_type),
            Self::Struct(fields) => {
                formatter.write_str("struct<")?;
                for (index, field) in fields.fields.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(formatter, "{separator}{}: {}", field.name, field.data_type)?;
                }
                formatter.write_str(">")
            }
        }
    }
}

impl Primitive {
    /// A decimal of `precision` digits, `scale` of them after the point.
    pub(super) fn decimal(precision: u8, scale: u8) -> Result<Self, String> {
        if precision == 0 || precision > DECIMAL_DIGITS_MAX || scale > precision {
            return Err(format!("there is no decimal({precision},{scale})"));
        }
        Ok(Self::Decimal { precision, scale })
    }

    fn to_arrow(self) -> ArrowType {
        match self {
            Self::String => ArrowType::Utf8,
            Self::Long => ArrowType::Int64,
            Self::Integer => ArrowType::Int32,
            Self::Short => ArrowType::Int16,
            Self::Byte => ArrowType::Int8,
            Self::Float => ArrowType::Float32,
            Self::Double => ArrowType::Float64,
            Self::Boolean => ArrowType::Boolean,
            Self::Binary => ArrowType::Binary,
            Self::Date => ArrowType::Date32,
            Self::Timestamp => ArrowType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Decimal { precision, scale } => {
                // At most 38.
                ArrowType::Decimal128(precision, i8::try_from(scale).unwrap_or(i8::MAX))
            }
        }
    }
}

impl fmt::Display for Primitive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Decimal { precision, scale } = self {
            return write!(formatter, "decimal({precision},{scale})");
        }
        let name = PRIMITIVES.iter().find(|(_, primitive)| primitive == self);
        formatter.write_str(name.map_or("", |(name, _)| name))
    }
}

impl From<Primitive> for String {
    fn from(primitive: Primitive) -> Self {
        primitive.to_string()
    }
}

impl TryFrom<String> for Primitive {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if let Some((_, primitive)) = PRIMITIVES.iter().find(|(known, _)| *known == name) {
            return Ok(*primitive);
        }
        let numbers = name.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')'));
        let numbers = numbers.and_then(|numbers| numbers.split_once(','));
        let parsed = numbers.and_then(|(precision, scale)| {
            Some((precision.trim().parse().ok()?, scale.trim().parse().ok()?))
        });
        let (precision, scale) = parsed.ok_or_else(|| format!("the type {name} is unknown"))?;
        Self::decimal(precision, scale)
    }
}

/// The Arrow type of a map, with Parquet's names for its parts.
pub(super) fn map_type(key: ArrowType, value: ArrowType, value_contains_null: bool) -> ArrowType {
    let parts =
        vec![Field::new("key", key, false), Field::new("value", value, value_contains_null)];
    let entries = Field::new("key_value", ArrowType::Struct(parts.into()), false);
    ArrowType::Map(Arc::new(entries), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Spark writes it for a table with a column of every kind.
    const SPARK: &str = r#"{"type":"struct","fields":[
        {"name":"id","type":"long","nullable":false,"metadata":{}},
        {"name":"price","type":"decimal(10,2)","nullable":true,"metadata":{"comment":"in EUR"}},
        {"name":"at","type":"timestamp","nullable":true,"metadata":{}},
        {"name":"tags","type":{"type":"array","elementType":"string","containsNull":true},
            "nullable":true,"metadata":{}},
        {"name":"more","type":{"type":"map","keyType":"string","valueType":"integer",
            "valueContainsNull":true},"nullable":true,"metadata":{}},
        {"name":"place","type":{"type":"struct","fields":[
            {"name":"lat","type":"double","nullable":true,"metadata":{}}]},
            "nullable":true,"metadata":{}}]}"#;

    #[test]
    fn schemas_of_others_survive() {
        let schema = StructType::parse(SPARK).expect("a schema");
        let again = schema.to_json().expect("a text");
        assert_eq!(StructType::parse(&again).expect("a schema"), schema);
        let [theirs, ours]: [Json; 2] =
            [SPARK, &again].map(|text| serde_json::from_str(text).expect("json"));
        assert_eq!(ours, theirs, "nothing is lost or added");
        let types: Vec<_> = schema.fields().iter().map(|f| f.data_type().to_string()).collect();
        assert_eq!(
            types,
            [
                "long",
                "decimal(10,2)",
                "timestamp",
                "array<string>",
                "map<string, integer>",
                "struct<lat: double>",
            ]
        );
        let price = schema.field("price").expect("the column").to_arrow();
        assert_eq!(price, Field::new("price", ArrowType::Decimal128(10, 2), true));
        assert!(schema.field("PRICE").is_none());
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        let of_type = |name: &str| {
            format!(
                r#"{{"type":"struct","fields":[
                    {{"name":"a","type":{name},"nullable":true,"metadata":{{}}}}]}}"#
            )
        };
        for good in [r#""string""#, r#""decimal(38,38)""#, r#""decimal(5, 0)""#] {
            StructType::parse(&of_type(good)).expect(good);
        }
        for (bad, why) in [
            (of_type(r#""timestamp_ntz""#), "a table feature"),
            (of_type(r#""variant""#), "a table feature"),
            (of_type(r#""decimal(39,2)""#), "too many digits"),
            (of_type(r#""decimal(2,3)""#), "more digits after the point than digits"),
            (of_type(r#""decimal(2""#), "cut off"),
            (of_type("7"), "a number"),
            (of_type(r#"{"type":"set","elementType":"string"}"#), "no such kind"),
            (r#"{"type":"array","fields":[]}"#.to_owned(), "no struct"),
            (
                r#"{"type":"struct","fields":[
                    {"name":"a","type":"long","nullable":true,"metadata":{}},
                    {"name":"A","type":"long","nullable":true,"metadata":{}}]}"#
                    .to_owned(),
                "the same name twice",
            ),
            (String::new(), "empty"),
        ] {
            StructType::parse(&bad).expect_err(why);
        }
    }
}
