//! Persons and their sessions: person, time and device of an event. Events are written elsewhere.
//!
//! A person is a number, and all its attributes are computed from it, so a population of millions
//! takes no memory. Only open sessions have state.

use uuid::Uuid;

use crate::synth::random::{Random, mix};
use crate::synth::vocabulary::Vocabulary;
use crate::synth::{Choice, DistinctId, text, vocabulary};
use weir_base::clock::UnixMicros;

/// State of the person in posthog-js.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Events create no person profile.
    Anonymous,
    /// No user id yet, but a profile exists because of `$set` or a group.
    Profiled,
    /// `$identify` was called, now or in an earlier session.
    Identified,
}

/// Generator of uuids that never repeat within a stream.
#[derive(Debug)]
pub(super) struct Ids {
    serial: u64,
    salt: u64,
}

/// The random bits of a UUIDv7 after its variant.
const ID_BITS: u64 = (1 << 62) - 1;

impl Ids {
    pub(super) fn new(random: &mut Random) -> Self {
        Self { serial: 0, salt: random.next() }
    }

    /// A UUIDv7 for `time`. The serial number is scattered by a bijection of 62 bits, so that ids
    /// look random to a compressor and are distinct by construction.
    pub(super) fn next(&mut self, time: UnixMicros, random: &mut Random) -> Uuid {
        self.serial += 1;
        let mut bits = (self.serial ^ self.salt) & ID_BITS;
        for _ in 0..2 {
            bits = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ID_BITS;
            bits ^= bits >> 31;
        }
        version_7(time, random.next(), bits)
    }
}

/// RFC 9562, 5.7: 48 bits of milliseconds, version, 12 bits, variant, 62 bits.
fn version_7(time: UnixMicros, high: u64, low: u64) -> Uuid {
    let millis = u128::try_from(time.0 / 1_000).unwrap_or(0) & ((1 << 48) - 1);
    let high = u128::from(high & 0xfff);
    let low = u128::from(low & ID_BITS);
    Uuid::from_u128((millis << 80) | (7 << 76) | (high << 64) | (0b10 << 62) | low)
}

/// A session: one person on one device, from the first event to the last.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) person: u64,
    pub(super) standing: Standing,
    pub(super) device_id: Uuid,
    /// JSON members that all events of the session share, each followed by a comma.
    pub(super) shared: Vec<u8>,
    /// Whether the next event is the first one of a person that a server sends.
    pub(super) is_first: bool,
    /// True until the first page view is written.
    pub(super) landing: bool,
    /// Time of the last event.
    pub(super) at: UnixMicros,
    session_id: Uuid,
    window_id: Uuid,
    device: usize,
    referrer: &'static str,
    events_left: u64,
}

/// Most events of one session; the average is half of it.
const EVENTS_MAX: u64 = 30;
/// The same with [`Choice::Even`](crate::synth::Choice::Even).
const EVENTS_MAX_EVEN: u64 = 3;
/// Longest pause between two events of a session. posthog-js ends a session after 30 minutes.
const PAUSE_MAX_MILLIS: u64 = 90_000;
/// Percentage of sessions that begin signed in.
const SIGNED_IN: u64 = 55;

/// Parameters that are constant during a stream.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) vocabulary: Vocabulary,
    /// The project token as a JSON string.
    pub(super) token: String,
    pub(super) persons: u64,
    pub(super) choice: Choice,
    pub(super) persons_salt: u64,
    pub(super) now: UnixMicros,
    pub(super) span_millis: u64,
}

impl Session {
    /// The session that begins after `before` others.
    pub(super) fn begin(
        setting: &Setting,
        before: u64,
        random: &mut Random,
        ids: &mut Ids,
    ) -> Self {
        let is_even = setting.choice == Choice::Even;
        let is_first = is_even && before < setting.persons;
        let person = match setting.choice {
            Choice::Zipf => random.rank(setting.persons),
            Choice::Even if is_first => before,
            Choice::Even => random.below(setting.persons),
        };
        let traits = mix(person ^ setting.persons_salt);
        let ago = random.below(setting.span_millis.saturating_add(1));
        let at = earlier(setting.now, ago);
        let devices = u64::try_from(setting.vocabulary.devices.len()).unwrap_or(1);
        // First seen up to a year ago, in milliseconds.
        let first_seen = earlier(setting.now, traits % 31_536_000_000);
        let signed_in = random.percent(SIGNED_IN) || is_even;
        let mut session = Self {
            person,
            standing: if signed_in { Standing::Identified } else { Standing::Anonymous },
            device_id: version_7(first_seen, traits >> 7, mix(traits)),
            shared: Vec::with_capacity(1_024),
            is_first,
            landing: true,
            at,
            session_id: ids.next(at, random),
            window_id: ids.next(at, random),
            device: usize::try_from(traits % devices.max(1)).unwrap_or(0),
            referrer: vocabulary::referrer(random),
            events_left: 1 + random.below(if is_even { EVENTS_MAX_EVEN } else { EVENTS_MAX }),
        };
        session.render(setting);
        session
    }

    /// The current distinct id of the person.
    pub(super) fn distinct_id(&self) -> DistinctId {
        match self.standing {
            Standing::Anonymous | Standing::Profiled => DistinctId::Device(self.device_id),
            Standing::Identified => DistinctId::User(self.person),
        }
    }

    /// The company of the person: about ten persons per company.
    pub(super) fn company(&self, setting: &Setting) -> u64 {
        mix(self.person ^ setting.persons_salt).rotate_left(17) % (setting.persons / 10 + 1)
    }

    pub(super) fn become_at_least(&mut self, standing: Standing, setting: &Setting) {
        if self.standing == Standing::Anonymous || standing == Standing::Identified {
            self.standing = standing;
            self.render(setting);
        }
    }

    /// Moves to the next event. Returns whether the session continues after it.
    pub(super) fn advance(&mut self, now: UnixMicros, random: &mut Random) -> bool {
        let pause = i64::try_from(1 + random.below(PAUSE_MAX_MILLIS)).unwrap_or(1);
        let next = UnixMicros(self.at.0.saturating_add(pause * 1_000));
        let reached_now = next > now;
        if !reached_now {
            self.at = next;
        }
        self.events_left = self.events_left.saturating_sub(1);
        self.events_left > 0 && !reached_now
    }

    fn render(&mut self, setting: &Setting) {
        let identified = self.standing == Standing::Identified;
        let profile = self.standing != Standing::Anonymous;
        let distinct_id = self.distinct_id();
        let out = &mut self.shared;
        out.clear();
        if let Some(device) = setting.vocabulary.devices.get(self.device) {
            out.extend_from_slice(device);
        }
        text::raw(out, self.referrer);
        text::raw(out, r#""$lib":"web","$lib_version":"1.298.0","distinct_id":""#);
        distinct_id.write(out);
        for (key, id) in [
            (r#"","$device_id":""#, self.device_id),
            (r#"","$session_id":""#, self.session_id),
            (r#"","$window_id":""#, self.window_id),
        ] {
            text::raw(out, key);
            text::uuid(out, id);
        }
        text::raw(out, r#"","$is_identified":"#);
        text::raw(out, if identified { "true" } else { "false" });
        text::raw(out, r#","$process_person_profile":"#);
        text::raw(out, if profile { "true," } else { "false," });
    }
}

fn earlier(now: UnixMicros, millis: u64) -> UnixMicros {
    let micros = i64::try_from(millis.saturating_mul(1_000)).unwrap_or(i64::MAX);
    UnixMicros(now.0.saturating_sub(micros).max(0))
}
