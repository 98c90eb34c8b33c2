//! Drop reasons: why single events are not stored, and counts of a request by reason.

/// Why an event was dropped from an accepted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// It is not a JSON object.
    NotAnObject,
    /// It has no name, or an empty one.
    MissingEvent,
    /// It has no distinct id, or an empty one.
    MissingDistinctId,
    /// It exceeds the size limit of an event.
    TooLarge,
    /// It identifies or merges persons, but disables person processing.
    PersonlessMerge,
    /// Its kind of event is never stored.
    NeverStored,
    /// It is not valid JSON, or nested too deeply; see `salvage`.
    Unreadable,
    /// Capture v1: its name is too long.
    NameTooLong,
    /// Capture v1: its distinct id is too long.
    DistinctIdTooLong,
    /// Capture v1: its timestamp is not valid RFC 3339.
    InvalidTimestamp,
    /// Capture v1: its properties are not an object.
    InvalidProperties,
    /// Capture v1: an option has an invalid value.
    InvalidOptions,
}

impl Drop {
    /// All reasons, in the order of [`Drops`].
    pub const ALL: [Self; 12] = [
        Self::NotAnObject,
        Self::MissingEvent,
        Self::MissingDistinctId,
        Self::TooLarge,
        Self::PersonlessMerge,
        Self::NeverStored,
        Self::Unreadable,
        Self::NameTooLong,
        Self::DistinctIdTooLong,
        Self::InvalidTimestamp,
        Self::InvalidProperties,
        Self::InvalidOptions,
    ];

    /// What a sender is told of it.
    pub fn text(self) -> &'static str {
        match self {
            Self::NotAnObject => "an event is a JSON object",
            Self::MissingEvent => "an event needs a name, in `event`",
            Self::MissingDistinctId => "an event needs a `distinct_id`",
            Self::TooLarge => "it is larger than an event may be",
            Self::PersonlessMerge => "it identifies a person, and disables persons",
            Self::NeverStored => "events of this name are not stored",
            Self::Unreadable => "it is no JSON, or nested too deeply",
            Self::NameTooLong => "its name is too long",
            Self::DistinctIdTooLong => "its distinct id is too long",
            Self::InvalidTimestamp => "its timestamp is no time of RFC 3339",
            Self::InvalidProperties => "its properties are no object",
            Self::InvalidOptions => "an option has a value that it cannot have",
        }
    }

    /// Name for metrics and warnings.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotAnObject => "not_an_object",
            Self::MissingEvent => "missing_event",
            Self::MissingDistinctId => "missing_distinct_id",
            Self::TooLarge => "too_large",
            Self::PersonlessMerge => "personless_merge",
            Self::NeverStored => "never_stored",
            Self::Unreadable => "unreadable",
            Self::NameTooLong => "event_name_too_long",
            Self::DistinctIdTooLong => "distinct_id_too_large",
            Self::InvalidTimestamp => "invalid_event_timestamp",
            Self::InvalidProperties => "malformed_event_properties",
            Self::InvalidOptions => "invalid_options",
        }
    }
}

/// Number of dropped events by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; Drop::ALL.len()]);

impl Drops {
    /// Counts one event.
    pub fn add(&mut self, reason: Drop) {
        self.add_all(reason, 1);
    }

    /// Counts `events` events.
    pub fn add_all(&mut self, reason: Drop, events: u64) {
        let slots = Drop::ALL.iter().zip(&mut self.0);
        if let Some((_, count)) = slots.into_iter().find(|(drop, _)| **drop == reason) {
            *count += events;
        }
    }

    /// How many there are of all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().copied().fold(0, u64::saturating_add)
    }

    /// Reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Drop, u64)> {
        Drop::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }
}
