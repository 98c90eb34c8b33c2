//! Expectations from the capture contract of PostHog (shapes, tokens, normalisation) and from the
//! public API's list of dropped events; person uuids from Python's `uuid.uuid5`.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimestampMicrosecondType};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::{Drop, Preparer};
use crate::prepare::error::PrepareError;
use crate::prepared::Prepared;
use crate::project_facts::ProjectFacts;
use crate::request::{Protocol, Received};
use weir_base::clock::UnixMicros;
use weir_event::geoip::Places;
use weir_event::id::ProjectId;
use weir_event::schema::{column, events_schema};
use weir_identity::change::OpKind;

mod apart;
mod auto_set;
mod bodies;
mod dropped;
mod imported;
mod members;
mod oracle;
mod people;
mod places;
mod properties;
mod property_replay;
mod robust;
mod stored;
mod v1;

/// 2026-11-21T08:00:00Z.
const NOW: i64 = 1_795_248_000_000_000;
const HOUR: i64 = 3_600_000_000;
const EVENT_MAX_BYTES: u32 = 10_000;

fn received() -> Received {
    Received {
        at: UnixMicros(NOW),
        client_ip: None,
        protocol: Protocol::default(),
        seed: 42,
        skew_ignored_millis: 0,
        event_max_bytes: EVENT_MAX_BYTES,
    }
}

fn project(token: &str) -> Option<ProjectFacts> {
    let types = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let (id, group_types) = match token {
        "phc_a" => (7, types(&["company", "project"])),
        "phc_b" => (8, types(&[])),
        _ => return None,
    };
    Some(ProjectFacts {
        id: ProjectId(id),
        group_types,
        anonymize_ips: false,
        places: Places::Unknown,
    })
}

fn prepare_with(body: impl AsRef<[u8]>, received: &Received) -> Result<Prepared, PrepareError> {
    Preparer::default().prepare(body.as_ref().to_vec(), received, &project)
}

fn prepare(body: impl AsRef<[u8]>) -> Prepared {
    let text = String::from_utf8_lossy(body.as_ref()).into_owned();
    prepare_with(body, &received()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// One event with the token of project 7.
fn one(members: &str) -> Prepared {
    prepare(format!(r#"{{"api_key":"phc_a","batch":[{{{members}}}]}}"#))
}

/// One event that is taken, with these properties.
fn with_properties(members: &str) -> Prepared {
    let prepared = one(&format!(r#""event":"e","distinct_id":"u1","properties":{{{members}}}"#));
    assert_eq!(prepared.rows, 1, "{members}: {:?}", prepared.drops);
    prepared
}

/// The value of one column as JSON.
fn cell(prepared: &Prepared, row: usize, name: &str) -> Json {
    let schema = events_schema();
    let position = schema.index_of(name).unwrap();
    let Some(array) = &prepared.columns[position] else { return Json::Null };
    assert_eq!(array.len(), prepared.rows, "{name}");
    assert_eq!(array.data_type(), schema.field(position).data_type(), "{name}");
    if array.is_null(row) {
        return Json::Null;
    }
    match array.data_type() {
        DataType::Utf8View => {
            let bytes = array.as_string_view().value(row).as_bytes();
            Json::from(std::str::from_utf8(bytes).expect("text columns are UTF-8"))
        }
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::Timestamp(..) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).into()
        }
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into(),
        DataType::Boolean => array.as_boolean().value(row).into(),
        other => panic!("no column is {other}"),
    }
}

fn text(prepared: &Prepared, row: usize, name: &str) -> String {
    cell(prepared, row, name).as_str().unwrap_or_else(|| panic!("{name} is not text")).to_owned()
}

fn texts(prepared: &Prepared, name: &str) -> Vec<String> {
    (0..prepared.rows).map(|row| text(prepared, row, name)).collect()
}

fn ids(prepared: &Prepared) -> Vec<Uuid> {
    texts(prepared, "uuid").iter().map(|id| Uuid::parse_str(id).expect("a uuid")).collect()
}

fn drops(prepared: &Prepared) -> Vec<(Drop, u64)> {
    prepared.drops.iter().collect()
}
