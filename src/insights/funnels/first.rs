//! Of which events a step counts the first time alone: [`First`].

/// The first time of which events a step counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// Of those with its name, whatever its filters are; that one has to match these.
    OfName,
    /// Of those that match its filters and those of the whole funnel.
    Matching,
}

impl First {
    /// That of a `math`, if it is one.
    pub(super) fn of(math: &str) -> Option<Self> {
        match math {
            "first_time_for_user" => Some(Self::OfName),
            "first_matching_event_for_user" | "first_time_for_user_with_filters" => {
                Some(Self::Matching)
            }
            _ => None,
        }
    }
}
