//! The `events` table: column names, types and order. Mirrored in `schemas/arrow/events.v1.json`.
//!
//! Names follow PostHog's Parquet export where it has one. Ids are text, because Delta has no UUID
//! type and text joins in every tool. `properties` is the complete JSON object as the sender wrote
//! it, with the changes of its person in `$set` and `$set_once`, as PostHog stores it. A promoted
//! property has a column of its own as well.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

/// Positions of the fixed columns in [`events_schema`]; promoted properties follow.
pub mod column {
    /// The tenant.
    pub const PROJECT_ID: usize = 0;
    /// Id of the event.
    pub const UUID: usize = 1;
    /// Name of the event.
    pub const EVENT: usize = 2;
    /// The sender's id of the person.
    pub const DISTINCT_ID: usize = 3;
    /// The person id at ingestion; later merges are in the overrides.
    pub const PERSON_ID: usize = 4;
    /// When it happened, after correction of the sender's clock.
    pub const TIMESTAMP: usize = 5;
    /// When the server received it.
    pub const RECEIVED_AT: usize = 6;
    /// `$session_id`.
    pub const SESSION_ID: usize = 7;
    /// `$window_id`.
    pub const WINDOW_ID: usize = 8;
    /// `$elements_chain`, removed from the properties.
    pub const ELEMENTS_CHAIN: usize = 9;
    /// `$ip`, or the client's address.
    pub const IP: usize = 10;
    /// Key of the group of type 0; types 1 to 4 follow.
    pub const GROUP_0: usize = 11;
    /// The JSON object.
    pub const PROPERTIES: usize = 16;
    /// First promoted property.
    pub const PROMOTED: usize = 17;
    /// Whether the sender marked the event as imported history; true or NULL.
    pub const HISTORICAL_MIGRATION: usize = PROMOTED + super::PROMOTED.len();
}

/// Group types that a project can have (PostHog's limit, and the number of `group_` columns).
pub const GROUP_TYPES_MAX: usize = 5;

/// Name of the partition column: the calendar month of `timestamp` in UTC, as in `2026-11`. Months far
/// from the present share one partition, see [`super::time::partition_of`].
pub const PARTITION_COLUMN: &str = "month";

/// Sort key of every file: prunes by project first, then one event's history is contiguous.
pub const SORT_COLUMNS: [usize; 3] = [column::PROJECT_ID, column::EVENT, column::TIMESTAMP];

/// Columns with a bloom filter, for look-ups by id.
pub const BLOOM_COLUMNS: [usize; 3] = [column::UUID, column::DISTINCT_ID, column::PERSON_ID];

/// Columns whose minimum and maximum are in the Delta log, so that queries prune whole files.
pub const STATISTICS_COLUMNS: [usize; 4] =
    [column::PROJECT_ID, column::EVENT, column::TIMESTAMP, column::RECEIVED_AT];

/// Columns whose values hardly repeat within neighbouring rows of a file.
pub const UNIQUE_COLUMNS: [usize; 7] = [
    column::UUID,
    column::DISTINCT_ID,
    column::PERSON_ID,
    column::TIMESTAMP,
    column::RECEIVED_AT,
    column::SESSION_ID,
    column::WINDOW_ID,
];

/// Columns with wide values, which hardly repeat either.
pub const WIDE_COLUMNS: [usize; 2] = [column::PROPERTIES, column::ELEMENTS_CHAIN];

/// The permanent type of a promoted property. A value of another type is NULL in the column and only in
/// `properties`, except for [`TEXT_OF_SCALARS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PropertyType {
    /// JSON string.
    Text,
    /// JSON number.
    Double,
    /// JSON `true` or `false`.
    Boolean,
}

impl PropertyType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::Text, Self::Double, Self::Boolean];

    /// Its name for users.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Double => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type whose column has an Arrow type, of which there are several for texts.
    pub fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            own if own.is_string() => Some(Self::Text),
            DataType::Float64 => Some(Self::Double),
            DataType::Boolean => Some(Self::Boolean),
            _ => None,
        }
    }

    /// The type with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.name() == name)
    }
}

use PropertyType::{Boolean, Double, Text};

/// Properties with a column of their own: those that SDKs send with nearly every event and that queries
/// filter and group by. Sources: the property lists of posthog-js and posthog-node, and PostHog's
/// person and campaign properties. New ones come last: the log of the table names columns by their places here.
/// An owner may have promoted a key that is not here ([`crate::promotion`]): a table with such a column of another type would
/// not open with it.
pub const PROMOTED: [(&str, PropertyType); 58] = [
    ("$current_url", Text),
    ("$pathname", Text),
    ("$host", Text),
    ("$referrer", Text),
    ("$referring_domain", Text),
    ("$search_engine", Text),
    ("$screen_name", Text),
    ("$event_type", Text),
    ("$title", Text),
    ("title", Text),
    ("$browser", Text),
    ("$browser_version", Double),
    ("$browser_language", Text),
    ("$browser_language_prefix", Text),
    ("$raw_user_agent", Text),
    ("$os", Text),
    ("$os_name", Text),
    ("$os_version", Text),
    ("$device", Text),
    ("$device_type", Text),
    ("$device_id", Text),
    ("$screen_width", Double),
    ("$screen_height", Double),
    ("$viewport_width", Double),
    ("$viewport_height", Double),
    ("$timezone", Text),
    ("$lib", Text),
    ("$lib_version", Text),
    ("$app_name", Text),
    ("$app_namespace", Text),
    ("$app_version", Text),
    ("$app_build", Text),
    ("$is_identified", Boolean),
    ("$is_server", Boolean),
    ("$process_person_profile", Boolean),
    ("$prev_pageview_pathname", Text),
    ("$prev_pageview_duration", Double),
    ("$feature_flag", Text),
    ("$feature_flag_response", Text),
    ("$exception_type", Text),
    ("$exception_message", Text),
    ("$geoip_city_name", Text),
    ("$geoip_country_name", Text),
    ("$geoip_country_code", Text),
    ("$geoip_continent_code", Text),
    ("$geoip_subdivision_1_name", Text),
    ("$geoip_time_zone", Text),
    ("utm_source", Text),
    ("utm_medium", Text),
    ("utm_campaign", Text),
    ("utm_content", Text),
    ("utm_term", Text),
    ("gclid", Text),
    ("fbclid", Text),
    ("msclkid", Text),
    ("price", Double),
    ("revenue", Double),
    ("currency", Text),
];

/// Promoted text properties that SDKs also send as booleans or numbers. The column has these as they are
/// written: the result of a flag is `true` or the key of a variant, and a build number is a number on
/// Android and a string elsewhere.
pub const TEXT_OF_SCALARS: [&str; 2] = ["$feature_flag_response", "$app_build"];

/// Name of the column of a promoted property: `p_` and the key. `%` and the characters that Delta forbids
/// in column names (space `,;{}()=` tab and newline) are written as `%` and two hex digits.
pub fn promoted_column_name(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + 2);
    name.push_str("p_");
    for character in key.chars() {
        match character {
            ' ' | ',' | ';' | '{' | '}' | '(' | ')' | '=' | '\t' | '\n' | '%' => {
                name.push_str(&format!("%{:02X}", u32::from(character)));
            }
            _ => name.push(character),
        }
    }
    name
}

/// Columns and types of the `events` table, without the partition column.
pub fn events_schema() -> SchemaRef {
    let required = |name: &str, data_type| Field::new(name, data_type, false);
    let optional = |name: &str| Field::new(name, DataType::Utf8View, true);
    let time = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let mut fields = vec![
        required("project_id", DataType::Int64),
        required("uuid", DataType::Utf8View),
        required("event", DataType::Utf8View),
        required("distinct_id", DataType::Utf8View),
        required("person_id", DataType::Utf8View),
        required("timestamp", time()),
        required("received_at", time()),
        optional("session_id"),
        optional("window_id"),
        optional("elements_chain"),
        optional("ip"),
    ];
    fields.extend((0..GROUP_TYPES_MAX).map(|index| optional(&format!("group_{index}"))));
    fields.push(required("properties", DataType::Utf8View));
    for (key, kind) in PROMOTED {
        let data_type = match kind {
            Text => DataType::Utf8View,
            Double => DataType::Float64,
            Boolean => DataType::Boolean,
        };
        fields.push(Field::new(promoted_column_name(key), data_type, true));
    }
    fields.push(Field::new("historical_migration", DataType::Boolean, true));
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::DataType;

    use super::{
        PARTITION_COLUMN, PROMOTED, PropertyType, TEXT_OF_SCALARS, column, events_schema,
        promoted_column_name,
    };

    #[test]
    fn positions_name_their_columns() {
        let schema = events_schema();
        for (position, name) in [
            (column::PROJECT_ID, "project_id"),
            (column::UUID, "uuid"),
            (column::EVENT, "event"),
            (column::DISTINCT_ID, "distinct_id"),
            (column::PERSON_ID, "person_id"),
            (column::TIMESTAMP, "timestamp"),
            (column::RECEIVED_AT, "received_at"),
            (column::SESSION_ID, "session_id"),
            (column::WINDOW_ID, "window_id"),
            (column::ELEMENTS_CHAIN, "elements_chain"),
            (column::IP, "ip"),
            (column::GROUP_0, "group_0"),
            (column::PROPERTIES, "properties"),
            (column::PROMOTED, "p_$current_url"),
            (column::HISTORICAL_MIGRATION, "historical_migration"),
        ] {
            assert_eq!(schema.field(position).name(), name);
        }
        assert_eq!(schema.fields().len(), column::HISTORICAL_MIGRATION + 1);
    }

    #[test]
    fn forbidden_characters_are_escaped() {
        assert_eq!(promoted_column_name("a b=c%"), "p_a%20b%3Dc%25");
        assert_eq!(promoted_column_name("$os"), "p_$os");
    }

    #[test]
    fn scalars_stand_in_columns_of_text_alone() {
        for key in TEXT_OF_SCALARS {
            assert!(PROMOTED.contains(&(key, PropertyType::Text)), "{key}");
        }
    }

    /// The table as readers of its files see it, with Delta's types.
    fn described() -> String {
        let column = |name: &str, data_type: &DataType, nullable: bool| {
            let data_type = match data_type {
                DataType::Int64 => "long",
                DataType::Float64 => "double",
                DataType::Boolean => "boolean",
                DataType::Timestamp(..) => "timestamp",
                DataType::Utf8View => "string",
                other => panic!("{other} has no name here"),
            };
            format!("{{\"name\": {name:?}, \"type\": \"{data_type}\", \"nullable\": {nullable}}}")
        };
        let schema = events_schema();
        let mut columns: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| column(field.name(), field.data_type(), field.is_nullable()))
            .collect();
        columns.push(column(PARTITION_COLUMN, &DataType::Utf8View, true));
        let columns = columns.join(",\n    ");
        format!(
            "{{\n  \"table\": \"events\",\n  \"version\": 1,\n  \"partitioned_by\": \
             [\"{PARTITION_COLUMN}\"],\n  \"columns\": [\n    {columns}\n  ]\n}}\n"
        )
    }

    /// Existing tables have these columns: no column may change, and a new one goes to the end. `UPDATE=1`
    /// writes the file.
    #[test]
    fn the_published_schema_is_the_one_in_use() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/arrow/events.v1.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, described()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), described());
    }
}
