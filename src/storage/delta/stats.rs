//! Column statistics of a data file in the table's log: `Add.stats`, a JSON object
//! `{"numRecords":3,"minValues":{"event":"a"},"maxValues":{"event":"b"},"nullCount":{"event":0}}`
//! (Delta protocol, "Per-file Statistics"). They are only bounds: a missing value means no bound.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Value as Json, json};

use crate::delta::types::{DataType, Primitive, StructType};
use weir_base::clock::UnixMicros;

/// Maximum length of a text bound, in characters. Parquet's own limit is 64 bytes; uuids and event names fit
/// completely.
const TEXT_MAX_CHARS: usize = 64;

/// Microseconds in the unit of the timestamps of the log.
const MILLISECOND: i64 = 1_000;

/// Statistics of a file's columns. Contains only columns that are used for pruning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileStats {
    /// By column name.
    pub columns: BTreeMap<String, ColumnStats>,
}

impl FileStats {
    /// Whether a column of integers may have a value, by its bounds.
    pub fn may_have(&self, column: &str, value: i64) -> bool {
        self.columns.get(column).is_none_or(|stats| {
            let is_above = matches!(&stats.min, Some(Value::Int(min)) if *min > value);
            let is_below = matches!(&stats.max, Some(Value::Int(max)) if *max < value);
            !is_above && !is_below
        })
    }
}

/// Bounds of one column in one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnStats {
    /// Lower bound of the values.
    pub min: Option<Value>,
    /// Upper bound of the values.
    pub max: Option<Value>,
    /// Number of rows in which the column is null.
    pub null_count: Option<u64>,
}

/// A bound.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of an integer column of any width.
    Int(i64),
    /// Of a float or double column. Infinities and NaN are not written.
    Float(f64),
    /// Of a string column. Compares by bytes.
    Text(String),
    /// Of a timestamp column. The log has milliseconds: a minimum is rounded down, a maximum up.
    Timestamp(UnixMicros),
}

/// The end of the range that a value bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Min,
    Max,
}

/// The statistics as JSON text.
pub(super) fn encode(stats: &FileStats, rows: u64) -> String {
    let mut mins = Map::new();
    let mut maxs = Map::new();
    let mut nulls = Map::new();
    for (name, column) in &stats.columns {
        let bound = |value: &Option<Value>, bound| value.as_ref().and_then(|v| to_json(v, bound));
        mins.extend(bound(&column.min, Bound::Min).map(|value| (name.clone(), value)));
        maxs.extend(bound(&column.max, Bound::Max).map(|value| (name.clone(), value)));
        nulls.extend(column.null_count.map(|count| (name.clone(), count.into())));
    }
    json!({ "numRecords": rows, "minValues": mins, "maxValues": maxs, "nullCount": nulls })
        .to_string()
}

/// Reads the statistics and the number of rows of a file whose columns are those of `schema`.
/// `None` if they are no JSON object or lack the number of rows.
pub(super) fn decode(text: &str, schema: &StructType) -> Option<(FileStats, u64)> {
    let json: Json = serde_json::from_str(text).ok()?;
    let rows = json.get("numRecords")?.as_u64()?;
    let mut columns: BTreeMap<String, ColumnStats> = BTreeMap::new();
    for (name, value) in members(&json, "minValues") {
        if let Some(min) = from_json(value, name, schema, Bound::Min) {
            columns.entry(name.clone()).or_default().min = Some(min);
        }
    }
    for (name, value) in members(&json, "maxValues") {
        if let Some(max) = from_json(value, name, schema, Bound::Max) {
            columns.entry(name.clone()).or_default().max = Some(max);
        }
    }
    for (name, value) in members(&json, "nullCount") {
        if let Some(count) = value.as_u64() {
            columns.entry(name.clone()).or_default().null_count = Some(count);
        }
    }
    Some((FileStats { columns }, rows))
}

fn members<'json>(
    json: &'json Json,
    key: &str,
) -> impl Iterator<Item = (&'json String, &'json Json)> {
    json.get(key).and_then(Json::as_object).into_iter().flatten()
}

fn to_json(value: &Value, bound: Bound) -> Option<Json> {
    match value {
        Value::Int(int) => Some((*int).into()),
        Value::Float(float) => serde_json::Number::from_f64(*float).map(Json::Number),
        Value::Text(text) => match bound {
            Bound::Min => Some(Json::String(text.chars().take(TEXT_MAX_CHARS).collect())),
            Bound::Max => upper_bound(text).map(Json::String),
        },
        Value::Timestamp(time) => {
            let millis = match bound {
                Bound::Min => time.0.div_euclid(MILLISECOND),
                Bound::Max => time.0.checked_add(MILLISECOND - 1)?.div_euclid(MILLISECOND),
            };
            let time = DateTime::from_timestamp_millis(millis)?;
            Some(Json::String(time.to_rfc3339_opts(SecondsFormat::Millis, true)))
        }
    }
}

/// A text of bounded length that is not less than `text`: its start with the last character that
/// has a successor replaced by that. `None` if there is no such text.
fn upper_bound(text: &str) -> Option<String> {
    let mut start: Vec<char> = text.chars().take(TEXT_MAX_CHARS + 1).collect();
    if start.len() <= TEXT_MAX_CHARS {
        return Some(text.to_owned());
    }
    start.truncate(TEXT_MAX_CHARS);
    while let Some(last) = start.pop() {
        if let Some(next) = successor(last) {
            start.push(next);
            return Some(start.into_iter().collect());
        }
    }
    None
}

/// The next character; the gap of the surrogates is skipped.
fn successor(character: char) -> Option<char> {
    let next = u32::from(character).checked_add(1)?;
    if next == 0xD800 { Some('\u{E000}') } else { char::from_u32(next) }
}

fn from_json(json: &Json, column: &str, schema: &StructType, bound: Bound) -> Option<Value> {
    let DataType::Primitive(primitive) = schema.field(column)?.data_type() else { return None };
    match primitive {
        Primitive::Byte | Primitive::Short | Primitive::Integer | Primitive::Long => {
            json.as_i64().map(Value::Int)
        }
        Primitive::Float | Primitive::Double => json.as_f64().map(Value::Float),
        Primitive::String => json.as_str().map(|text| Value::Text(text.to_owned())),
        Primitive::Timestamp => {
            let time = DateTime::parse_from_rfc3339(json.as_str()?).ok()?.timestamp_micros();
            // Other writers round the maximum down to the millisecond.
            let cut = bound == Bound::Max && time.rem_euclid(MILLISECOND) == 0;
            let slack = if cut { MILLISECOND - 1 } else { 0 };
            Some(Value::Timestamp(UnixMicros(time.saturating_add(slack))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::types::StructField;

    fn schema() -> StructType {
        StructType::new(vec![
            StructField::new("n", Primitive::Long, true),
            StructField::new("x", Primitive::Double, true),
            StructField::new("s", Primitive::String, true),
            StructField::new("t", Primitive::Timestamp, true),
        ])
        .expect("valid schema")
    }

    fn round_trip(name: &str, value: Value) -> ColumnStats {
        let column =
            ColumnStats { min: Some(value.clone()), max: Some(value), null_count: Some(2) };
        let stats = FileStats { columns: [(name.to_owned(), column)].into() };
        let (decoded, rows) = decode(&encode(&stats, 7), &schema()).expect("our own statistics");
        assert_eq!(rows, 7);
        assert_eq!(decoded.columns.len(), 1, "{name}");
        decoded.columns[name].clone()
    }

    #[test]
    fn whole_values_survive() {
        for (name, value) in [
            ("n", Value::Int(i64::MIN)),
            ("n", Value::Int(i64::MAX)),
            ("x", Value::Float(-0.1)),
            ("x", Value::Float(1e300)),
            ("s", Value::Text(String::new())),
            ("s", Value::Text("\"quoted\" \u{1F600}".to_owned())),
            ("s", Value::Text("x".repeat(TEXT_MAX_CHARS))),
        ] {
            let column = round_trip(name, value.clone());
            assert_eq!(column.min.as_ref(), Some(&value));
            assert_eq!(column.max.as_ref(), Some(&value));
            assert_eq!(column.null_count, Some(2));
        }
    }

    #[test]
    fn long_texts_are_cut_to_bounds() {
        let check = |text: String, max: Option<String>| {
            let column = round_trip("s", Value::Text(text.clone()));
            let min = text.chars().take(TEXT_MAX_CHARS).collect();
            assert_eq!(column.min, Some(Value::Text(min)));
            assert_eq!(column.max, max.clone().map(Value::Text));
            assert!(max.is_none_or(|max| max.as_bytes() >= text.as_bytes()));
        };
        let (a, last) = ("a".repeat(TEXT_MAX_CHARS - 1), char::MAX.to_string());
        check(format!("{a}bzz"), Some(format!("{a}c")));
        check(format!("{a}\u{D7FF}z"), Some(format!("{a}\u{E000}")));
        check(format!("{a}{last}z"), Some(format!("{}b", "a".repeat(TEXT_MAX_CHARS - 2))));
        check(last.repeat(TEXT_MAX_CHARS + 1), None);
    }

    #[test]
    fn times_are_rounded_outwards() {
        for micros in [0, 1, 999, 1_000, 1_763_712_000_123_456, -1, -1_000, -1_001] {
            let time = Value::Timestamp(UnixMicros(micros));
            let column = round_trip("t", time);
            let (Some(Value::Timestamp(min)), Some(Value::Timestamp(max))) =
                (column.min, column.max)
            else {
                panic!("no bounds for {micros}")
            };
            assert!(min.0 <= micros && micros - min.0 < 1_000, "{micros}: {min:?}");
            assert!(max.0 >= micros && max.0 - micros < 2_000, "{micros}: {max:?}");
        }
        let out_of_range = round_trip("t", Value::Timestamp(UnixMicros(i64::MAX)));
        assert_eq!((out_of_range.min, out_of_range.max), (None, None));
    }

    /// The text is what the protocol document and Spark write.
    #[test]
    fn reads_what_other_writers_write() {
        let text = r#"{"numRecords":3,"minValues":{"n":1,"t":"2026-11-21T08:00:00.123Z","other":1},
            "maxValues":{"n":3,"t":"2026-11-21T08:00:00.123Z"},"nullCount":{"n":0},"tightBounds":true}"#;
        let (stats, rows) = decode(text, &schema()).expect("valid statistics");
        assert_eq!(rows, 3);
        let time = UnixMicros(1_795_248_000_123_000);
        assert_eq!(stats.columns["t"].min, Some(Value::Timestamp(time)));
        assert_eq!(stats.columns["t"].max, Some(Value::Timestamp(UnixMicros(time.0 + 999))));
        assert_eq!(stats.columns["n"].null_count, Some(0));
        assert!(!stats.columns.contains_key("other"));
        assert_eq!(decode("{}", &schema()), None);
        assert_eq!(decode("[", &schema()), None);
    }

    #[test]
    fn not_a_number_is_no_bound() {
        for float in [f64::NAN, f64::INFINITY] {
            let column = round_trip("x", Value::Float(float));
            assert_eq!((column.min, column.max, column.null_count), (None, None, Some(2)));
        }
    }
}
