//! Vocabulary of events: devices, pages, referrers, clicked elements, product events. Rendered to
//! JSON text once per stream; immutable.
//!
//! A fragment is a run of members of a JSON object, each followed by a comma:
//! `"$host":"example.com","$pathname":"/",`.

use crate::synth::random::Random;
use crate::synth::text;

/// A browser with its market share; user agents are those of real releases, with the version
/// between the two parts.
struct Platform {
    os: &'static str,
    os_version: &'static str,
    device_type: &'static str,
    browser: &'static str,
    agent: [&'static str; 2],
    version_first: u64,
    screens: &'static [(u64, u64)],
}

const DESKTOP: &[(u64, u64)] =
    &[(1920, 1080), (2560, 1440), (1536, 864), (1440, 900), (1366, 768), (3840, 2160)];
const MOBILE: &[(u64, u64)] = &[(390, 844), (393, 873), (412, 915), (360, 800), (430, 932)];

const PLATFORMS: &[Platform] = &[
    Platform {
        os: "Windows",
        os_version: "10.0",
        device_type: "Desktop",
        browser: "Chrome",
        agent: [
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/",
            ".0.0.0 Safari/537.36",
        ],
        version_first: 139,
        screens: DESKTOP,
    },
    Platform {
        os: "Mac OS X",
        os_version: "10.15.7",
        device_type: "Desktop",
        browser: "Chrome",
        agent: [
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/",
            ".0.0.0 Safari/537.36",
        ],
        version_first: 139,
        screens: DESKTOP,
    },
    Platform {
        os: "Mac OS X",
        os_version: "10.15.7",
        device_type: "Desktop",
        browser: "Safari",
        agent: [
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/",
            ".1 Safari/605.1.15",
        ],
        version_first: 17,
        screens: DESKTOP,
    },
    Platform {
        os: "Linux",
        os_version: "",
        device_type: "Desktop",
        browser: "Firefox",
        agent: ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/", ".0"],
        version_first: 140,
        screens: DESKTOP,
    },
    Platform {
        os: "iOS",
        os_version: "18.5.0",
        device_type: "Mobile",
        browser: "Mobile Safari",
        agent: [
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/",
            ".5 Mobile/15E148 Safari/604.1",
        ],
        version_first: 16,
        screens: MOBILE,
    },
    Platform {
        os: "Android",
        os_version: "10",
        device_type: "Mobile",
        browser: "Chrome",
        agent: [
            "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/",
            ".0.0.0 Mobile Safari/537.36",
        ],
        version_first: 139,
        screens: MOBILE,
    },
];

const ZONES: &[&str] = &[
    "America/New_York",
    "Europe/London",
    "Europe/Berlin",
    "Europe/Paris",
    "Asia/Tokyo",
    "Asia/Kolkata",
    "America/Sao_Paulo",
];

const REFERRERS: &[&str] = &[
    r#""$referrer":"$direct","$referring_domain":"$direct","#,
    r#""$referrer":"https://www.google.com/","$referring_domain":"www.google.com","#,
    r#""$referrer":"https://duckduckgo.com/","$referring_domain":"duckduckgo.com","#,
    r#""$referrer":"https://news.ycombinator.com/","$referring_domain":"news.ycombinator.com","#,
    r#""$referrer":"https://t.co/7vLz1Qd0aB","$referring_domain":"t.co","#,
];

/// posthog-js sends null for campaign parameters that the address does not have.
const CAMPAIGNS: &[&str] = &[
    r#""utm_source":null,"utm_medium":null,"utm_campaign":null,"gclid":null,"#,
    r#""utm_source":"google","utm_medium":"cpc","utm_campaign":"brand_2026","gclid":"Cj0KCQiA6vaqBhCbARIsACF9M6k","#,
    r#""utm_source":"newsletter","utm_medium":"email","utm_campaign":"product-update-42","gclid":null,"#,
];

/// Section of the site, and its title as a raw JSON string. Like real titles, some are not ASCII,
/// and one contains escapes.
const SECTIONS: &[(&str, &str)] = &[
    ("dashboard", "Dashboard"),
    ("projects", "Projekte – Übersicht"),
    ("settings/billing", "Billing & plans"),
    ("docs", r#"Docs: \"Getting started\""#),
    ("blog", "ブログ"),
    ("reports", "Reports \\u2022 Example"),
    ("users", "Users 👥"),
    ("pricing", "Pricing"),
];

/// Targets of a click: tag, classes, text of the element.
const TARGETS: &[(&str, &str, &str)] = &[
    ("button", "btn btn-primary", "Save changes"),
    ("button", "LemonButton LemonButton--secondary", "Cancel"),
    ("a", "nav-link", "Pricing"),
    ("a", "card__link text-muted", "Mehr erfahren →"),
    ("input", "form-control", ""),
    ("button", "icon-button", "Add to cart"),
];

/// Generator of one value of a product property.
pub(super) enum Value {
    /// One of these JSON texts.
    Choice(&'static [&'static str]),
    /// An integer from 0 to this.
    Integer(u64),
    /// A number with two decimals, less than this.
    Price(u64),
    /// A string: this prefix and a number.
    Id(&'static str),
}

/// A product event: its name, and its properties by key.
pub(super) type Product = (&'static str, &'static [(&'static str, Value)]);

const CURRENCY: Value = Value::Choice(&[r#""EUR""#, r#""USD""#, r#""GBP""#]);
const YES_OR_NO: Value = Value::Choice(&["true", "false"]);
const PLAN: Value = Value::Choice(&[r#""free""#, r#""team""#, r#""enterprise""#]);

/// Twelve names, as many as a small product has.
pub(super) const PRODUCTS: &[Product] = &[
    (
        "product viewed",
        &[
            ("product_id", Value::Id("sku_")),
            ("category", Value::Choice(&[r#""shoes""#, r#""books""#, r#""outdoor""#])),
            ("price", Value::Price(300)),
            ("currency", CURRENCY),
            ("in_stock", YES_OR_NO),
        ],
    ),
    (
        "product added",
        &[
            ("product_id", Value::Id("sku_")),
            ("quantity", Value::Integer(5)),
            ("price", Value::Price(300)),
            ("currency", CURRENCY),
            ("from_wishlist", YES_OR_NO),
        ],
    ),
    (
        "checkout started",
        &[
            ("cart_id", Value::Id("cart_")),
            ("items", Value::Integer(12)),
            ("total", Value::Price(900)),
            ("currency", CURRENCY),
            ("coupon", Value::Choice(&["null", r#""WELCOME10""#])),
        ],
    ),
    (
        "order completed",
        &[
            ("order_id", Value::Id("ord_")),
            ("revenue", Value::Price(900)),
            ("tax", Value::Price(90)),
            ("currency", CURRENCY),
            ("payment", Value::Choice(&[r#"{"type":"card","stored":true}"#, r#"{"type":"sepa"}"#])),
        ],
    ),
    (
        "search performed",
        &[
            ("query", Value::Choice(&[r#""running shoes""#, r#""größe 43""#, r#""say \"hi\"\n""#])),
            ("results", Value::Integer(250)),
            ("filters", Value::Choice(&["[]", r#"["size","color"]"#, r#"["brand"]"#])),
            ("page", Value::Integer(9)),
            ("duration_ms", Value::Integer(1_500)),
        ],
    ),
    (
        "signup completed",
        &[
            ("method", Value::Choice(&[r#""google""#, r#""email""#, r#""saml""#])),
            ("plan", PLAN),
            ("team_size", Value::Integer(200)),
            ("newsletter", YES_OR_NO),
            ("invite_code", Value::Choice(&["null", r#""FRIEND""#])),
        ],
    ),
    (
        "plan upgraded",
        &[
            ("plan", PLAN),
            ("previous_plan", PLAN),
            ("seats", Value::Integer(150)),
            ("monthly_price", Value::Price(500)),
            ("annual", YES_OR_NO),
        ],
    ),
    (
        "report exported",
        &[
            ("report_id", Value::Id("rep_")),
            ("format", Value::Choice(&[r#""csv""#, r#""pdf""#, r#""xlsx""#])),
            ("rows", Value::Integer(100_000)),
            ("duration_ms", Value::Integer(20_000)),
            ("scheduled", YES_OR_NO),
        ],
    ),
    (
        "file uploaded",
        &[
            ("file_id", Value::Id("file_")),
            ("size_bytes", Value::Integer(50_000_000)),
            ("mime_type", Value::Choice(&[r#""image/png""#, r#""application/pdf""#])),
            ("folder", Value::Choice(&[r#""/""#, r#""C:\\Users\\me""#, "null"])),
            ("public", YES_OR_NO),
        ],
    ),
    (
        "message sent",
        &[
            ("channel_id", Value::Id("chan_")),
            ("length", Value::Integer(2_000)),
            ("attachments", Value::Integer(4)),
            ("mentions", Value::Choice(&["[]", r#"["user_17"]"#])),
            ("thread", YES_OR_NO),
        ],
    ),
    (
        "video played",
        &[
            ("video_id", Value::Id("vid_")),
            ("position_seconds", Value::Price(3_600)),
            ("quality", Value::Choice(&[r#""1080p""#, r#""720p""#, r#""auto""#])),
            ("muted", YES_OR_NO),
            ("playlist", Value::Choice(&["null", r#""onboarding""#])),
        ],
    ),
    (
        "api_request",
        &[
            ("endpoint", Value::Choice(&[r#""/v1/query""#, r#""/v1/items""#])),
            ("status", Value::Choice(&["200", "201", "404", "500"])),
            ("duration_ms", Value::Price(2_000)),
            ("cached", YES_OR_NO),
            ("api_key_id", Value::Id("key_")),
        ],
    ),
];

/// One page of the site. As with posthog-js, only a page view has its title.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) address: Vec<u8>,
    pub(super) title: Vec<u8>,
}

/// The rendered fragments that a stream picks from.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) devices: Vec<Vec<u8>>,
    pub(super) pages: Vec<Page>,
    pub(super) clicks: Vec<Vec<u8>>,
}

/// Distinct devices, pages and clicked elements: enough that columns are not constant, few enough
/// that dictionaries work, as on real sites.
const DEVICES: u64 = 256;
const PAGES: u64 = 400;
const CLICKS: u64 = 96;

impl Vocabulary {
    pub(super) fn new(random: &mut Random) -> Self {
        Self {
            devices: (0..DEVICES).filter_map(|_| device(random)).collect(),
            pages: (0..PAGES).filter_map(|serial| page(random, serial)).collect(),
            clicks: (0..CLICKS).filter_map(|serial| click(random, serial)).collect(),
        }
    }
}

pub(super) fn referrer(random: &mut Random) -> &'static str {
    random.pick(REFERRERS).copied().unwrap_or_default()
}

pub(super) fn campaign(random: &mut Random) -> &'static str {
    random.pick(CAMPAIGNS).copied().unwrap_or_default()
}

/// Writes the members of `properties`, each followed by a comma.
pub(super) fn product(
    out: &mut Vec<u8>,
    random: &mut Random,
    properties: &'static [(&'static str, Value)],
) {
    for (key, value) in properties {
        text::raw(out, "\"");
        text::raw(out, key);
        text::raw(out, "\":");
        match value {
            Value::Choice(texts) => {
                text::raw(out, random.pick(texts).copied().unwrap_or("null"));
            }
            Value::Integer(most) => text::number(out, random.below(most + 1)),
            Value::Price(limit) => {
                text::number(out, random.below(*limit));
                text::raw(out, ".");
                text::padded(out, random.below(100), 2);
            }
            Value::Id(prefix) => {
                text::raw(out, "\"");
                text::raw(out, prefix);
                text::padded(out, random.below(100_000_000), 8);
                text::raw(out, "\"");
            }
        }
        text::raw(out, ",");
    }
}

fn device(random: &mut Random) -> Option<Vec<u8>> {
    let platform = random.pick(PLATFORMS)?;
    let (width, height) = *random.pick(platform.screens)?;
    let zone = random.pick(ZONES)?;
    let version = platform.version_first + random.below(6);
    let [before, after] = platform.agent;
    let Platform { os, os_version, device_type, browser, .. } = platform;
    let (inner_width, inner_height) = (width - random.below(40), height - 80 - random.below(60));
    let fragment = format!(
        r#""$os":"{os}","$os_version":"{os_version}","$browser":"{browser}","$browser_version":{version},"$device_type":"{device_type}","$timezone":"{zone}","$raw_user_agent":"{before}{version}{after}","$screen_width":{width},"$screen_height":{height},"$viewport_width":{inner_width},"$viewport_height":{inner_height},"#
    );
    Some(fragment.into_bytes())
}

fn page(random: &mut Random, serial: u64) -> Option<Page> {
    let (section, title) = random.pick(SECTIONS)?;
    let address = format!(
        r#""$current_url":"https://example.com/{section}/{serial}","$host":"example.com","$pathname":"/{section}/{serial}","#
    );
    let title = format!(r#""title":"{title}","#);
    Some(Page { address: address.into_bytes(), title: title.into_bytes() })
}

/// The members of a click. The chain has the format of posthog-js with `elementsChainAsString`:
/// the clicked element first, then its ancestors, separated by `;`, attributes in order of their
/// names.
fn click(random: &mut Random, serial: u64) -> Option<Vec<u8>> {
    let (tag, classes, label) = random.pick(TARGETS)?;
    let dotted = classes.replace(' ', ".");
    let nth = 1 + random.below(9);
    let mut chain = format!(
        r#"{tag}.{dotted}:attr__class="{classes}"attr__data-attr="action-{serial}"nth-child="{nth}"nth-of-type="1"text="{label}""#
    );
    if random.percent(50) {
        let nth = 1 + random.below(4);
        chain.push_str(&format!(r#";div.row:attr__class="row"nth-child="{nth}"nth-of-type="1""#));
    }
    chain.push_str(r#";body:nth-child="2""#);
    let (chain, label) = (text::quoted(&chain), text::quoted(label));
    let fragment = format!(
        r#""$event_type":"click","$ce_version":1,"$elements_chain":{chain},"$el_text":{label},"#
    );
    Some(fragment.into_bytes())
}
