//! Filters and order of a list of event definitions: [`Choice`], parsed from the query of a request.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use crate::fields::refused;
use crate::request::Request;
use crate::response::Problem;
use crate::routes::definition_parameters::{boolean, names};
use weir_base::clock::UnixMicros;
use weir_metadata::annotations::Notes;
use weir_metadata::definitions::EventDefinition;

/// Events that were last seen longer ago are stale (PostHog's figure).
const STALE_AFTER: Duration = Duration::from_hours(30 * 24);

/// A definition and its annotations.
type Noted = (EventDefinition, Notes);

/// Filters and order of a list of definitions.
#[derive(Debug)]
pub(super) struct Choice {
    /// Search terms; the name contains each of them, case-insensitively.
    terms: Vec<String>,
    kind: Names,
    exclude_hidden: bool,
    verified: Option<bool>,
    excluded: Vec<String>,
    /// Names to include; all if empty.
    names: HashSet<String>,
    /// Omits definitions last seen before this time; those that were never seen stay.
    seen_since: Option<UnixMicros>,
    /// Tags of which a definition needs at least one; no filter if empty.
    tags: Vec<String>,
    order: Vec<(Key, bool)>,
}

/// Filter on the kind of name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    All,
    /// Names that are not built in.
    Custom,
    /// Names that begin with `$`.
    Product,
}

/// Sort keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    LastSeen,
    /// The day in UTC.
    LastSeenDay,
    Created,
    CreatedDay,
}

impl Choice {
    /// Parses the query. Unknown orders are ignored.
    pub(super) fn read(request: &Request, now: UnixMicros) -> Result<Self, Problem> {
        let search = request.query("search").unwrap_or_default();
        let kind = match request.query("event_type").as_deref() {
            // Events never include actions.
            None | Some("" | "event" | "all" | "action_event") => Names::All,
            Some("event_custom") => Names::Custom,
            Some("event_posthog") => Names::Product,
            Some(other) => {
                let detail = format!("\"{other}\" is not a valid choice.");
                return Err(refused("event_type", "invalid_choice", detail));
            }
        };
        let orders = request.query_all().filter(|(name, _)| name == "ordering");
        let mut order = Vec::new();
        for (_, value) in orders {
            order.extend(value.split(',').filter_map(ordering));
        }
        if order.is_empty() {
            order = vec![(Key::LastSeenDay, true), (Key::Name, false)];
        }
        let tags = names(request, "tags")?.unwrap_or_default();
        let exclude_stale = boolean(request, "exclude_stale")?.unwrap_or(false);
        Ok(Self {
            terms: search.split_whitespace().map(str::to_lowercase).collect(),
            kind,
            exclude_hidden: boolean(request, "exclude_hidden")?.unwrap_or(false),
            verified: boolean(request, "verified")?,
            excluded: names(request, "excluded_properties")?.unwrap_or_default(),
            names: names_wanted(request),
            seen_since: exclude_stale.then(|| {
                let span = i64::try_from(STALE_AFTER.as_micros()).unwrap_or(i64::MAX);
                UnixMicros(now.0.saturating_sub(span))
            }),
            tags: tags.iter().map(|tag| tag.to_lowercase()).collect(),
            order,
        })
    }

    /// The definitions of the list in its order.
    pub(super) fn choose(
        &self,
        definitions: Vec<EventDefinition>,
        mut notes: HashMap<Uuid, Notes>,
    ) -> Vec<Noted> {
        let noted = definitions.into_iter().map(|definition| {
            let notes = notes.remove(&definition.id).unwrap_or_default();
            (definition, notes)
        });
        let mut chosen: Vec<Noted> = noted.filter(|noted| self.takes(noted)).collect();
        chosen.sort_by(|a, b| self.compare(&a.0, &b.0));
        chosen
    }

    fn takes(&self, (definition, notes): &Noted) -> bool {
        let name = definition.name.to_lowercase();
        let is_kind = match self.kind {
            Names::All => true,
            Names::Custom => !definition.name.starts_with('$'),
            Names::Product => definition.name.starts_with('$'),
        };
        is_kind
            && self.terms.iter().all(|term| name.contains(term))
            && !(self.exclude_hidden && notes.hidden)
            && self.verified.is_none_or(|verified| notes.verified == verified)
            && !self.excluded.contains(&definition.name)
            && (self.names.is_empty() || self.names.contains(&definition.name))
            && self.seen_since.is_none_or(|since| {
                definition.last_seen_at.is_none_or(|last_seen_at| last_seen_at >= since)
            })
            && (self.tags.is_empty() || definition.tags.iter().any(|tag| self.tags.contains(tag)))
    }

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
        let order = self.order.iter().map(by).find(|order| order.is_ne());
        order.unwrap_or_else(|| a.name.cmp(&b.name))
    }
}

/// The names in the parameter `names`, which may be repeated, or contain several names separated by
/// commas. A name may itself contain a comma.
pub(super) fn names_wanted(request: &Request) -> HashSet<String> {
    let mut names = HashSet::new();
    for (_, value) in request.query_all().filter(|(name, _)| name == "names") {
        names.extend(value.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
        names.extend(value.contains(',').then(|| value.into_owned()));
    }
    names
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

    use super::{Choice, Key, Names, ordering};
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

    fn all() -> Choice {
        Choice {
            terms: Vec::new(),
            kind: Names::All,
            exclude_hidden: false,
            verified: None,
            excluded: Vec::new(),
            names: HashSet::new(),
            seen_since: None,
            tags: Vec::new(),
            order: vec![(Key::LastSeenDay, true), (Key::Name, false)],
        }
    }

    fn chosen(choice: &Choice) -> Vec<String> {
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
        choice.choose(definitions, notes).into_iter().map(|(one, _)| one.name).collect()
    }

    /// Orders and filters as PostHog's tests of event definitions have them.
    #[test]
    fn lists_are_chosen_and_ordered() {
        let terms = |terms: &[&str]| terms.iter().map(|term| (*term).to_owned()).collect();
        for (choice, expected) in [
            (all(), vec!["$pageview", "entered_free_trial", "purchase", "never_seen"]),
            (Choice { terms: terms(&["free", "tri"]), ..all() }, vec!["entered_free_trial"]),
            (Choice { kind: Names::Product, ..all() }, vec!["$pageview"]),
            (
                Choice { kind: Names::Custom, ..all() },
                vec!["entered_free_trial", "purchase", "never_seen"],
            ),
            (
                Choice { exclude_hidden: true, ..all() },
                vec!["$pageview", "entered_free_trial", "purchase"],
            ),
            (Choice { verified: Some(true), ..all() }, vec!["purchase"]),
            (Choice { tags: terms(&["money"]), ..all() }, vec!["purchase"]),
            (
                Choice { excluded: terms(&["purchase", "$pageview"]), ..all() },
                vec!["entered_free_trial", "never_seen"],
            ),
            (
                Choice { names: HashSet::from(["purchase".into(), "free".into()]), ..all() },
                vec!["purchase"],
            ),
            // Definitions that were never seen stay.
            (
                Choice { seen_since: Some(UnixMicros(3 * DAY)), ..all() },
                vec!["$pageview", "entered_free_trial", "never_seen"],
            ),
            (
                Choice { order: vec![(Key::LastSeen, false)], ..all() },
                vec!["never_seen", "purchase", "$pageview", "entered_free_trial"],
            ),
            (
                Choice { order: vec![(Key::Name, true)], ..all() },
                vec!["purchase", "never_seen", "entered_free_trial", "$pageview"],
            ),
        ] {
            assert_eq!(chosen(&choice), expected, "{choice:?}");
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
