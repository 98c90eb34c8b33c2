//! Amplitude: the archives of its export API, JSON lines within gzip within zip.

use std::borrow::Cow;

use uuid::Uuid;

use crate::event::Event;
use crate::ids::{Ids, Latest, Seen};
use crate::json_text;
use crate::mapping::{JSON, Options, Output, Source, identify, members, needed};
use crate::object::Object;
use crate::read::{Row, Wanted};
use crate::refusal::Refusal;

/// Properties of events there and here. They are copied: the values stay under their names as well.
const PAGE: [(&str, &str); 9] = [
    ("[Amplitude] Page URL", "$current_url"),
    ("[Amplitude] Page Domain", "$host"),
    ("[Amplitude] Page Path", "$pathname"),
    ("[Amplitude] Page Title", "title"),
    ("[Amplitude] Viewport Height", "$viewport_height"),
    ("[Amplitude] Viewport Width", "$viewport_width"),
    ("[Amplitude] Element Text", "$el_text"),
    ("referrer", "$referrer"),
    ("referring_domain", "$referring_domain"),
];
/// Fields of the row and the properties that they become.
const FIELDS: [(&str, &str); 17] = [
    ("city", "$geoip_city_name"),
    ("region", "$geoip_subdivision_1_name"),
    ("country", "$geoip_country_name"),
    ("location_lat", "$geoip_latitude"),
    ("location_lng", "$geoip_longitude"),
    ("ip_address", "$ip"),
    ("device_id", "$device_id"),
    ("device_brand", "$device_brand"),
    ("device_manufacturer", "$device_manufacturer"),
    ("device_model", "$device_model"),
    ("device_family", "$device"),
    ("device_carrier", "$device_carrier"),
    ("language", "$browser_language"),
    ("library", "$lib"),
    ("version_name", "$app_version"),
    ("platform", "$amplitude_platform"),
    ("amplitude_id", "$amplitude_id"),
];

/// Reads exports of Amplitude.
#[derive(Debug)]
pub(super) struct Amplitude {
    options: Options,
    ids: Ids,
    identified: Seen,
    told: Latest,
}

impl Amplitude {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            options: options.clone(),
            ids: Ids::new("amplitude"),
            identified: Seen::default(),
            told: Latest::default(),
        }
    }

    /// What the person has, and what it had first, each told once.
    fn person(
        &mut self,
        row: &Object<'_>,
        id: &str,
        properties: &mut Object<'_>,
    ) -> Option<String> {
        let text = row.get("user_properties").filter(|text| self.told.changes(id, text))?;
        let given = Object::read(text).ok()?;
        let (mut person, mut once) = (Object::default(), Object::default());
        for (key, value) in
            given.iter().filter(|(_, value)| !matches!(*value, "\"EMPTY\"" | "null"))
        {
            match key.strip_prefix("initial_") {
                Some(name) => once.put(format!("$initial_{name}"), value),
                None => person.put(key, value),
            }
        }
        if !once.is_empty() {
            properties.put("$set_once", once.to_text());
        }
        (!person.is_empty()).then(|| person.to_text())
    }
}

impl Source for Amplitude {
    fn wanted(&self) -> Wanted {
        JSON
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let row = members(row)?;
        if row.has("merged_amplitude_id") && !row.has("event_type") {
            out.skip("merged users, whose ids only Amplitude knows");
            return Ok(());
        }
        let kind = needed(row.text("event_type"), "event_type")?;
        let name = match &*kind {
            "session_start" | "session_end" if !self.options.keep_sessions => {
                out.skip("session_start and session_end; --keep-sessions imports them");
                return Ok(());
            }
            "[Amplitude] Page Viewed" => Cow::Borrowed("$pageview"),
            "[Amplitude] Element Clicked" | "[Amplitude] Element Changed" => {
                Cow::Borrowed("$autocapture")
            }
            _ => Cow::Borrowed(&*kind),
        };
        let time = row.first_text(&["event_time", "client_event_time", "server_received_time"]);
        let at = self.options.times.read(time.as_deref())?;
        let (user, device) = (row.text("user_id"), row.text("device_id"));
        let distinct_id = needed(user.clone().or(device.clone()), "user_id and no device_id")?;
        let uuid = match (row.text("uuid"), row.text("$insert_id")) {
            (Some(uuid), _) => self.ids.of_id(&uuid),
            (None, Some(id)) => self.ids.of_name(&id),
            (None, None) => self.ids.of_row(&row.canonical()),
        };
        if let (Some(user), Some(device)) = (&user, &device)
            && self.identified.is_new((user, device))
        {
            out.event(&identify(&self.ids, user, device, at));
        }
        let mut properties = properties(&row, device.as_deref())?;
        if name == "$autocapture" {
            let kind = if kind.ends_with("Changed") { "change" } else { "click" };
            properties.put_text("$event_type", kind);
        }
        let person = self.person(&row, &distinct_id, &mut properties);
        let mut event = Event::new(uuid, name, &*distinct_id, at, properties);
        let received = row.text("server_received_time");
        event.created_at = received.and_then(|text| weir_event::time::parse_timestamp(&text));
        event.person = person.as_deref().map(Cow::Borrowed);
        out.event(&event);
        Ok(())
    }
}

fn properties<'r>(row: &'r Object<'_>, device: Option<&str>) -> Result<Object<'r>, Refusal> {
    let mut properties = match row.get("event_properties") {
        None => Object::default(),
        Some(text) => Object::read(text)
            .map_err(|_| Refusal::new("its event_properties are no JSON object"))?,
    };
    let own = properties.clone();
    for (key, name) in PAGE {
        properties.put_missing(name, own.get(key));
    }
    for (key, name) in FIELDS {
        properties.put_missing(name, row.get(key).filter(|value| !value.starts_with("\"\"")));
    }
    let is_web = row.text("platform").as_deref() == Some("Web");
    let (system, version) =
        if is_web { ("$browser", "$browser_version") } else { ("$os", "$os_version") };
    properties.put_missing(system, row.get("os_name"));
    let number = row.text("os_version").filter(|text| is_web && text.parse::<f64>().is_ok());
    let number = number.as_deref().map(json_text::typed);
    properties.put_missing(version, number.as_deref().or(row.get("os_version")));
    if is_web {
        properties.put_missing("$os", row.get("device_type"));
    }
    let kind = match row.text("device_type").as_deref() {
        Some("Windows" | "Linux" | "Mac" | "Mac OS X") => Some("\"Desktop\""),
        Some("iOS" | "Android" | "Apple iPhone") => Some("\"Mobile\""),
        _ => None,
    };
    properties.put_missing("$device_type", kind);
    if let Some(started) = row.integer("session_id").filter(|started| *started > 0) {
        properties.put_text("$session_id", &session_id(device.unwrap_or_default(), started));
    }
    groups(row, &mut properties);
    Ok(properties)
}

/// `$groups`, of which an event here has one of each type.
fn groups<'r>(row: &'r Object<'_>, properties: &mut Object<'r>) {
    let mut found = Object::default();
    for (kind, key) in row.object("groups").iter().flat_map(Object::iter) {
        let list = weir_event::json::read::<Vec<serde_json::Value>>(key.as_bytes()).ok();
        let first = list.as_ref().map(|list| list.first().map(ToString::to_string));
        if let Some(key) = first.unwrap_or_else(|| Some(key.to_owned())) {
            found.put(kind.to_owned(), key);
        }
    }
    if !found.is_empty() {
        properties.put("$groups", found.to_text());
    }
    let of_groups = row.get("group_properties").filter(|text| *text != "{}");
    properties.put_missing("group_properties", of_groups);
}

/// A session id in the form of SDKs: of the time at which the session began, and of the device.
fn session_id(device: &str, started_millis: i64) -> String {
    let hash = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{device}\n{started_millis}").as_bytes());
    let mut random = [0; 10];
    random.iter_mut().zip(hash.as_bytes()).for_each(|(to, from)| *to = *from);
    let millis = u64::try_from(started_millis).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().to_string()
}
