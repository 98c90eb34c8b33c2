//! Plausible: rows of its table `events_v2`. Its export is sums of days, from which no events can be made.

use std::borrow::Cow;

use crate::event::Event;
use crate::ids::Ids;
use crate::json_text;
use crate::mapping::{ANY, Options, Output, Source, members, names, needed};
use crate::object::Object;
use crate::read::{Row, Wanted};
use crate::refusal::Refusal;
use weir_event::json;

/// Columns and the properties that they become.
const COLUMNS: [(&str, &str); 24] = [
    ("hostname", "$host"),
    ("pathname", "$pathname"),
    ("referrer_source", "$plausible_source"),
    ("utm_source", "utm_source"),
    ("utm_medium", "utm_medium"),
    ("utm_campaign", "utm_campaign"),
    ("utm_content", "utm_content"),
    ("utm_term", "utm_term"),
    ("country_code", "$geoip_country_code"),
    ("subdivision1_code", "$geoip_subdivision_1_code"),
    ("subdivision2_code", "$geoip_subdivision_2_code"),
    ("city_geoname_id", "$geoip_city_geoname_id"),
    ("operating_system", "$os"),
    ("operating_system_version", "$os_version"),
    ("browser", "$browser"),
    ("browser_version", "$browser_version"),
    ("screen_size", "$device_type"),
    ("session_id", "$session_id"),
    ("site_id", "$plausible_site_id"),
    ("channel", "$channel_type"),
    ("revenue_reporting_amount", "revenue"),
    ("revenue_reporting_currency", "currency"),
    ("scroll_depth", "$prev_pageview_max_scroll_percentage"),
    ("click_id_param", "$plausible_click_id_param"),
];
/// What to export instead of sums.
const INSTEAD: &str = "these are sums of days, not events, and no events can be made of them: a visitor, a time and an \
    order are missing. A self-hosted Plausible has events: export them by \"clickhouse-client --query 'SELECT * FROM \
    plausible_events_db.events_v2 FORMAT CSVWithNames' > events.csv\"";

/// Reads rows of Plausible.
#[derive(Debug)]
pub(super) struct Plausible {
    options: Options,
    ids: Ids,
}

impl Plausible {
    pub(super) fn new(options: &Options) -> Self {
        Self { options: options.clone(), ids: Ids::new("plausible") }
    }
}

impl Source for Plausible {
    fn wanted(&self) -> Wanted {
        ANY
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn objection(&self, row: &Row<'_>) -> Option<String> {
        let names = names(row);
        let has = |name: &str| names.iter().any(|known| known == name);
        (!has("timestamp") || !has("user_id")).then(|| INSTEAD.to_owned())
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let row = members(row)?;
        let given = needed(row.text("name"), "name")?;
        let at = self.options.times.read(row.text("timestamp").as_deref())?;
        let distinct_id = needed(row.text("user_id"), "user_id")?;
        let uuid = self.ids.of_row(&row.canonical());
        let mut properties = Object::default();
        for (name, value) in meta(&row) {
            properties.put_text(name, &value);
        }
        for (column, name) in COLUMNS {
            let value = row
                .text(column)
                .filter(|value| !value.trim_matches('\0').is_empty() && *value != "0");
            let value = value.map(|value| match name {
                "$browser_version" | "revenue" => json_text::typed(&value),
                _ => json_text::quoted(value.trim_matches('\0')),
            });
            properties.put_missing(name, value.as_deref());
        }
        if let (Some(host), Some(path)) = (row.text("hostname"), row.text("pathname")) {
            properties.put_text("$current_url", &format!("https://{host}{path}"));
        }
        if let Some(referrer) = row.text("referrer") {
            let is_whole = referrer.contains("://");
            let whole = if is_whole { referrer } else { Cow::Owned(format!("https://{referrer}")) };
            properties.put_text("$referrer", &whole);
            let host = whole.split('/').nth(2).unwrap_or_default().to_owned();
            properties.put_text("$referring_domain", &host);
        }
        let name = if given == "pageview" { Cow::Borrowed("$pageview") } else { given };
        out.event(&Event::new(uuid, name, &*distinct_id, at, properties));
        Ok(())
    }
}

/// The properties that a sender gave: `meta.key` and `meta.value` are lists of texts, as ClickHouse writes them.
fn meta(row: &Object<'_>) -> Vec<(String, String)> {
    let list = |name: &str| -> Vec<String> {
        let Some(value) = row.get(name) else { return Vec::new() };
        if value.starts_with('[') {
            return json::read(value.as_bytes()).unwrap_or_default();
        }
        json_text::string(value).map(|text| quoted_list(&text)).unwrap_or_default()
    };
    list("meta.key").into_iter().zip(list("meta.value")).collect()
}

/// A list as in `['a','it\'s']`.
fn quoted_list(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = text.trim().trim_start_matches('[').chars();
    while let Some(mark @ ('\'' | '"')) = chars.find(|c| matches!(c, '\'' | '"')) {
        let mut item = String::new();
        while let Some(c) = chars.next() {
            match c {
                '\\' => item.extend(chars.next()),
                c if c == mark => break,
                c => item.push(c),
            }
        }
        found.push(item);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::quoted_list;

    #[test]
    fn lists_are_read_as_clickhouse_writes_them() {
        assert_eq!(quoted_list(r"['a','it\'s, ok','']"), ["a", "it's, ok", ""]);
        assert_eq!(quoted_list("[]"), Vec::<String>::new());
        assert_eq!(quoted_list("['a"), ["a"]);
    }
}
