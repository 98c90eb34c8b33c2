//! Filters and order of a list of event definitions: types of its parameters, and [`List::choose`].

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use crate::fields::not_a_choice;
use crate::openapi::{Parameter, Shape};
use crate::operation::input::InQuery;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::event_definitions::List;
use weir_base::clock::UnixMicros;
use weir_metadata::annotations::Notes;
use weir_metadata::definitions::EventDefinition;

/// Events that were last seen longer ago than this are stale (PostHog's figure).
const STALE_AFTER: Duration = Duration::from_hours(30 * 24);

/// The values of `event_type`.
const EVENT_TYPES: [&str; 5] = ["event", "all", "action_event", "event_custom", "event_posthog"];

/// A definition and its notes.
type Noted = (EventDefinition, Notes);

/// The kind of names in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventType {
    /// All.
    #[default]
    All,
    /// Names that are not built in.
    Custom,
    /// Names that begin with `$`.
    Product,
}

impl InQuery for EventType {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::one_of(name, &EVENT_TYPES).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        match request.query(name).as_deref() {
            // Events never include actions.
            None | Some("" | "event" | "all" | "action_event") => Ok(Self::All),
            Some("event_custom") => Ok(Self::Custom),
            Some("event_posthog") => Ok(Self::Product),
            Some(other) => Err(not_a_choice(name, other)),
        }
    }
}

/// Names to include, in a parameter that may be repeated, or contain several names separated by commas. A name may
/// itself contain a comma.
#[derive(Clone, Debug, Default)]
pub struct NamesWanted(HashSet<String>);

impl NamesWanted {
    /// Whether a name is included; all are if none was given.
    pub(super) fn includes(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.contains(name)
    }
}

impl InQuery for NamesWanted {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let mut names = HashSet::new();
        for (_, value) in request.query_all().filter(|(own, _)| own == name) {
            names.extend(value.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
            names.extend(value.contains(',').then(|| value.into_owned()));
        }
        Ok(Self(names))
    }
}

/// Sort keys, each with whether it is in descending order. Unknown ones of a request are ignored.
#[derive(Clone, Debug)]
pub struct Order(Vec<(Key, bool)>);

/// A sort key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    LastSeen,
    /// The day in UTC.
    LastSeenDay,
    Created,
    CreatedDay,
}

impl Default for Order {
    fn default() -> Self {
        Self(vec![(Key::LastSeenDay, true), (Key::Name, false)])
    }
}

impl InQuery for Order {
    fn describe(name: &'static str, about: &'static str, shape: &mut Shape) {
        shape.query.push(Parameter::text(name).about(about));
    }

    fn take(request: &Request, name: &'static str) -> Result<Self, Problem> {
        let mut keys = Vec::new();
        for (_, value) in request.query_all().filter(|(own, _)| own == name) {
            keys.extend(value.split(',').filter_map(ordering));
        }
        Ok(if keys.is_empty() { Self::default() } else { Self(keys) })
    }
}

impl Order {
    fn compare(&self, a: &EventDefinition, b: &EventDefinition) -> Ordering {
        let by = |(key, descending): &(Key, bool)| {
            // Missing values come first in ascending order, as in PostHog, and last in descending
            // order.
            let ascending = match key {
                Key::Name => a.name.cmp(&b.name),
                Key::LastSeen => a.last_seen_at.cmp(&b.last_seen_at),
                Key::LastSeenDay => day(a.last_seen_at).cmp(&day(b.last_seen_at)),
                Key::Created => a.created_at.cmp(&b.created_at),
                Key::CreatedDay => day(Some(a.created_at)).cmp(&day(Some(b.created_at))),
            };
            if *descending { ascending.reverse() } else { ascending }
        };
        let order = self.0.iter().map(by).find(|order| order.is_ne());
        order.unwrap_or_else(|| a.name.cmp(&b.name))
    }
}

impl List {
    /// The definitions that match the parameters, in their order.
    pub(super) fn choose(
        mut self,
        now: UnixMicros,
        definitions: Vec<EventDefinition>,
        mut notes: HashMap<Uuid, Notes>,
    ) -> Vec<Noted> {
        for tag in self.tags.0.iter_mut().flatten() {
            *tag = tag.to_lowercase();
        }
        let span = i64::try_from(STALE_AFTER.as_micros()).unwrap_or(i64::MAX);
        let seen_since = self.exclude_stale.is_true().then(|| now.0.saturating_sub(span));
        let noted = definitions.into_iter().map(|definition| {
            let notes = notes.remove(&definition.id).unwrap_or_default();
            (definition, notes)
        });
        let is_chosen = |noted: &Noted| self.takes(noted, seen_since.map(UnixMicros));
        let mut chosen: Vec<Noted> = noted.filter(is_chosen).collect();
        chosen.sort_by(|a, b| self.ordering.compare(&a.0, &b.0));
        chosen
    }

    /// Whether a definition matches; those last seen before `seen_since` do not, those that were never seen do.
    fn takes(&self, (definition, notes): &Noted, seen_since: Option<UnixMicros>) -> bool {
        let name = definition.name.to_lowercase();
        let is_of_type = match self.event_type {
            EventType::All => true,
            EventType::Custom => !definition.name.starts_with('$'),
            EventType::Product => definition.name.starts_with('$'),
        };
        let excluded = self.excluded_properties.0.as_deref().unwrap_or_default();
        let tags = self.tags.0.as_deref().unwrap_or_default();
        is_of_type
            && self.search.0.iter().all(|term| name.contains(term))
            && !(self.exclude_hidden.is_true() && notes.hidden)
            && self.verified.0.is_none_or(|verified| notes.verified == verified)
            && !excluded.contains(&definition.name)
            && self.names.includes(&definition.name)
            && seen_since.is_none_or(|since| {
                definition.last_seen_at.is_none_or(|last_seen_at| last_seen_at >= since)
            })
            && (tags.is_empty() || definition.tags.iter().any(|tag| tags.contains(tag)))
    }
}

fn day(time: Option<UnixMicros>) -> Option<chrono::NaiveDate> {
    time.map(|time| time.to_datetime().date_naive())
}

fn ordering(text: &str) -> Option<(Key, bool)> {
    let (name, descending) = match text.strip_prefix('-') {
        Some(name) => (name, true),
        None => (text, false),
    };
    let key = match name {
        "name" => Key::Name,
        "last_seen_at" => Key::LastSeen,
        "last_seen_at::date" => Key::LastSeenDay,
        "created_at" => Key::Created,
        "created_at::date" => Key::CreatedDay,
        _ => return None,
    };
    Some((key, descending))
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use uuid::Uuid;

    use super::{EventType, Key, NamesWanted, Order, ordering};
    use crate::routes::definition_parameters::{Names, Terms, Truth};
    use crate::routes::event_definitions::List;
    use weir_base::clock::UnixMicros;
    use weir_event::id::ProjectId;
    use weir_metadata::annotations::Notes;
    use weir_metadata::definitions::EventDefinition;

    const DAY: i64 = 86_400_000_000;

    fn definition(name: &str, seen: Option<i64>, tags: &[&str]) -> EventDefinition {
        EventDefinition {
            id: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()),
            project: ProjectId(1),
            name: name.to_owned(),
            created_at: UnixMicros(0),
            last_seen_at: seen.map(UnixMicros),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            post_to_slack: false,
        }
    }

    fn truth(own: bool) -> Truth {
        Truth(Some(own))
    }

    fn chosen(list: List) -> Vec<String> {
        let definitions = vec![
            definition("$pageview", Some(3 * DAY), &[]),
            definition("entered_free_trial", Some(3 * DAY + 5), &["growth"]),
            definition("purchase", Some(2 * DAY), &["money", "growth"]),
            definition("never_seen", None, &[]),
        ];
        let hidden = Notes { hidden: true, ..Notes::default() };
        let verified = Notes { verified: true, ..Notes::default() };
        let notes: HashMap<_, _> =
            definitions[2..].iter().map(|one| one.id).zip([verified, hidden]).collect();
        list.choose(UnixMicros(33 * DAY), definitions, notes)
            .into_iter()
            .map(|(one, _)| one.name)
            .collect()
    }

    /// Orders and filters as in PostHog's tests of event definitions.
    #[test]
    fn lists_are_chosen_and_ordered() {
        let all = List::default;
        let names =
            |names: &[&str]| Names(Some(names.iter().map(|name| (*name).to_owned()).collect()));
        let order = |key, descending| Order(vec![(key, descending)]);
        let wanted = HashSet::from(["purchase".into(), "free".into()]);
        for (list, expected) in [
            (all(), vec!["$pageview", "entered_free_trial", "purchase", "never_seen"]),
            (List { search: Terms::of("Free  tri"), ..all() }, vec!["entered_free_trial"]),
            (List { event_type: EventType::Product, ..all() }, vec!["$pageview"]),
            (
                List { event_type: EventType::Custom, ..all() },
                vec!["entered_free_trial", "purchase", "never_seen"],
            ),
            (
                List { exclude_hidden: truth(true), ..all() },
                vec!["$pageview", "entered_free_trial", "purchase"],
            ),
            (List { verified: truth(true), ..all() }, vec!["purchase"]),
            (List { tags: names(&["Money"]), ..all() }, vec!["purchase"]),
            (
                List { excluded_properties: names(&["purchase", "$pageview"]), ..all() },
                vec!["entered_free_trial", "never_seen"],
            ),
            (List { names: NamesWanted(wanted), ..all() }, vec!["purchase"]),
            // Definitions that were never seen are included.
            (
                List { exclude_stale: truth(true), ..all() },
                vec!["$pageview", "entered_free_trial", "never_seen"],
            ),
            (
                List { ordering: order(Key::LastSeen, false), ..all() },
                vec!["never_seen", "purchase", "$pageview", "entered_free_trial"],
            ),
            (
                List { ordering: order(Key::Name, true), ..all() },
                vec!["purchase", "never_seen", "entered_free_trial", "$pageview"],
            ),
        ] {
            let told = format!("{list:?}");
            assert_eq!(chosen(list), expected, "{told}");
        }
    }

    #[test]
    fn orders_are_read() {
        assert_eq!(ordering("-last_seen_at::date"), Some((Key::LastSeenDay, true)));
        assert_eq!(ordering("name"), Some((Key::Name, false)));
        assert_eq!(ordering("-created_at"), Some((Key::Created, true)));
        assert_eq!(ordering("created_at::date"), Some((Key::CreatedDay, false)));
        assert_eq!(ordering("tags"), None);
    }
}
