//! Promoted properties: what they mean. Their types are those of the schema.

use std::borrow::Cow;

use crate::dictionary::column::{Availability, Column, Kind};

/// Key, meaning, unit, example.
type Property = (&'static str, &'static str, Option<&'static str>, &'static str);

#[rustfmt::skip]
const KNOWN: [Property; 58] = [
    ("$current_url", "address of the page", Some("URL"), "https://example.com/pricing?ref=a"),
    ("$pathname", "path of the page", None, "/pricing"),
    ("$host", "host of the page", None, "example.com"),
    ("$referrer", "address of the page before, or `$direct`", Some("URL"), "https://news.example.org/"),
    ("$referring_domain", "host of the page before, or `$direct`", None, "news.example.org"),
    ("$search_engine", "search engine that the visit came from", None, "google"),
    ("$screen_name", "name of the screen of an app", None, "Settings"),
    ("$event_type", "kind of interaction of an automatically captured event", None, "click"),
    ("$title", "title of the page", None, "Pricing"),
    ("title", "title of the page, as posthog-js sends it", None, "Pricing"),
    ("$browser", "name of the browser", None, "Firefox"),
    ("$browser_version", "version of the browser", None, "144.0"),
    ("$browser_language", "language of the browser", Some("BCP 47"), "de-AT"),
    ("$browser_language_prefix", "language of the browser without its region", Some("ISO 639"), "de"),
    ("$raw_user_agent", "user agent as it was sent", None, "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) ..."),
    ("$os", "operating system", None, "Linux"),
    ("$os_name", "operating system, as SDKs of apps send it", None, "iOS"),
    ("$os_version", "version of the operating system", None, "26.1"),
    ("$device", "model or kind of the device", None, "iPhone"),
    ("$device_type", "Desktop, Mobile, Tablet or another kind", None, "Mobile"),
    ("$device_id", "id that the SDK gave the device", Some("UUID"), "0197f9a2-3333-7c1e-b0d6-2f0f4b0f9f11"),
    ("$screen_width", "width of the screen", Some("pixels"), "1920"),
    ("$screen_height", "height of the screen", Some("pixels"), "1080"),
    ("$viewport_width", "width of the window's content", Some("pixels"), "1280"),
    ("$viewport_height", "height of the window's content", Some("pixels"), "720"),
    ("$timezone", "time zone of the device", Some("IANA name"), "Europe/Vienna"),
    ("$lib", "SDK that sent the event", None, "web"),
    ("$lib_version", "version of the SDK", None, "1.290.0"),
    ("$app_name", "name of the app", None, "Shop"),
    ("$app_namespace", "package name or bundle id of the app", None, "com.example.shop"),
    ("$app_version", "version of the app", None, "4.2.0"),
    ("$app_build", "build of the app, also where it was sent as a number", None, "1042"),
    ("$is_identified", "whether the person was identified when the event was sent", None, "true"),
    ("$is_server", "whether a server sent the event", None, "true"),
    ("$process_person_profile", "false if the event is not to create a person", None, "false"),
    ("$prev_pageview_pathname", "path of the page before in this visit", None, "/"),
    ("$prev_pageview_duration", "time on the page before", Some("seconds"), "12.5"),
    ("$feature_flag", "key of the flag that was evaluated", None, "new-checkout"),
    ("$feature_flag_response", "value of the flag: `true`, `false` or the key of a variant", None, "control"),
    ("$exception_type", "type of an exception", None, "TypeError"),
    ("$exception_message", "message of an exception", None, "x is undefined"),
    ("$geoip_city_name", "city of the address", None, "Vienna"),
    ("$geoip_country_name", "country of the address", None, "Austria"),
    ("$geoip_country_code", "country of the address", Some("ISO 3166-1, two letters"), "AT"),
    ("$geoip_continent_code", "continent of the address", Some("two letters"), "EU"),
    ("$geoip_subdivision_1_name", "largest subdivision of the country, such as a state", None, "Vienna"),
    ("$geoip_time_zone", "time zone of the address", Some("IANA name"), "Europe/Vienna"),
    ("utm_source", "campaign parameter `utm_source` of the page", None, "newsletter"),
    ("utm_medium", "campaign parameter `utm_medium` of the page", None, "email"),
    ("utm_campaign", "campaign parameter `utm_campaign` of the page", None, "spring"),
    ("utm_content", "campaign parameter `utm_content` of the page", None, "header"),
    ("utm_term", "campaign parameter `utm_term` of the page", None, "analytics"),
    ("gclid", "click id of Google Ads", None, "Cj0KCQiA"),
    ("fbclid", "click id of Facebook", None, "IwAR0"),
    ("msclkid", "click id of Microsoft Advertising", None, "9f1c"),
    ("price", "price, in the currency of `currency`", None, "19.9"),
    ("revenue", "revenue, in the currency of `currency`", None, "42"),
    ("currency", "currency of the amounts", Some("ISO 4217"), "EUR"),
];

/// The column of a promoted property.
pub(super) fn described(name: String, key: &str, kind: Kind) -> Column {
    let known = KNOWN.iter().find(|(own, ..)| *own == key);
    let (meaning, unit, example) = match known {
        Some((own, meaning, unit, example)) => {
            (format!("property `{own}`: {meaning}"), *unit, *example)
        }
        None => (format!("property `{key}`"), None, ""),
    };
    Column {
        name: Cow::Owned(name),
        kind,
        is_nullable: true,
        meaning: Cow::Owned(meaning),
        unit,
        example: Cow::Borrowed(example),
        since: 1,
        place: Availability::Both,
    }
}

/// The column of a promoted property, from the name of the column. Properties that no list describes have their key as
/// meaning. `None` for a column of another kind.
pub fn of_property(column: &str) -> Option<Column> {
    let key = property_key(column)?;
    Some(described(column.to_owned(), &key, Kind::Text))
}

/// The key of the property with a column of this name; the inverse of
/// [`promoted_column_name`](crate::schema::promoted_column_name).
pub fn property_key(column: &str) -> Option<String> {
    let name = column.strip_prefix("p_")?;
    let mut parts = name.split('%');
    let mut key = parts.next()?.to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|code| u8::from_str_radix(code, 16).ok())?;
        key.push(char::from(code));
        key.push_str(part.get(2..)?);
    }
    Some(key)
}

/// The keys with a description.
#[cfg(test)]
pub(super) fn known() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|(key, ..)| *key)
}
