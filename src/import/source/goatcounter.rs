//! GoatCounter: its export as CSV, whose first column has the version in front of its name, or as JSON.

use std::borrow::Cow;

use crate::event::Event;
use crate::ids::Ids;
use crate::json_text;
use crate::mapping::{ANY, Options, Output, Source, members, needed};
use crate::object::Object;
use crate::read::{Row, Wanted};
use crate::refusal::Refusal;
use crate::source::user_agent::{browser, system};

/// Reads exports of GoatCounter.
#[derive(Debug)]
pub(super) struct Goatcounter {
    options: Options,
    ids: Ids,
}

impl Goatcounter {
    pub(super) fn new(options: &Options) -> Self {
        Self { options: options.clone(), ids: Ids::new("goatcounter") }
    }
}

impl Source for Goatcounter {
    fn wanted(&self) -> Wanted {
        ANY
    }

    fn begin_file(&mut self) {
        self.ids.begin_file();
    }

    fn row(&mut self, row: &Row<'_>, out: &mut dyn Output) -> Result<(), Refusal> {
        let row = members(row)?;
        let text = |names: &[&str]| row.first_text(names);
        let path = needed(text(&["2Path", "1Path", "Path", "path"]), "path")?;
        let at = self.options.times.read(text(&["Date", "date", "created_at"]).as_deref())?;
        if text(&["Bot", "bot"]).is_some_and(|bot| *bot != *"0" && bot.parse::<u32>().is_ok()) {
            out.skip("visits of bots");
            return Ok(());
        }
        // Without a session a visit is a visitor of its own.
        let uuid = self.ids.of_row(&row.canonical());
        let session = text(&["Session", "session"]);
        let distinct_id = session.clone().unwrap_or_else(|| Cow::Owned(uuid.to_string()));
        let is_event =
            text(&["Event", "event"]).is_some_and(|event| matches!(&*event, "true" | "1"));
        let mut properties = Object::default();
        properties.put_some("$session_id", session);
        properties.put_some("title", text(&["Title", "title"]));
        referrer(&row, &mut properties);
        let agent = text(&["UserAgent", "user_agent"]);
        let found = text(&["Browser", "browser"]);
        let found = found.as_deref().or(agent.as_deref().and_then(browser));
        versioned(found, ["$browser", "$browser_version"], &mut properties);
        let found = text(&["System", "system"]);
        let found = found.as_deref().or(agent.as_deref().and_then(system));
        versioned(found, ["$os", "$os_version"], &mut properties);
        properties.put_some("$raw_user_agent", agent);
        if let Some(place) = text(&["Location", "location"]) {
            let (country, region) = place.split_once('-').unwrap_or((&place, ""));
            properties.put_text("$geoip_country_code", country);
            properties.put_some(
                "$geoip_subdivision_1_code",
                Some(region).filter(|region| !region.is_empty()),
            );
        }
        let size = text(&["Screen size", "size"]);
        let mut sizes = size.as_deref().unwrap_or_default().split([',', 'x']);
        for name in ["$screen_width", "$screen_height"] {
            if let Some(side) =
                sizes.next().filter(|side| side.parse::<u32>().is_ok_and(|side| side > 0))
            {
                properties.put(name, side.to_owned());
            }
        }
        let name = if is_event { Cow::Borrowed(&*path) } else { Cow::Borrowed("$pageview") };
        if !is_event {
            properties.put_text("$pathname", &path);
        }
        out.event(&Event::new(uuid, name, &*distinct_id, at, properties));
        Ok(())
    }
}

/// What led to the page: an address without its scheme where `Referrer scheme` is `h`, else the name of a campaign or another
/// source.
fn referrer(row: &Object<'_>, properties: &mut Object<'_>) {
    let Some(given) = row.first_text(&["Referrer", "referrer", "ref"]) else { return };
    let scheme = row.first_text(&["Referrer scheme", "ref_scheme"]);
    if scheme.as_deref() != Some("h") {
        properties.put_text("$referrer", &given);
        properties.put_some("$goatcounter_referrer_scheme", scheme);
        return;
    }
    let address = given.split_once("://").map_or(&*given, |(_, address)| address);
    properties.put_text("$referrer", &format!("https://{address}"));
    properties.put_text("$referring_domain", address.split('/').next().unwrap_or(address));
}

/// A name and its version, as in `Safari 14.0`.
fn versioned(text: Option<&str>, names: [&'static str; 2], properties: &mut Object<'_>) {
    let Some(text) = text else { return };
    let is_version = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let (name, version) = match text.rsplit_once(' ') {
        Some((name, version)) if is_version(version) => (name, Some(version)),
        _ => (text, None),
    };
    let [of_name, of_version] = names;
    properties.put_text(of_name, name);
    if let Some(version) = version {
        // The version of a browser is a number in its column.
        let is_number = of_version == "$browser_version";
        let version =
            if is_number { json_text::typed(version) } else { json_text::quoted(version) };
        properties.put(of_version, version);
    }
}
