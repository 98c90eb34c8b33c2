//! Ingestion warnings: an accepted event was changed, or had less effect than its sender expects.
//! [`Kind`] has all kinds, including those that the identity store finds; [`Warnings`] are those of one
//! batch. `feedback` stores them.

use uuid::Uuid;

use crate::drops::Drop;
use weir_identity::change::{Warning, WarningKind};
use weir_metadata::definition_quota::{Limit, OverQuota};

/// Events of one batch that are kept as samples for each kind; the others are only counted.
pub const SAMPLES_MAX: usize = 3;

/// Kind of a warning. The names are those of PostHog's ingestion warnings, where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The event was dropped.
    Dropped(Drop),
    /// The name of the event was cut.
    EventNameCut,
    /// The distinct id was cut; it may equal another distinct id now.
    DistinctIdCut,
    /// The `uuid` is invalid. The event got a new one, so a retry of it is not recognised.
    InvalidUuid,
    /// The timestamp is unreadable; the time of arrival is stored.
    InvalidTimestamp,
    /// The timestamp is more than 23 hours ahead; the time of arrival is stored.
    TimestampInFuture,
    /// The timestamp is outside of the years 0 to 9999; 1970 is stored.
    TimestampOutOfRange,
    /// `$process_person_profile` is not a boolean and counts as true.
    InvalidProcessPersonProfile,
    /// `$anon_distinct_id` or `alias` is neither text nor a number; nothing was merged.
    InvalidMergeId,
    /// One side of a merge is an id that many clients send by mistake; nothing was merged.
    IllegalMergeId,
    /// The person to be merged away is identified; nothing was merged.
    AlreadyIdentified,
    /// The person to be merged away has too many distinct ids; nothing was merged.
    TooManyIds,
    /// A person or group would exceed its size limit; its properties stayed as they were.
    PropertiesTooLarge,
    /// An id is longer than the identity store takes; the event had no effect on persons.
    IdTooLong,
    /// `$set`, `$set_once` or `$unset` has a type that cannot be applied.
    InvalidSet,
    /// `$group_set` is not an object and is ignored.
    InvalidGroupSet,
    /// The key of a group is too long; the event belongs to no group of that type.
    GroupKeyTooLong,
    /// The name of a group type is empty or too long; the event belongs to no group of that type.
    InvalidGroupType,
    /// The project has the maximum of group types; the event belongs to no group of this type.
    TooManyGroupTypes,
    /// The person of an operation does not exist any more, or does not have the distinct id any more.
    PersonGone,
    /// A property does not have the type of its column and is stored in `properties` only.
    PropertyTypeMismatch,
    /// The project has reached its quota of definitions of this kind. The event is stored, but its further
    /// names get no definition. Reported at most once per hour.
    TooManyDefinitions(Limit),
}

impl Kind {
    /// All kinds, in the order of [`Warnings`].
    pub const ALL: [Self; 35] = [
        Self::Dropped(Drop::NotAnObject),
        Self::Dropped(Drop::MissingEvent),
        Self::Dropped(Drop::MissingDistinctId),
        Self::Dropped(Drop::TooLarge),
        Self::Dropped(Drop::PersonlessMerge),
        Self::Dropped(Drop::NeverStored),
        Self::Dropped(Drop::Unreadable),
        Self::Dropped(Drop::NameTooLong),
        Self::Dropped(Drop::DistinctIdTooLong),
        Self::Dropped(Drop::InvalidTimestamp),
        Self::Dropped(Drop::InvalidProperties),
        Self::Dropped(Drop::InvalidOptions),
        Self::EventNameCut,
        Self::DistinctIdCut,
        Self::InvalidUuid,
        Self::InvalidTimestamp,
        Self::TimestampInFuture,
        Self::TimestampOutOfRange,
        Self::InvalidProcessPersonProfile,
        Self::InvalidMergeId,
        Self::IllegalMergeId,
        Self::AlreadyIdentified,
        Self::TooManyIds,
        Self::PropertiesTooLarge,
        Self::IdTooLong,
        Self::InvalidSet,
        Self::InvalidGroupSet,
        Self::GroupKeyTooLong,
        Self::InvalidGroupType,
        Self::TooManyGroupTypes,
        Self::PersonGone,
        Self::PropertyTypeMismatch,
        Self::TooManyDefinitions(Limit::Events),
        Self::TooManyDefinitions(Limit::Properties),
        Self::TooManyDefinitions(Limit::Pairs),
    ];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dropped(Drop::NotAnObject) => "dropped_event_not_an_object",
            Self::Dropped(Drop::MissingEvent) => "dropped_event_missing_event",
            Self::Dropped(Drop::MissingDistinctId) => "dropped_event_missing_distinct_id",
            Self::Dropped(Drop::TooLarge) => "dropped_event_too_large",
            Self::Dropped(Drop::PersonlessMerge) => {
                "invalid_event_when_process_person_profile_is_false"
            }
            Self::Dropped(Drop::NeverStored) => "dropped_event_never_stored",
            Self::Dropped(Drop::Unreadable) => "dropped_event_unreadable",
            Self::Dropped(Drop::NameTooLong) => "dropped_event_name_too_long",
            Self::Dropped(Drop::DistinctIdTooLong) => "dropped_event_distinct_id_too_long",
            Self::Dropped(Drop::InvalidTimestamp) => "dropped_event_invalid_timestamp",
            Self::Dropped(Drop::InvalidProperties) => "dropped_event_invalid_properties",
            Self::Dropped(Drop::InvalidOptions) => "dropped_event_invalid_options",
            Self::EventNameCut => "event_name_truncated",
            Self::DistinctIdCut => "distinct_id_truncated",
            Self::InvalidUuid => "invalid_event_uuid",
            Self::InvalidTimestamp => "ignored_invalid_timestamp",
            Self::TimestampInFuture => "event_timestamp_in_future",
            Self::TimestampOutOfRange => "event_timestamp_out_of_range",
            Self::InvalidProcessPersonProfile => "invalid_process_person_profile",
            Self::InvalidMergeId => "invalid_merge_id",
            Self::IllegalMergeId => WarningKind::IllegalDistinctId.name(),
            Self::AlreadyIdentified => WarningKind::AlreadyIdentified.name(),
            Self::TooManyIds => WarningKind::TooManyIds.name(),
            Self::PropertiesTooLarge => WarningKind::PropertiesTooLarge.name(),
            Self::IdTooLong => WarningKind::IdTooLong.name(),
            Self::PersonGone => WarningKind::PersonGone.name(),
            Self::InvalidSet => "invalid_set",
            Self::InvalidGroupSet => "invalid_group_set",
            Self::GroupKeyTooLong => "group_key_too_long",
            Self::InvalidGroupType => "invalid_group_type",
            Self::TooManyGroupTypes => "too_many_group_types",
            Self::PropertyTypeMismatch => "property_type_mismatch",
            Self::TooManyDefinitions(Limit::Events) => "too_many_event_definitions",
            Self::TooManyDefinitions(Limit::Properties) => "too_many_property_definitions",
            Self::TooManyDefinitions(Limit::Pairs) => "too_many_event_properties",
        }
    }
}

impl From<WarningKind> for Kind {
    fn from(kind: WarningKind) -> Self {
        match kind {
            WarningKind::IllegalDistinctId => Self::IllegalMergeId,
            WarningKind::AlreadyIdentified => Self::AlreadyIdentified,
            WarningKind::TooManyIds => Self::TooManyIds,
            WarningKind::PropertiesTooLarge => Self::PropertiesTooLarge,
            WarningKind::IdTooLong => Self::IdTooLong,
            WarningKind::PersonGone => Self::PersonGone,
        }
    }
}

/// An event that a warning is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The kind of the warning.
    pub kind: Kind,
    /// Name of the event, at most 200 characters; empty if unknown.
    pub event: String,
    /// Its distinct id, as stored.
    pub distinct_id: String,
    /// Its id; nil if it was not stored.
    pub event_id: Uuid,
    /// Details, such as the property; empty if the kind is all there is to report.
    pub detail: String,
}

impl From<&Warning> for Sample {
    /// A finding of the identity store, which does not know the names of events.
    fn from(warning: &Warning) -> Self {
        Self {
            kind: warning.kind.into(),
            event: String::new(),
            distinct_id: warning.distinct_id.clone(),
            event_id: warning.event_id,
            detail: String::new(),
        }
    }
}

impl From<&OverQuota> for Sample {
    /// A definition over quota; which sender's event it was is not known any more.
    fn from(over_quota: &OverQuota) -> Self {
        Self {
            kind: Kind::TooManyDefinitions(over_quota.limit),
            event: over_quota.event.clone().unwrap_or_default(),
            distinct_id: String::new(),
            event_id: Uuid::nil(),
            detail: over_quota.property.clone().unwrap_or_default(),
        }
    }
}

/// The warnings of one batch: a count of each kind, and the first events of each. Memory is bounded
/// for any batch; a batch without warnings allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warnings {
    counts: [u64; Kind::ALL.len()],
    samples: Vec<Sample>,
}

impl Default for Warnings {
    fn default() -> Self {
        Self { counts: [0; Kind::ALL.len()], samples: Vec::new() }
    }
}

impl Warnings {
    /// Counts one warning. Keeps the event that `sample` builds if it is among the first of its kind.
    pub fn add(&mut self, kind: Kind, sample: impl FnOnce() -> Sample) {
        let slots = Kind::ALL.iter().zip(&mut self.counts);
        let Some((_, count)) = slots.into_iter().find(|(known, _)| **known == kind) else { return };
        *count += 1;
        if usize::try_from(*count).is_ok_and(|count| count <= SAMPLES_MAX) {
            self.samples.push(sample());
        }
    }

    /// Counts events without samples.
    pub fn add_unknown(&mut self, kind: Kind, events: u64) {
        let slots = Kind::ALL.iter().zip(&mut self.counts);
        if let Some((_, count)) = slots.into_iter().find(|(known, _)| **known == kind) {
            *count += events;
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// Kinds that occurred, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL.into_iter().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    /// The first [`SAMPLES_MAX`] events of each kind, in the order of the events.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Kind, SAMPLES_MAX, Sample, Warnings};
    use crate::drops::Drop;

    #[test]
    fn all_are_counted_and_the_first_are_named() {
        let mut warnings = Warnings::default();
        assert!(warnings.is_empty());
        for round in 0..10_u128 {
            for kind in [Kind::InvalidGroupSet, Kind::EventNameCut] {
                let (event, distinct_id) = ("e".to_owned(), round.to_string());
                let event_id = Uuid::from_u128(round);
                let detail = String::new();
                warnings.add(kind, || Sample { kind, event, distinct_id, event_id, detail });
            }
        }
        let counts: Vec<_> = warnings.counts().collect();
        assert_eq!(counts, [(Kind::EventNameCut, 10), (Kind::InvalidGroupSet, 10)]);
        assert_eq!(warnings.samples().len(), 2 * SAMPLES_MAX);
        let named: Vec<_> = warnings.samples().iter().map(|sample| &*sample.distinct_id).collect();
        assert_eq!(named, ["0", "0", "1", "1", "2", "2"]);
        assert!(!warnings.is_empty());
    }

    /// The names that PostHog's ingestion has, and none twice.
    #[test]
    fn names_are_stable() {
        for (kind, name) in [
            (Kind::IllegalMergeId, "cannot_merge_with_illegal_distinct_id"),
            (Kind::AlreadyIdentified, "cannot_merge_already_identified"),
            (Kind::TimestampInFuture, "event_timestamp_in_future"),
            (Kind::InvalidGroupSet, "invalid_group_set"),
            (Kind::PropertiesTooLarge, "person_properties_size_violation"),
            (
                Kind::Dropped(Drop::PersonlessMerge),
                "invalid_event_when_process_person_profile_is_false",
            ),
        ] {
            assert_eq!(kind.name(), name);
        }
        let mut names = Kind::ALL.map(Kind::name).to_vec();
        for drop in Drop::ALL {
            assert!(Kind::ALL.contains(&Kind::Dropped(drop)), "{drop:?}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
