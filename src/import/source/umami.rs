//! Umami: rows of its table `website_event`, joined with those of `session`, as CSV or JSON. The files that its button
//! exports are sums.

use std::borrow::Cow;

use crate::event::Event;
use crate::ids::Ids;
use crate::json_text;
use crate::mapping::{ANY, Options, Output, Source, members, names, needed, object_text};
use crate::object::Object;
use crate::read::{Row, Wanted};
use crate::refusal::Refusal;

/// Columns and the properties that they become.
const COLUMNS: [(&str, &str); 26] = [
    ("hostname", "$host"),
    ("os", "$os"),
    ("language", "$browser_language"),
    ("country", "$geoip_country_code"),
    ("region", "$geoip_subdivision_1_code"),
    ("subdivision1", "$geoip_subdivision_1_code"),
    ("city", "$geoip_city_name"),
    ("url_path", "$pathname"),
    ("utm_source", "utm_source"),
    ("utm_medium", "utm_medium"),
    ("utm_campaign", "utm_campaign"),
    ("utm_content", "utm_content"),
    ("utm_term", "utm_term"),
    ("referrer_domain", "$referring_domain"),
    ("page_title", "title"),
    ("gclid", "gclid"),
    ("fbclid", "fbclid"),
    ("msclkid", "msclkid"),
    ("ttclid", "ttclid"),
    ("li_fat_id", "li_fat_id"),
    ("twclid", "twclid"),
    ("tag", "tag"),
    ("visit_id", "$session_id"),
    ("session_id", "$umami_session_id"),
    ("website_id", "$umami_website_id"),
    ("device", "$device_type"),
];
/// Browsers there and here.
const BROWSERS: [(&str, &str); 15] = [
    ("chrome", "Chrome"),
    ("crios", "Chrome iOS"),
    ("chromium-webview", "Chrome"),
    ("firefox", "Firefox"),
    ("fxios", "Firefox iOS"),
    ("safari", "Safari"),
    ("ios", "Mobile Safari"),
    ("ios-webview", "Mobile Safari"),
    ("edge", "Microsoft Edge"),
    ("edge-chromium", "Microsoft Edge"),
    ("edge-ios", "Microsoft Edge"),
    ("opera", "Opera"),
    ("samsung", "Samsung Internet"),
    ("android", "Android Mobile"),
    ("ie", "Internet Explorer"),
];
/// What to export instead of sums.
const INSTEAD: &str = "these are sums, not events: Umami's own export has none. Export the rows of website_event joined \
    with session from its database, as in \"\\copy (SELECT e.*, s.browser, s.os, s.device, s.screen, s.language, \
    s.country, s.region, s.city, s.distinct_id FROM website_event e JOIN session s USING (session_id)) TO 'events.csv' \
    CSV HEADER\"";

/// Reads rows of Umami.
#[derive(Debug)]
pub(super) struct Umami {
    options: Options,
    ids: Ids,
}

impl Umami {
    pub(super) fn new(options: &Options) -> Self {
        Self { options: options.clone(), ids: Ids::new("umami") }
    }
}

impl Source for Umami {
    fn wanted(&self) -> Wanted {
        ANY
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn objection(&self, row: &Row<'_>) -> Option<String> {
        let names = names(row);
        let has = |name: &str| names.iter().any(|known| known == name);
        let is_sum = !has("session_id") && !has("event_id") && !has("created_at");
        is_sum.then(|| INSTEAD.to_owned())
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let row = members(row)?;
        let at = self.options.times.read(row.text("created_at").as_deref())?;
        let distinct_id = needed(row.first_text(&["distinct_id", "session_id"]), "session_id")?;
        let name = match row.text("event_type").as_deref() {
            Some("2") => needed(row.text("event_name"), "event_name")?,
            Some("1") | None => match row.text("event_name") {
                Some(name) if row.text("event_type").is_none() => name,
                _ => Cow::Borrowed("$pageview"),
            },
            Some(other) => {
                return Err(Refusal::new(format!("its event_type {other:.20} is not known")));
            }
        };
        let uuid = match row.text("event_id") {
            Some(id) => self.ids.of_id(&id),
            None => self.ids.of_row(&row.canonical()),
        };
        let mut properties = match row.get("event_data").and_then(object_text) {
            Some(text) => Object::read(&text).map(|own| {
                let mut object = Object::default();
                own.iter().for_each(|(key, value)| object.put(key.to_owned(), value.to_owned()));
                object
            }),
            None => Ok(Object::default()),
        }
        .unwrap_or_default();
        for (column, name) in COLUMNS {
            properties.put_missing(name, row.get(column));
        }
        if let Some(browser) = row.text("browser") {
            let known = BROWSERS.iter().find(|(name, _)| *name == browser);
            properties.put_text("$browser", known.map_or(&*browser, |(_, name)| name));
        }
        screen(&row, &mut properties);
        pages(&row, &mut properties);
        out.event(&Event::new(uuid, name, &*distinct_id, at, properties));
        Ok(())
    }
}

fn screen(row: &Object<'_>, properties: &mut Object<'_>) {
    let size = row.text("screen");
    if let Some((width, height)) = size.as_deref().and_then(|size| size.split_once('x')) {
        for (name, text) in [("$screen_width", width), ("$screen_height", height)] {
            if text.parse::<u32>().is_ok() {
                properties.put(name, text.to_owned());
            }
        }
    }
}

/// The addresses of the page and of the one before, which the table has in parts.
fn pages(row: &Object<'_>, properties: &mut Object<'_>) {
    let address =
        |host: Option<Cow<'_, str>>, path: Option<Cow<'_, str>>, query: Option<Cow<'_, str>>| {
            let host = host?;
            let path = path.unwrap_or(Cow::Borrowed("/"));
            let query = query
                .map_or_else(String::new, |query| format!("?{}", query.trim_start_matches('?')));
            Some(json_text::quoted(&format!("https://{host}{path}{query}")))
        };
    let own = address(row.text("hostname"), row.text("url_path"), row.text("url_query"));
    properties.put_missing("$current_url", own.as_deref());
    let before =
        address(row.text("referrer_domain"), row.text("referrer_path"), row.text("referrer_query"));
    properties.put_missing("$referrer", before.as_deref());
}
