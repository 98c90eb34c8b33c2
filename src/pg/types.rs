//! Types of PostgreSQL: [`Kind`], which type an Arrow type is shown as, and the one Arrow type of each, to which columns
//! are cast before they are written ([`Kind::stored`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

use weir_query::kernel::prepared::ResultColumn;

/// A type of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `numeric`, of so many digits in all and after the point.
    Numeric(u8, i8),
    /// `text`
    Text,
    /// `json`
    Json,
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `time`
    Time,
    /// `timestamp`
    Timestamp,
    /// `timestamp with time zone`
    Timestamptz,
    /// `interval`
    Interval,
    /// `oid`, of the catalog.
    Oid,
    /// `name`, of the catalog.
    Name,
    /// `"char"`, a letter, of the catalog.
    Char,
    /// A list of one of the others.
    List(Item),
}

/// The type of the items of a list: any but `json` and a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// `boolean[]`
    Bool,
    /// `smallint[]`
    Int2,
    /// `integer[]`
    Int4,
    /// `bigint[]`
    Int8,
    /// `real[]`
    Float4,
    /// `double precision[]`
    Float8,
    /// `numeric[]`
    Numeric(u8, i8),
    /// `text[]`
    Text,
    /// `bytea[]`
    Bytea,
    /// `date[]`
    Date,
    /// `time[]`
    Time,
    /// `timestamp[]`
    Timestamp,
    /// `timestamp with time zone[]`
    Timestamptz,
    /// `interval[]`
    Interval,
    /// `oid[]`, of the catalog.
    Oid,
}

impl Item {
    /// The type of one item.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Bool => Kind::Bool,
            Self::Int2 => Kind::Int2,
            Self::Int4 => Kind::Int4,
            Self::Int8 => Kind::Int8,
            Self::Float4 => Kind::Float4,
            Self::Float8 => Kind::Float8,
            Self::Numeric(digits, scale) => Kind::Numeric(digits, scale),
            Self::Text => Kind::Text,
            Self::Bytea => Kind::Bytea,
            Self::Date => Kind::Date,
            Self::Time => Kind::Time,
            Self::Timestamp => Kind::Timestamp,
            Self::Timestamptz => Kind::Timestamptz,
            Self::Interval => Kind::Interval,
            Self::Oid => Kind::Oid,
        }
    }

    fn of(kind: Kind) -> Option<Self> {
        Some(match kind {
            Kind::Bool => Self::Bool,
            Kind::Int2 => Self::Int2,
            Kind::Int4 => Self::Int4,
            Kind::Int8 => Self::Int8,
            Kind::Float4 => Self::Float4,
            Kind::Float8 => Self::Float8,
            Kind::Numeric(digits, scale) => Self::Numeric(digits, scale),
            Kind::Text => Self::Text,
            Kind::Bytea => Self::Bytea,
            Kind::Date => Self::Date,
            Kind::Time => Self::Time,
            Kind::Timestamp => Self::Timestamp,
            Kind::Timestamptz => Self::Timestamptz,
            Kind::Interval => Self::Interval,
            Kind::Oid => Self::Oid,
            Kind::Json | Kind::Name | Kind::Char | Kind::List(_) => return None,
        })
    }
}

/// The types with their names, their object ids, and those of the lists of them (0 for none).
pub(crate) const KINDS: [(Kind, &str, u32, u32); 18] = [
    (Kind::Bool, "bool", 16, 1000),
    (Kind::Bytea, "bytea", 17, 1001),
    (Kind::Char, "char", 18, 1002),
    (Kind::Name, "name", 19, 1003),
    (Kind::Int8, "int8", 20, 1016),
    (Kind::Int2, "int2", 21, 1005),
    (Kind::Int4, "int4", 23, 1007),
    (Kind::Text, "text", 25, 1009),
    (Kind::Oid, "oid", 26, 1028),
    (Kind::Json, "json", 114, 199),
    (Kind::Float4, "float4", 700, 1021),
    (Kind::Float8, "float8", 701, 1022),
    (Kind::Date, "date", 1082, 1182),
    (Kind::Time, "time", 1083, 1183),
    (Kind::Timestamp, "timestamp", 1114, 1115),
    (Kind::Timestamptz, "timestamptz", 1184, 1185),
    (Kind::Interval, "interval", 1186, 1187),
    (Kind::Numeric(38, 10), "numeric", 1700, 1231),
];

impl Kind {
    /// The type that a column is shown as.
    pub(crate) fn of(column: &ResultColumn) -> Self {
        if column.is_json { Self::Json } else { Self::of_type(&column.data_type) }
    }

    /// The type that an Arrow type is shown as. Structures and lists of lists are JSON; values of several types have no
    /// form, and are refused before ([`ResultColumn::has_several_types`]).
    pub(crate) fn of_type(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Bool,
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => Self::Int2,
            DataType::UInt16 | DataType::Int32 => Self::Int4,
            // A number that is too large is an error: `numeric` would make the common ones decimals for all clients.
            DataType::UInt32 | DataType::Int64 | DataType::UInt64 => Self::Int8,
            DataType::Float16 | DataType::Float32 => Self::Float4,
            DataType::Float64 => Self::Float8,
            DataType::Decimal32(digits, scale)
            | DataType::Decimal64(digits, scale)
            | DataType::Decimal128(digits, scale)
            | DataType::Decimal256(digits, scale) => Self::Numeric(*digits, *scale),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Bytea,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::Timestamptz,
            DataType::Interval(_) | DataType::Duration(_) => Self::Interval,
            DataType::Dictionary(_, values) => Self::of_type(values),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => {
                Item::of(Self::of_type(item.data_type())).map_or(Self::Json, Self::List)
            }
            DataType::Struct(_) | DataType::Map(..) => Self::Json,
            _ => Self::Text,
        }
    }

    /// The type's object id.
    pub(crate) fn oid(self) -> u32 {
        let of = |kind: Kind| KINDS.iter().find(|(own, ..)| own.is_like(kind));
        match self {
            Self::List(item) => of(item.kind()).map_or(0, |(.., list)| *list),
            kind => of(kind).map_or(0, |(_, _, oid, _)| *oid),
        }
    }

    /// Whether two types differ in digits at most.
    fn is_like(self, other: Self) -> bool {
        matches!((self, other), (Self::Numeric(..), Self::Numeric(..))) || self == other
    }

    /// Bytes of a value; -1 if that varies.
    pub(crate) fn size(self) -> i16 {
        match self {
            Self::Bool | Self::Char => 1,
            Self::Int2 => 2,
            Self::Int4 | Self::Float4 | Self::Date | Self::Oid => 4,
            Self::Int8 | Self::Float8 | Self::Time | Self::Timestamp | Self::Timestamptz => 8,
            Self::Interval => 16,
            Self::Name => 64,
            _ => -1,
        }
    }

    /// The Arrow type of the values that are written as this type.
    pub(crate) fn stored(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 | Self::Oid => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Numeric(digits, scale) => DataType::Decimal256(digits, scale),
            Self::Text | Self::Json | Self::Name | Self::Char => DataType::Utf8View,
            Self::Bytea => DataType::LargeBinary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::List(item) => {
                let field = Field::new_list_field(item.kind().stored(), true);
                DataType::LargeList(Arc::new(field))
            }
        }
    }
}

/// The Arrow type of a parameter that was declared with a type; `None` if it is any text.
pub(crate) fn declared(oid: u32) -> Option<DataType> {
    let utc = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    match oid {
        20 | 21 | 23 | 26 => Some(match oid {
            21 => DataType::Int16,
            23 => DataType::Int32,
            _ => DataType::Int64,
        }),
        1184 => Some(utc()),
        oid => KINDS.iter().find_map(|(kind, _, own, list)| {
            let stored = match kind {
                Kind::Name | Kind::Char | Kind::Json | Kind::Text => DataType::Utf8View,
                Kind::Numeric(..) => DataType::Decimal128(38, 10),
                Kind::Bytea => DataType::Binary,
                kind => kind.stored(),
            };
            match oid {
                _ if oid == *own => Some(stored),
                _ if oid == *list => Some(DataType::new_list(stored, true)),
                _ => None,
            }
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

    use super::{Item, KINDS, Kind, declared};

    /// Expectations: the object ids of PostgreSQL's `pg_type.dat`.
    #[test]
    fn types_have_their_ids() {
        let list = |item: DataType| DataType::List(Arc::new(Field::new_list_field(item, true)));
        let fields = Fields::from(vec![Field::new("a", DataType::Int64, true)]);
        for (data_type, oid, size) in [
            (DataType::Utf8View, 25, -1),
            (DataType::Null, 25, -1),
            (DataType::UInt8, 21, 2),
            (DataType::Int64, 20, 8),
            (DataType::UInt64, 20, 8),
            (DataType::Float64, 701, 8),
            (DataType::Boolean, 16, 1),
            (DataType::Decimal128(38, 10), 1700, -1),
            (DataType::Decimal256(76, 3), 1700, -1),
            (DataType::Timestamp(TimeUnit::Nanosecond, Some("Asia/Tokyo".into())), 1184, 8),
            (DataType::Timestamp(TimeUnit::Second, None), 1114, 8),
            (DataType::Date32, 1082, 4),
            (list(DataType::Utf8), 1009, -1),
            (list(DataType::Float64), 1022, -1),
            (list(DataType::Decimal128(10, 2)), 1231, -1),
            (list(list(DataType::Int64)), 114, -1),
            (DataType::Struct(fields), 114, -1),
        ] {
            let kind = Kind::of_type(&data_type);
            assert_eq!((kind.oid(), kind.size()), (oid, size), "{data_type}");
        }
    }

    #[test]
    fn every_declared_type_is_that_of_its_values() {
        for (kind, name, oid, list) in KINDS {
            let own = declared(oid).unwrap_or_else(|| panic!("{name}"));
            let is_text = matches!(kind, Kind::Json | Kind::Name | Kind::Char | Kind::Oid);
            assert!(is_text || Kind::of_type(&own).oid() == oid, "{name}");
            assert!(declared(list).is_some_and(|own| own.is_list()), "{name}[]");
        }
        assert_eq!((declared(0), declared(705), declared(1043)), (None, None, None));
        assert_eq!(Kind::List(Item::Int4).oid(), 1007);
    }
}
