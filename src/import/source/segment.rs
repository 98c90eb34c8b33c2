//! Segment and RudderStack: whole calls, as their buckets have them.

use std::borrow::Cow;

use crate::event::Event;
use crate::ids::{Ids, Seen};
use crate::mapping::{JSON, Options, Output, Source, identify, members, needed};
use crate::object::Object;
use crate::read::{Row, Wanted};
use crate::refusal::Refusal;
use weir_base::clock::UnixMicros;

/// Members of `context`, by their paths, and the properties that they become.
const CONTEXT: [(&str, &str, &str); 25] = [
    ("page", "url", "$current_url"),
    ("page", "path", "$pathname"),
    ("page", "referrer", "$referrer"),
    ("page", "title", "title"),
    ("campaign", "name", "utm_campaign"),
    ("campaign", "source", "utm_source"),
    ("campaign", "medium", "utm_medium"),
    ("campaign", "term", "utm_term"),
    ("campaign", "content", "utm_content"),
    ("library", "name", "$lib"),
    ("library", "version", "$lib_version"),
    ("os", "name", "$os"),
    ("os", "version", "$os_version"),
    ("device", "id", "$device_id"),
    ("device", "model", "$device_model"),
    ("device", "manufacturer", "$device_manufacturer"),
    ("device", "name", "$device_name"),
    ("device", "type", "$device_type"),
    ("app", "name", "$app_name"),
    ("app", "version", "$app_version"),
    ("app", "build", "$app_build"),
    ("app", "namespace", "$app_namespace"),
    ("screen", "width", "$screen_width"),
    ("screen", "height", "$screen_height"),
    ("network", "carrier", "$network_carrier"),
];
/// Members of `context` that are values.
const CONTEXT_VALUES: [(&str, &str); 4] = [
    ("ip", "$ip"),
    ("userAgent", "$raw_user_agent"),
    ("locale", "$browser_language"),
    ("timezone", "$timezone"),
];

/// Reads calls.
#[derive(Debug)]
pub(super) struct Segment {
    options: Options,
    ids: Ids,
    identified: Seen,
}

impl Segment {
    pub(super) fn new(name: &str, options: &Options) -> Self {
        Self { options: options.clone(), ids: Ids::new(name), identified: Seen::default() }
    }

    fn identified(&mut self, row: &Object<'_>, at: UnixMicros, out: &mut dyn Output) {
        if let (Some(user), Some(device)) = (row.text("userId"), row.text("anonymousId"))
            && user != device
            && self.identified.is_new((&user, &device))
        {
            out.event(&identify(&self.ids, &user, &device, at));
        }
    }
}

impl Source for Segment {
    fn wanted(&self) -> Wanted {
        JSON
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let row = members(row)?;
        let call = needed(row.text("type"), "type")?;
        let distinct_id =
            needed(row.first_text(&["userId", "anonymousId"]), "userId and no anonymousId")?;
        let time = row.first_text(&["timestamp", "originalTimestamp", "receivedAt", "sentAt"]);
        let at = self.options.times.read(time.as_deref())?;
        let uuid = match row.text("messageId") {
            Some(id) => self.ids.of_name(&id),
            None => self.ids.of_row(&row.canonical()),
        };
        let mut properties = match row.get("properties").filter(|text| text.starts_with('{')) {
            Some(text) => Object::read(text).unwrap_or_default(),
            None => Object::default(),
        };
        let traits = row.object("traits").map(|traits| traits.to_text());
        let name = match &*call {
            "track" => needed(row.text("event"), "event")?,
            "page" | "screen" => {
                properties.put_missing("name", row.get("name"));
                if call == "screen" {
                    properties.put_missing("$screen_name", row.get("name"));
                }
                Cow::Borrowed(if call == "page" { "$pageview" } else { "$screen" })
            }
            "identify" => {
                if let Some(device) =
                    row.text("anonymousId").filter(|device| **device != *distinct_id)
                {
                    properties.put_text("$anon_distinct_id", &device);
                    self.identified.is_new((&distinct_id, &device));
                }
                properties.put("$set", traits.clone().unwrap_or_else(|| "{}".to_owned()));
                Cow::Borrowed("$identify")
            }
            "group" => {
                let key = needed(row.text("groupId"), "groupId")?;
                properties.put_text("$group_type", "group");
                properties.put_text("$group_key", &key);
                properties.put("$group_set", traits.clone().unwrap_or_else(|| "{}".to_owned()));
                Cow::Borrowed("$groupidentify")
            }
            "alias" => {
                properties.put_text("alias", &needed(row.text("previousId"), "previousId")?);
                Cow::Borrowed("$create_alias")
            }
            other => return Err(Refusal::new(format!("a call of type {other:.40} is not known"))),
        };
        context(&row, &mut properties);
        if !matches!(&*call, "identify" | "alias") {
            self.identified(&row, at, out);
        }
        let mut event = Event::new(uuid, name, &*distinct_id, at, properties);
        let received = row.text("receivedAt");
        event.created_at = received.and_then(|text| weir_event::time::parse_timestamp(&text));
        out.event(&event);
        Ok(())
    }
}

/// Adds what the call says of where it was made.
fn context<'r>(row: &'r Object<'_>, properties: &mut Object<'r>) {
    let Some(context) = row.object("context") else { return };
    let value = |group: &str, key: &str| Some(context.object(group)?.get(key)?.to_owned());
    for (group, key, name) in CONTEXT {
        properties.put_missing(name, value(group, key).as_deref());
    }
    for (key, name) in CONTEXT_VALUES {
        properties.put_missing(name, context.get(key));
    }
    let address = row.get("request_ip");
    properties.put_missing("$ip", address);
    if let Some(group) = context.text("groupId") {
        let mut groups = Object::default();
        groups.put_text("group", &group);
        properties.put_missing("$groups", Some(&groups.to_text()));
    }
    // RudderStack's numbers of sessions are not those of SDKs: they are kept under their name.
    properties.put_missing("sessionId", context.get("sessionId"));
    if let Some(url) = properties.text("$current_url") {
        let host = url
            .split_once("://")
            .map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or(rest).to_owned());
        let host = host.filter(|host| !host.is_empty()).map(|host| crate::json_text::quoted(&host));
        drop(url);
        properties.put_missing("$host", host.as_deref());
    }
}
