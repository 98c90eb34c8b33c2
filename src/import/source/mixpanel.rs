//! Mixpanel: the raw export of events, and profiles as its API tells them.
//!
//! The export has events more than once; they have one `$insert_id`, from which the id is made in the namespace that
//! PostHog's importer uses as well.

use std::borrow::Cow;

use uuid::Uuid;

use crate::event::{Event, IMPORTED_PERSON};
use crate::ids::{Ids, Seen};
use crate::mapping::{JSON, Options, Output, Source, identify, members, needed};
use crate::object::Object;
use crate::read::{Row, Wanted};
use crate::refusal::Refusal;
use weir_base::clock::UnixMicros;

/// Names of properties there and here.
const NAMES: [(&str, &str); 7] = [
    ("$city", "$geoip_city_name"),
    ("$region", "$geoip_subdivision_1_name"),
    ("mp_country_code", "$geoip_country_code"),
    ("mp_lib", "$lib"),
    ("$lib_version", "$lib_version"),
    ("$screen_dpi", "$screen_dpi"),
    ("current_page_title", "title"),
];
/// Properties of its own machinery.
const REMOVED: [&str; 6] = [
    "time",
    "distinct_id",
    "$mp_api_endpoint",
    "mp_processing_time_ms",
    "$geo_source",
    "$mp_api_timestamp_ms",
];
/// Names of properties of profiles there and here.
const PROFILE_NAMES: [(&str, &str); 8] = [
    ("$email", "email"),
    ("$name", "name"),
    ("$first_name", "first_name"),
    ("$last_name", "last_name"),
    ("$phone", "phone"),
    ("$city", "$geoip_city_name"),
    ("$region", "$geoip_subdivision_1_name"),
    ("$country_code", "$geoip_country_code"),
];
/// Times above are milliseconds: as seconds they would be after the year 2286.
const SECONDS_MAX: i64 = 10_000_000_000;

/// Reads exports of Mixpanel.
#[derive(Debug)]
pub(super) struct Mixpanel {
    options: Options,
    ids: Ids,
    identified: Seen,
}

impl Mixpanel {
    pub(super) fn new(options: &Options) -> Self {
        let ids = Ids::within(Uuid::from_bytes(*b"posthog_mixpanel"));
        Self { options: options.clone(), ids, identified: Seen::default() }
    }

    fn profile(&self, row: &Object<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let distinct_id = needed(row.text("$distinct_id"), "$distinct_id")?;
        let mut person = row.object("$properties").unwrap_or_default();
        let created = person.text("$created");
        let created = created.and_then(|text| weir_event::time::parse_timestamp(&text));
        person.rename(&PROFILE_NAMES);
        let person = person.to_text();
        let id = self.ids.of_name(&format!("profile\n{distinct_id}"));
        let at = created.unwrap_or(self.options.times.now);
        let mut event = Event::new(id, IMPORTED_PERSON, &*distinct_id, at, Object::default());
        event.person = Some(Cow::Borrowed(&person));
        out.event(&event);
        Ok(())
    }

    fn time(&self, properties: &Object<'_>) -> Result<UnixMicros, Refusal> {
        let time = properties.integer("time").ok_or_else(|| Refusal::new("it has no time"))?;
        let unit = if time > SECONDS_MAX { 1_000 } else { 1_000_000 };
        self.options.times.check(UnixMicros(time.saturating_mul(unit)))
    }
}

impl Source for Mixpanel {
    fn wanted(&self) -> Wanted {
        JSON
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn is_person(&self, row: &Row<'_>) -> bool {
        members(row).is_ok_and(|row| row.has("$distinct_id") && !row.has("event"))
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let row = members(row)?;
        if row.has("$distinct_id") && !row.has("event") {
            return self.profile(&row, out);
        }
        let name = needed(row.text("event"), "event")?;
        let name = if name == "$mp_web_page_view" { Cow::Borrowed("$pageview") } else { name };
        let Some(mut properties) = row.object("properties") else {
            return Err(Refusal::new("its properties are no JSON object"));
        };
        let at = self.time(&properties)?;
        let distinct_id = needed(distinct_id(&properties), "distinct_id")?.into_owned();
        let uuid = match properties.text("$insert_id") {
            Some(id) => self.ids.of_name(&id),
            None => self.ids.of_row(&row.canonical()),
        };
        if let (Some(user), Some(device)) =
            (properties.text("$user_id"), properties.text("$device_id"))
            && self.identified.is_new((&user, &device))
        {
            let device = format!("$device:{device}");
            out.event(&identify(&self.ids, &user, &device, at));
        }
        for key in REMOVED {
            properties.take(key);
        }
        properties.rename(&NAMES);
        out.event(&Event::new(uuid, name, distinct_id, at, properties));
        Ok(())
    }
}

/// The id of the person: where the export has that of a device, the one that it was found to be, if it tells.
fn distinct_id<'p>(properties: &'p Object<'_>) -> Option<Cow<'p, str>> {
    let own = properties.text("distinct_id");
    let before = properties.text("$distinct_id_before_identity");
    let is_device = own.as_deref().is_none_or(|own| {
        let is_code = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-';
        own.starts_with("$device:") || own.chars().all(is_code)
    });
    let found = if is_device { before.or(own) } else { own };
    found.or_else(|| properties.text("$user_id")).or_else(|| {
        properties.text("$device_id").map(|device| Cow::Owned(format!("$device:{device}")))
    })
}
