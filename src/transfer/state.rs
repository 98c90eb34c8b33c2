//! What a copy has done so far: the ids of objects in the target by those in the source ([`Ids`]), and how far the events
//! are ([`State`]). It is stored between runs as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use weir_event::json;

/// Version of the stored form.
const VERSION: u32 = 1;

/// A kind of objects that others refer to by an id.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Cohorts.
    Cohort,
    /// Actions.
    Action,
    /// Feature flags.
    Flag,
    /// Scheduled changes of flags.
    Schedule,
    /// Early access features.
    Feature,
    /// Saved insights.
    Insight,
    /// Saved insights, by their short ids.
    ShortInsight,
    /// Dashboards.
    Dashboard,
    /// Annotations.
    Annotation,
    /// Types of groups, by their indexes.
    GroupType,
    /// Definitions of events.
    EventDefinition,
    /// Definitions of properties.
    PropertyDefinition,
    /// Groups.
    Group,
    /// Persons.
    Person,
    /// Events.
    Event,
    /// The settings of the project.
    Setting,
}

impl Kind {
    /// What one is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cohort => "cohort",
            Self::Action => "action",
            Self::Flag => "feature flag",
            Self::Schedule => "scheduled change",
            Self::Feature => "early access feature",
            Self::Insight | Self::ShortInsight => "insight",
            Self::Dashboard => "dashboard",
            Self::Annotation => "annotation",
            Self::GroupType => "group type",
            Self::EventDefinition => "event definition",
            Self::PropertyDefinition => "property definition",
            Self::Group => "group",
            Self::Person => "person",
            Self::Event => "event",
            Self::Setting => "project setting",
        }
    }
}

/// The ids of objects in the target, by their kind and their id in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids(BTreeMap<Kind, BTreeMap<String, String>>);

impl Ids {
    /// The id in the target.
    pub fn get(&self, kind: Kind, id: &str) -> Option<&str> {
        self.0.get(&kind)?.get(id).map(String::as_str)
    }

    /// The id in the source of an object of the target.
    pub fn source_of(&self, kind: Kind, target: &str) -> Option<&str> {
        let own = self.0.get(&kind)?;
        own.iter().find(|(_, own)| *own == target).map(|(id, _)| id.as_str())
    }

    /// Whether there is any object of a kind.
    pub fn has_any(&self, kind: Kind) -> bool {
        self.0.get(&kind).is_some_and(|own| !own.is_empty())
    }

    /// Notes an id in the target.
    pub fn insert(&mut self, kind: Kind, id: impl Into<String>, target: impl Into<String>) {
        self.0.entry(kind).or_default().insert(id.into(), target.into());
    }

    /// Forgets an object that is no longer in the target.
    pub fn remove(&mut self, kind: Kind, id: &str) {
        if let Some(own) = self.0.get_mut(&kind) {
            own.remove(id);
        }
    }
}

/// What a copy has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of this form.
    pub version: u32,
    /// Address and id of the source's project.
    pub source: String,
    /// Address and id of the target's project.
    pub target: String,
    /// The ids.
    #[serde(default)]
    pub ids: Ids,
    /// Since when events are copied, microseconds since 1970; nothing once all are.
    #[serde(default)]
    pub events_since: Option<i64>,
    /// Time of the last event that was copied, microseconds since 1970; nothing once all are.
    #[serde(default)]
    pub events_until: Option<i64>,
}

impl State {
    /// The state before the first run.
    pub fn new(source: String, target: String) -> Self {
        Self {
            version: VERSION,
            source,
            target,
            ids: Ids::default(),
            events_since: None,
            events_until: None,
        }
    }

    /// Reads the stored form.
    ///
    /// # Errors
    ///
    /// It is not the state of a copy, or of another version.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let seed = std::marker::PhantomData::<Self>;
        let state = json::read_as(seed, text).map_err(|error| error.to_string())?;
        if state.version != VERSION {
            return Err(format!("version {} of the state of a copy", state.version));
        }
        Ok(state)
    }

    /// The stored form.
    pub fn text(&self) -> String {
        // Maps with text keys: always serializable.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Where the state is stored. It is told of each change.
pub trait Keep: Send + Sync {
    /// Stores it durably, now or with one of the next changes: what was copied in between is found by its content.
    ///
    /// # Errors
    ///
    /// Why it cannot be stored.
    fn keep(&self, state: &State) -> Result<(), String>;
}

#[cfg(test)]
mod tests {
    use super::{Kind, State};

    #[test]
    fn a_state_is_read_as_it_was_written_and_nothing_else_is() {
        let mut state = State::new("https://a/ 1".to_owned(), "https://b/ 2".to_owned());
        state.ids.insert(Kind::Cohort, "7", "9");
        state.ids.insert(Kind::ShortInsight, "abc", "xyz");
        state.events_until = Some(-5);
        assert_eq!(State::read(state.text().as_bytes()), Ok(state.clone()));
        assert_eq!(state.ids.get(Kind::Cohort, "7"), Some("9"));
        assert_eq!(state.ids.source_of(Kind::Cohort, "9"), Some("7"));
        assert_eq!(state.ids.get(Kind::Action, "7"), None);
        for other in [
            String::new(),
            "{}".to_owned(),
            "[1]".to_owned(),
            state.text().replace("\"version\":1", "\"version\":2"),
            state.text().replace("\"cohort\"", "\"cohorts\""),
            state.text().replace("\"ids\"", "\"idz\""),
        ] {
            assert!(State::read(other.as_bytes()).is_err(), "{other}");
        }
    }
}
