//! Google Analytics 4: the tables `events_YYYYMMDD` of BigQuery as JSON lines or Parquet. Integers of 64 bits are strings
//! in JSON.

use std::borrow::Cow;

use crate::event::Event;
use crate::ids::{Ids, Latest, Seen};
use crate::json_text;
use crate::mapping::{JSON, Options, Output, Source, identify, members, needed};
use crate::object::Object;
use crate::read::{Row, Wanted};
use crate::refusal::Refusal;
use weir_base::clock::UnixMicros;
use weir_event::json;

/// Parameters there and properties here.
const NAMES: [(&str, &str); 3] =
    [("page_location", "$current_url"), ("page_referrer", "$referrer"), ("page_title", "title")];
/// Members of records of a row, and the properties that they become.
const RECORDS: [(&str, &str, &str); 22] = [
    ("device", "category", "$device_type"),
    ("device", "operating_system", "$os"),
    ("device", "operating_system_version", "$os_version"),
    ("device", "language", "$browser_language"),
    ("device", "mobile_brand_name", "$device_manufacturer"),
    ("device", "mobile_model_name", "$device_model"),
    ("geo", "continent", "$geoip_continent_name"),
    ("geo", "country", "$geoip_country_name"),
    ("geo", "region", "$geoip_subdivision_1_name"),
    ("geo", "city", "$geoip_city_name"),
    ("app_info", "id", "$app_namespace"),
    ("app_info", "version", "$app_version"),
    ("collected_traffic_source", "manual_source", "utm_source"),
    ("collected_traffic_source", "manual_medium", "utm_medium"),
    ("collected_traffic_source", "manual_campaign_name", "utm_campaign"),
    ("collected_traffic_source", "manual_term", "utm_term"),
    ("collected_traffic_source", "manual_content", "utm_content"),
    ("collected_traffic_source", "gclid", "gclid"),
    ("traffic_source", "source", "traffic_source"),
    ("traffic_source", "medium", "traffic_medium"),
    ("traffic_source", "name", "traffic_campaign"),
    ("privacy_info", "analytics_storage", "analytics_storage"),
];
/// Members of a row that are properties under their names.
const KEPT: [&str; 6] =
    ["event_value_in_usd", "stream_id", "platform", "ecommerce", "items", "is_active_user"];

/// Reads tables of Google Analytics.
#[derive(Debug)]
pub(super) struct Ga4 {
    options: Options,
    ids: Ids,
    identified: Seen,
    told: Latest,
}

impl Ga4 {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            options: options.clone(),
            ids: Ids::new("ga4"),
            identified: Seen::default(),
            told: Latest::default(),
        }
    }

    fn person(&mut self, row: &Object<'_>, distinct_id: &str) -> Option<String> {
        let text =
            row.get("user_properties").filter(|text| self.told.changes(distinct_id, text))?;
        let person = pairs(text);
        (!person.is_empty()).then(|| person.to_text())
    }
}

impl Source for Ga4 {
    fn wanted(&self) -> Wanted {
        JSON
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let row = members(row)?;
        let given = needed(row.text("event_name"), "event_name")?;
        let micros = row.integer("event_timestamp");
        let micros = micros.ok_or_else(|| Refusal::new("it has no event_timestamp"))?;
        let at = self.options.times.check(UnixMicros(micros))?;
        let (user, device) = (row.text("user_id"), row.text("user_pseudo_id"));
        let distinct_id = needed(user.clone().or(device.clone()), "user_id and no user_pseudo_id")?;
        let part = |key: &str| row.get(key).unwrap_or_default().trim_matches('"').to_owned();
        let uuid = self.ids.of_row(
            &[
                device.as_deref().unwrap_or_default(),
                &micros.to_string(),
                &given,
                &part("event_bundle_sequence_id"),
                &part("batch_event_index"),
                &part("batch_page_id"),
                &part("batch_ordering_id"),
            ]
            .join("\n"),
        );
        if let (Some(user), Some(device)) = (&user, &device)
            && self.identified.is_new((user, device))
        {
            out.event(&identify(&self.ids, user, device, at));
        }
        let mut properties = row.get("event_params").map(pairs).unwrap_or_default();
        properties.rename(&NAMES);
        amend(&row, device.as_deref(), &mut properties);
        let name = if given == "page_view" { Cow::Borrowed("$pageview") } else { given };
        let person = self.person(&row, &distinct_id);
        let mut event = Event::new(uuid, name, &*distinct_id, at, properties);
        event.person = person.as_deref().map(Cow::Borrowed);
        out.event(&event);
        Ok(())
    }
}

/// Adds what the row has beside the parameters.
fn amend(row: &Object<'_>, device: Option<&str>, properties: &mut Object<'_>) {
    let value = |record: &str, key: &str| {
        let record = row.object(record)?;
        Some(record.get(key).filter(|value| !value.starts_with("\"\""))?.to_owned())
    };
    for (record, key, name) in RECORDS {
        properties.put_missing(name, value(record, key).as_deref());
    }
    for key in KEPT {
        let kept = row.get(key).filter(|value| !matches!(*value, "[]" | "{}"));
        properties.put_missing(key, kept);
    }
    if let Some(web) = row.object("device").and_then(|device| {
        device.object("web_info").map(|web| {
            [
                ("browser", "$browser"),
                ("browser_version", "$browser_version"),
                ("hostname", "$host"),
            ]
            .map(|(key, name)| (name, web.get(key).map(str::to_owned)))
        })
    }) {
        for (name, value) in web {
            properties.put_missing(name, value.as_deref());
        }
    }
    if let (Some(session), Some(device)) = (properties.text("ga_session_id"), device) {
        let id = json_text::quoted(&format!("{device}.{session}"));
        drop(session);
        properties.put_missing("$session_id", Some(&id));
    }
}

/// A list of keys with values, each in the member of its type, as an object.
fn pairs(list: &str) -> Object<'static> {
    let mut found = Object::default();
    for pair in json::read::<Vec<serde_json::Value>>(list.as_bytes()).unwrap_or_default() {
        let Some(key) = pair.get("key").and_then(|key| key.as_str()) else { continue };
        let Some(value) = pair.get("value") else { continue };
        let member = |name: &str| value.get(name).filter(|value| !value.is_null());
        let text = match (member("string_value"), member("int_value")) {
            (Some(text), _) => text.to_string(),
            // As the number that it is.
            (None, Some(whole)) => match whole.as_str().map(str::trim) {
                Some(digits) if digits.parse::<i64>().is_ok() => digits.to_owned(),
                _ => whole.to_string(),
            },
            (None, None) => match member("double_value").or_else(|| member("float_value")) {
                Some(number) => number.to_string(),
                None => continue,
            },
        };
        found.put(key.to_owned(), text);
    }
    found
}
