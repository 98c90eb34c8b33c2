//! What a body says about the past: whether its events are imported, and how an import changes persons.

/// Whether the events of a body are of the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum History {
    /// They are sent as they happen.
    #[default]
    Live,
    /// `historical_migration`: their times are not those of the sender's clock.
    Marked,
    /// They are imported as well: they were stored elsewhere, and nothing about them is to be found out from the request,
    /// such as an address.
    Import(PersonProperties, Effects),
}

impl History {
    /// Whether the events are marked as historical.
    pub(super) fn is_past(self) -> bool {
        self != Self::Live
    }

    /// How an import changes persons; `None` if it is none.
    pub(super) fn import(self) -> Option<PersonProperties> {
        match self {
            Self::Import(properties, _) => Some(properties),
            Self::Live | Self::Marked => None,
        }
    }

    /// Which effects the events have.
    pub(super) fn effects(self) -> Effects {
        match self {
            Self::Import(_, effects) => effects,
            Self::Live | Self::Marked => Effects::All,
        }
    }

    /// Whether properties are only set on persons that lack them.
    pub(super) fn fills(self) -> bool {
        self.import() == Some(PersonProperties::Fill)
    }
}

/// Which effects the events of an import have. A copy of another project sends its events and its persons apart: the
/// persons are as they became by all of their events and by operators, and events that arrive late must not change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Effects {
    /// They are stored, and change persons and groups.
    #[default]
    All,
    /// They are stored as they were sent, and change no person and no group.
    Rows,
    /// They change persons and groups, and are not stored.
    Persons,
}

impl Effects {
    /// By the name of what the import is for.
    pub(super) fn of(word: &str) -> Option<Self> {
        match word {
            "events" => Some(Self::Rows),
            "persons" => Some(Self::Persons),
            _ => None,
        }
    }
}

/// What an import does to the properties of persons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PersonProperties {
    /// Those that a person lacks are set: what is known already is newer.
    Fill,
    /// They are set, in the order of arrival, as those of live events.
    Overwrite,
    /// They stay as they are.
    Ignore,
}

impl PersonProperties {
    /// By its name.
    pub(super) fn of(word: &str) -> Option<Self> {
        match word {
            "fill" => Some(Self::Fill),
            "overwrite" => Some(Self::Overwrite),
            "ignore" => Some(Self::Ignore),
            _ => None,
        }
    }
}
