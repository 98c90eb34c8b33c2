//! Random persons, changes and questions, and the answer to a question by a look at everybody.

use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::persons::people::{Part, PersonsQuestion};
use weir_base::clock::{Clock, UnixMicros};
use weir_event::id::{PersonId, ProjectId};
use weir_event::predicate::Matching;
use weir_event::predicate::filter::{Filter, Membership, Scope};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::change::{Extent, Force, Keep, Op, OpKind, Record, Update};
use weir_identity::limits::Limits;
use weir_identity::person::Person;
use weir_identity::store::Identities;
use weir_identity::view::View;

pub(super) const PROJECTS: [ProjectId; 2] = [ProjectId(1), ProjectId(2)];
pub(super) const NOW: UnixMicros = UnixMicros(1_700_000_000_000_000);
pub(super) const DAY: i64 = 86_400_000_000;
pub(super) const KEYS: [&str; 4] = ["plan", "email", "n", "odd \"key\\\":"];
pub(super) const AMPLE: u64 = 1 << 30;
/// The time that files may be out of date.
pub(super) const INTERVAL: Duration = Duration::from_mins(5);

pub(super) struct World {
    pub(super) random: StdRng,
    pub(super) identities: Identities,
    /// Distinct ids that may be in use.
    pub(super) ids: u32,
    pub(super) sequence: u64,
    /// The time of files; questions are asked as of [`NOW`].
    pub(super) clock: Clock,
}

impl World {
    pub(super) fn new(seed: u64, directory: &Path) -> Self {
        let identities = Identities::open(directory, Limits::SMALL).unwrap();
        let (random, clock) = (StdRng::seed_from_u64(seed), Clock::test(NOW));
        Self { random, identities, ids: 12, sequence: 0, clock }
    }

    pub(super) fn id(&mut self) -> String {
        format!("id{}", self.random.random_range(0..self.ids))
    }

    pub(super) fn value(&mut self) -> Value {
        let all = [
            json!("pro"),
            json!("Free"),
            json!("ann@corp.com"),
            json!("Bob@Home.org"),
            json!("a \"quoted\" \\ \u{1} é"),
            json!(""),
            json!(null),
            json!(true),
            json!(3),
            json!(-2.5),
            json!("12"),
            json!(["pro", 3]),
            json!({"email": "ann@corp.com", "plan": {"n": 3}}),
        ];
        match self.random.random_range(0..20) {
            0 => json!("x".repeat(self.random.random_range(0..3000))),
            1..4 => json!(self.random.random::<u16>()),
            _ => all.choose(&mut self.random).unwrap().clone(),
        }
    }

    fn kind(&mut self) -> OpKind {
        let person = PersonId::of(PROJECTS[0], &self.id()).0;
        let mut set = Map::new();
        for _ in 0..self.random.random_range(0..4) {
            let key = (*KEYS.choose(&mut self.random).unwrap()).to_owned();
            let value = self.value();
            set.insert(key, value);
        }
        let unset = match self.random.random_bool(0.3) {
            true => vec![(*KEYS.choose(&mut self.random).unwrap()).to_owned()],
            false => Vec::new(),
        };
        let update = Update { set, unset, ..Update::default() };
        match self.random.random_range(0..12) {
            0..6 => OpKind::Update(update),
            6 => OpKind::Touch,
            7 => OpKind::Merge { other: self.id(), force: Force::Yes, update },
            8 => OpKind::Delete {
                person,
                extent: *[Extent::Person, Extent::Both].choose(&mut self.random).unwrap(),
            },
            9 => OpKind::Split { person, keep: Keep::Own },
            _ => OpKind::Change { person, update },
        }
    }

    /// Applies some changes as one batch.
    pub(super) fn change(&mut self, ops: usize) {
        let mut records = Vec::new();
        for _ in 0..self.random.random_range(1..3) {
            self.sequence += 1;
            let mut own = Vec::new();
            for _ in 0..ops {
                let kind = self.kind();
                let is_operator = matches!(
                    kind,
                    OpKind::Delete { .. } | OpKind::Split { .. } | OpKind::Change { .. }
                );
                // Few times, so that persons share them; two of them are too far in the future.
                let day = self.random.random_range(-6..4);
                own.push(Op {
                    distinct_id: if is_operator { String::new() } else { self.id() },
                    event_id: Uuid::from_u128(self.random.random()),
                    timestamp: UnixMicros(NOW.0 + day * DAY),
                    kind,
                });
            }
            let project = PROJECTS[usize::from(self.random.random_bool(0.2))];
            records.push(Record { sequence: self.sequence, project, ops: own });
        }
        self.identities.apply(&records).unwrap();
    }

    fn filter(&mut self) -> Value {
        let operators = [
            "exact",
            "is_not",
            "is_set",
            "is_not_set",
            "icontains",
            "not_icontains",
            "gt",
            "lt",
            "regex",
            "not_regex",
        ];
        let operator = *operators.choose(&mut self.random).unwrap();
        let value = match operator {
            "regex" | "not_regex" => json!("^[a-z]+@|1"),
            // Null is refused.
            _ => Some(self.value()).filter(|value| !value.is_null()).unwrap_or(json!("null")),
        };
        let negation = self.random.random_bool(0.2);
        match self.random.random_range(0..10) {
            0 => json!({"type": "cohort", "key": "id", "value": self.random.random_range(2..4),
                "operator": "in", "negation": negation}),
            1 => json!({"type": "person_metadata", "key": "is_identified", "value": true,
                "operator": "exact", "negation": negation}),
            2 => {
                let operators = ["is_date_before", "is_date_after", "is_date_exact", "icontains"];
                let days = ["2023-11-13", "2023-11-14T22:13:20Z", "2023-11-16", "-2d", "soon"];
                json!({"type": "person_metadata", "key": "created_at", "negation": negation,
                    "operator": *operators.choose(&mut self.random).unwrap(),
                    "value": *days.choose(&mut self.random).unwrap()})
            }
            3 => json!({"type": "person_metadata", "key": "uuid", "operator": "icontains",
                "value": "1", "negation": negation}),
            _ => json!({"key": *KEYS.choose(&mut self.random).unwrap(), "value": value,
                "operator": operator, "negation": negation}),
        }
    }

    fn tree(&mut self, depth: u32) -> Value {
        if depth == 0 || self.random.random_bool(0.4) {
            return self.filter();
        }
        let values: Vec<Value> =
            (0..self.random.random_range(0..4)).map(|_| self.tree(depth - 1)).collect();
        json!({"type": if self.random.random_bool(0.5) { "AND" } else { "OR" }, "values": values})
    }

    pub(super) fn question(&mut self) -> PersonsQuestion {
        let searches = ["CORP", "home", "id3", "a", "nobody"];
        let search = self.random.random_bool(0.2);
        let properties = !search || self.random.random_bool(0.5);
        let tree = json!([self.tree(3)]);
        PersonsQuestion {
            search: search.then(|| (*searches.choose(&mut self.random).unwrap()).to_owned()),
            properties: properties.then(|| Tree::parse(&tree, "person", Matching::Legacy).unwrap()),
            cohort: self.random.random_bool(0.1).then_some(2),
            in_cohort: Some(Box::new(|_, id, person| is_member(id, person))),
            ..PersonsQuestion::default()
        }
    }

    /// A part of a list that may have so many persons.
    pub(super) fn part(&mut self, persons: usize) -> Part {
        let offset = match self.random.random_range(0..4) {
            0 => 0,
            1 => self.random.random_range(0..12),
            2 => self.random.random_range(0..persons.max(1)),
            _ => *[persons, persons + 1, 400_000].choose(&mut self.random).unwrap(),
        };
        let limit = match self.random.random_bool(0.8) {
            true => self.random.random_range(0..12),
            false => *[persons, 400_000, usize::MAX].choose(&mut self.random).unwrap(),
        };
        Part { offset, limit }
    }

    /// A question that names persons, some of whom there are.
    pub(super) fn naming(&mut self) -> PersonsQuestion {
        let mut question = PersonsQuestion { search: None, ..self.question() };
        let most = self.identities.view().next_number().unwrap() + 2;
        let kind = self.random.random_range(0..4);
        let mut numbers = || (0..6).map(|_| self.random.random_range(0..most)).collect();
        question.numbers = [0, 3].contains(&kind).then(&mut numbers);
        if [1, 3].contains(&kind) {
            let uuids = (0..6).map(|_| PersonId::of(PROJECTS[0], &self.id()).0);
            question.uuids = Some(uuids.collect());
        }
        if kind == 2 || self.random.random_bool(0.1) {
            let texts = [self.id(), "ann@corp.com".to_owned(), "ANN@corp.com".to_owned()];
            question.key_identifier = texts.choose(&mut self.random).cloned();
        }
        if self.random.random_bool(0.5) {
            question.properties = None;
        }
        if self.random.random_bool(0.2) {
            question.changed_since = Some(self.sequence.saturating_sub(3));
        }
        question
    }
}

/// The same question.
pub(super) fn again(question: &PersonsQuestion) -> PersonsQuestion {
    PersonsQuestion {
        distinct_id: question.distinct_id.clone(),
        email: question.email.clone(),
        search: question.search.clone(),
        properties: question.properties.clone(),
        cohort: question.cohort,
        numbers: question.numbers.clone(),
        uuids: question.uuids.clone(),
        key_identifier: question.key_identifier.clone(),
        changed_since: question.changed_since,
        in_cohort: Some(Box::new(|_, id, person| is_member(id, person))),
    }
}

fn is_member(cohort: i64, person: &Person) -> bool {
    person.number % cohort == 0
}

/// The answer by a look at every person, with none of what questions are answered with.
pub(super) fn naive(view: &View, project: ProjectId, question: &PersonsQuestion) -> Vec<i64> {
    let holds = |filter: &Filter, person: &Person| match filter {
        Filter::Property { scope: Scope::PersonMetadata, predicate } => {
            let mut row = Map::new();
            row.insert("created_at".to_owned(), json!(person.created_at.to_rfc3339()));
            row.insert("uuid".to_owned(), json!(person.uuid.to_string()));
            row.insert("is_identified".to_owned(), json!(person.is_identified));
            predicate.matches(&row, Now::utc(NOW))
        }
        Filter::Property { predicate, .. } => predicate.matches(&person.properties, Now::utc(NOW)),
        Filter::Cohort { id, membership } => match membership {
            Membership::In => is_member(*id, person),
            Membership::NotIn => !is_member(*id, person),
            Membership::Nobody => false,
        },
        Filter::Flag { .. } => false,
    };
    let mut found = Vec::new();
    let visit = |person: Person| {
        let ids = view.distinct_ids(project, person.uuid).unwrap();
        let email = person.properties.get("email").and_then(Value::as_str);
        let email = email.map(str::to_lowercase).unwrap_or_default();
        let search = question.search.as_deref();
        let is_found = search.is_none_or(|text| {
            ids.iter().any(|id| id == text) || email.contains(&text.to_lowercase())
        });
        let email = person.properties.get("email").and_then(Value::as_str);
        let is_key = |text: &String| ids.contains(text) || email == Some(text);
        if is_found
            && question.numbers.as_ref().is_none_or(|all| all.contains(&person.number))
            && question.uuids.as_ref().is_none_or(|all| all.contains(&person.uuid))
            && question.key_identifier.as_ref().is_none_or(is_key)
            && question.changed_since.is_none_or(|since| person.changed_sequence >= since)
            && person.created_at.0 <= NOW.0 + DAY
            && question.cohort.is_none_or(|id| is_member(id, &person))
            && question
                .properties
                .as_ref()
                .is_none_or(|tree| tree.holds(&mut |filter| holds(filter, &person)))
        {
            found.push(person);
        }
        ControlFlow::Continue(())
    };
    view.scan_persons(project, visit).unwrap();
    found.sort_by_key(|person| Reverse((person.created_at, person.uuid)));
    found.iter().map(|person| person.number).collect()
}
