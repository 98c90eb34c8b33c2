//! Generator of synthetic events that look like those of SDKs: [`Stream`]. For tests, benches and `weir
//! load`.
//!
//! A seed, a time and a population determine every byte. A stream returns a record of each event
//! ([`Known`]), so that a test can compare query results with it. No I/O and no HTTP here.
//!
//! The mix: 50 % `$pageview`, 25 % `$autocapture`, 20 % product events (two fifths of them from
//! posthog-node, all others from posthog-js), 3 % `$identify`, 1 % `$set`, 1 % `$groupidentify`; 20 to 40
//! properties and about 1,100 bytes each; 48 interleaved sessions, as a proxy or a busy server would send
//! them. That is [`Choice::Zipf`]; [`Choice::Even`] is for many persons.

mod random;
mod sessions;
#[cfg(test)]
mod tests;
mod text;
mod vocabulary;

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

use crate::synth::random::Random;
use crate::synth::sessions::{Ids, Session, Setting, Standing};
use crate::synth::vocabulary::{PRODUCTS, Product, Vocabulary};
use weir_base::clock::UnixMicros;

/// Parameters of a stream, besides its seed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Project token, sent as `api_key` of a batch.
    pub token: String,
    /// Size of the population. Each person has a device id, and a user id once signed in. At least 1.
    pub persons: u64,
    /// How the person of a session is chosen.
    pub choice: Choice,
    /// Time of sending: `sent_at` of every batch, and no event is later.
    pub now: UnixMicros,
    /// Sessions begin between `now` less this and `now`.
    pub span: Duration,
}

/// How the person of a session is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Zipf: person `r` acts about `1 / (r + 1)` as often as the busiest, in sessions of up to 30 events.
    /// Like the traffic of a server.
    #[default]
    Zipf,
    /// Events of a server about its users, in sessions of up to three events. First each person in turn
    /// gets a session, which starts with `$identify`; then all persons are equally likely. About two
    /// events per new person.
    Even,
}

impl Settings {
    /// Ten thousand persons over the last 24 hours.
    pub fn new(token: &str, now: UnixMicros) -> Self {
        let span = Duration::from_secs(24 * 60 * 60);
        Self { token: token.to_owned(), persons: 10_000, choice: Choice::Zipf, now, span }
    }
}

/// Record of an event, for a test that looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Id of the event; no two events of a stream share one.
    pub uuid: Uuid,
    /// Name of the event.
    pub event: &'static str,
    /// Id under which it was sent.
    pub distinct_id: DistinctId,
    /// Time of the event, in whole milliseconds.
    pub timestamp: UnixMicros,
}

/// The id under which an event was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DistinctId {
    /// A browser without a signed-in user; the id of the device, a UUIDv7.
    Device(Uuid),
    /// A user of the product, as in `user_17`.
    User(u64),
}

impl fmt::Display for DistinctId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(id) => id.fmt(f),
            Self::User(number) => write!(f, "user_{number}"),
        }
    }
}

impl DistinctId {
    fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Device(id) => text::uuid(out, id),
            Self::User(number) => {
                text::raw(out, "user_");
                text::number(out, number);
            }
        }
    }
}

/// Some events as bytes, with the record of each event, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// JSON: one batch envelope, or one event a line.
    pub body: Vec<u8>,
    /// One entry per event.
    pub events: Vec<Known>,
}

/// An endless stream of events. The batch size does not change the events.
#[derive(Debug)]
pub struct Stream {
    setting: Setting,
    random: Random,
    ids: Ids,
    open: Vec<Session>,
    /// Sessions begun so far.
    begun: u64,
}

/// Concurrently open sessions.
const OPEN_SESSIONS: usize = 48;
/// Initial capacity for an event; the average is about 1,100 bytes.
const EVENT_BYTES: usize = 1_200;
/// Percentage of the product events that a server sends.
const FROM_SERVERS: u64 = 40;

#[derive(Clone, Copy)]
enum Kind {
    PageView,
    Click,
    Product(&'static Product),
    ServerProduct(&'static Product),
    Identify,
    ServerIdentify,
    Set,
    GroupIdentify,
}

impl Kind {
    fn of_server(random: &mut Random) -> Self {
        random.pick(PRODUCTS).map_or(Self::ServerIdentify, Self::ServerProduct)
    }

    fn draw(random: &mut Random) -> Self {
        match random.below(100) {
            0..50 => Self::PageView,
            50..75 => Self::Click,
            75..95 => match random.pick(PRODUCTS) {
                Some(product) if random.percent(FROM_SERVERS) => Self::ServerProduct(product),
                Some(product) => Self::Product(product),
                None => Self::PageView,
            },
            95..98 => Self::Identify,
            98 => Self::Set,
            _ => Self::GroupIdentify,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::PageView => "$pageview",
            Self::Click => "$autocapture",
            Self::Product((name, _)) | Self::ServerProduct((name, _)) => name,
            Self::Identify | Self::ServerIdentify => "$identify",
            Self::Set => "$set",
            Self::GroupIdentify => "$groupidentify",
        }
    }

    /// Standing that a session needs before this event if the person is anonymous.
    fn standing(self) -> Standing {
        match self {
            Self::Identify | Self::ServerIdentify => Standing::Identified,
            Self::Set | Self::GroupIdentify => Standing::Profiled,
            Self::PageView | Self::Click | Self::Product(_) | Self::ServerProduct(_) => {
                Standing::Anonymous
            }
        }
    }
}

impl Stream {
    /// The stream of `seed` and `settings`.
    pub fn new(seed: u64, settings: Settings) -> Self {
        let mut random = Random::new(seed);
        let setting = Setting {
            token: text::quoted(&settings.token),
            persons: settings.persons.max(1),
            choice: settings.choice,
            persons_salt: random.next(),
            now: UnixMicros(settings.now.0 - settings.now.0.rem_euclid(1_000)),
            span_millis: u64::try_from(settings.span.as_millis()).unwrap_or(u64::MAX),
            vocabulary: Vocabulary::new(&mut random),
        };
        let ids = Ids::new(&mut random);
        Self { setting, random, ids, open: Vec::with_capacity(OPEN_SESSIONS), begun: 0 }
    }

    /// The next `count` events as one request body:
    /// `{"api_key":"..","batch":[{..},..],"sent_at":".."}`.
    pub fn batch(&mut self, count: usize) -> Batch {
        let mut body = Vec::with_capacity(count.saturating_mul(EVENT_BYTES).saturating_add(256));
        text::raw(&mut body, r#"{"api_key":"#);
        text::raw(&mut body, &self.setting.token);
        text::raw(&mut body, r#","batch":["#);
        let mut events = Vec::with_capacity(count);
        for place in 0..count {
            if place > 0 {
                text::raw(&mut body, ",");
            }
            events.push(self.event(&mut body));
        }
        text::raw(&mut body, r#"],"sent_at":""#);
        text::iso_time(&mut body, self.setting.now);
        text::raw(&mut body, r#""}"#);
        Batch { body, events }
    }

    /// The next `count` events, one JSON object per line.
    pub fn lines(&mut self, count: usize) -> Batch {
        let mut body = Vec::with_capacity(count.saturating_mul(EVENT_BYTES));
        let mut events = Vec::with_capacity(count);
        for _ in 0..count {
            events.push(self.event(&mut body));
            text::raw(&mut body, "\n");
        }
        Batch { body, events }
    }

    /// Appends the next event to `out` as a JSON object.
    pub fn event(&mut self, out: &mut Vec<u8>) -> Known {
        let mut kind = match self.setting.choice {
            Choice::Zipf => Kind::draw(&mut self.random),
            Choice::Even => Kind::of_server(&mut self.random),
        };
        let mut session = self.session_for(kind);
        if std::mem::take(&mut session.is_first) {
            kind = Kind::ServerIdentify;
        }
        let goes_on = session.advance(self.setting.now, &mut self.random);
        session.become_at_least(kind.standing(), &self.setting);
        let known = Known {
            uuid: self.ids.next(session.at, &mut self.random),
            event: kind.name(),
            distinct_id: session.distinct_id(),
            timestamp: session.at,
        };
        self.write(out, kind, &mut session, &known);
        if goes_on {
            self.open.push(session);
        }
        known
    }

    /// Takes an open session, or begins one. `$identify` needs a session without a signed-in user.
    fn session_for(&mut self, kind: Kind) -> Session {
        let seats = u64::try_from(OPEN_SESSIONS).unwrap_or(1);
        let seat = usize::try_from(self.random.below(seats)).unwrap_or(0);
        if seat < self.open.len() {
            let session = self.open.swap_remove(seat);
            if !matches!(kind, Kind::Identify) || session.standing != Standing::Identified {
                return session;
            }
        }
        self.begun += 1;
        Session::begin(&self.setting, self.begun - 1, &mut self.random, &mut self.ids)
    }

    fn write(&mut self, out: &mut Vec<u8>, kind: Kind, session: &mut Session, known: &Known) {
        text::raw(out, r#"{"event":""#);
        text::raw(out, known.event);
        text::raw(out, r#"","uuid":""#);
        text::uuid(out, known.uuid);
        text::raw(out, r#"","timestamp":""#);
        text::iso_time(out, known.timestamp);
        text::raw(out, r#"","distinct_id":""#);
        known.distinct_id.write(out);
        text::raw(out, r#"","properties":{"#);
        if let Kind::ServerProduct((_, properties)) = kind {
            self.write_server(out, session);
            vocabulary::product(out, &mut self.random, properties);
        } else if matches!(kind, Kind::ServerIdentify) {
            self.write_server(out, session);
        } else {
            out.extend_from_slice(&session.shared);
            let pages = &self.setting.vocabulary.pages;
            let rank = self.random.rank(u64::try_from(pages.len()).unwrap_or(1));
            if let Some(page) = pages.get(usize::try_from(rank).unwrap_or(0)) {
                out.extend_from_slice(&page.address);
                if matches!(kind, Kind::PageView) {
                    out.extend_from_slice(&page.title);
                }
            }
            self.write_special(out, kind, session);
        }
        text::raw(out, r#""$insert_id":""#);
        text::letters(out, &mut self.random);
        text::raw(out, r#"","$time":"#);
        text::seconds(out, known.timestamp);
        text::raw(out, "}");
        if matches!(kind, Kind::Identify | Kind::ServerIdentify) {
            write_person(out, session.person);
        }
        text::raw(out, "}");
    }

    /// The properties of one kind of posthog-js event besides the common ones.
    fn write_special(&mut self, out: &mut Vec<u8>, kind: Kind, session: &mut Session) {
        match kind {
            Kind::PageView if session.landing => {
                session.landing = false;
                text::raw(out, vocabulary::campaign(&mut self.random));
            }
            Kind::PageView | Kind::ServerProduct(_) | Kind::ServerIdentify => {}
            Kind::Click => {
                if let Some(click) = self.random.pick(&self.setting.vocabulary.clicks) {
                    out.extend_from_slice(click);
                }
            }
            Kind::Product((_, properties)) => {
                vocabulary::product(out, &mut self.random, properties);
            }
            Kind::Identify => {
                text::raw(out, r#""$anon_distinct_id":""#);
                text::uuid(out, session.device_id);
                text::raw(out, r#"","#);
            }
            Kind::Set => {
                text::raw(out, r#""$set":{"seats":"#);
                text::number(out, self.random.below(200));
                text::raw(out, r#","trial":false,"role":"editor"},"#);
            }
            Kind::GroupIdentify => {
                let company = session.company(&self.setting);
                text::raw(out, r#""$group_type":"company","$group_key":"company_"#);
                text::number(out, company);
                text::raw(out, r#"","$group_set":{"name":"Company "#);
                text::number(out, company);
                text::raw(out, r#"","employees":"#);
                text::number(out, self.random.below(5_000));
                text::raw(out, "},");
            }
        }
    }

    /// The properties that all events of the service have, by posthog-node.
    fn write_server(&mut self, out: &mut Vec<u8>, session: &Session) {
        text::raw(out, SERVER);
        text::raw(out, r#""$groups":{"company":"company_"#);
        text::number(out, session.company(&self.setting));
        text::raw(out, r#""},"request_id":""#);
        text::uuid(out, Uuid::from_u64_pair(self.random.next(), self.random.next()));
        text::raw(out, r#"","handled_ms":"#);
        text::number(out, self.random.below(900));
        text::raw(out, r#","retry":false,"#);
        if session.standing == Standing::Anonymous {
            text::raw(out, r#""$process_person_profile":false,"#);
        }
    }
}

/// The properties that every event of one service has.
const SERVER: &str = r#""$lib":"posthog-node","$lib_version":"5.9.1","$is_server":true,"$geoip_disable":true,"$os":"Linux","$os_version":"6.8.0","service":"shop-api","service_version":"2026.11.3","environment":"production","region":"eu-central-1","host":"shop-api-7d9f","locale":null,"#;

/// `$set` and `$set_once` next to the properties, where posthog-js puts them.
fn write_person(out: &mut Vec<u8>, person: u64) {
    text::raw(out, r#","$set":{"email":"user."#);
    text::number(out, person);
    text::raw(out, r#"@example.com","name":"User "#);
    text::number(out, person);
    text::raw(out, r#"","plan":""#);
    let plan = match random::mix(person) % 3 {
        0 => "free",
        1 => "team",
        _ => "enterprise",
    };
    text::raw(out, plan);
    text::raw(out, r#""},"$set_once":{"signup_source":"web"}"#);
}
