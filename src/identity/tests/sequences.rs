//! Many short sequences of events over few distinct ids, against the model: in one batch, one by
//! one, in any batches with restarts between them, and in parts of records with restarts after any
//! part. All sequences share the databases, with one project each, because opening a database takes
//! longer than the test of a sequence.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::model::{Model, uuid_of};
use super::{AMPLE, PARTS};
use crate::auto_set;
use crate::change::{Extent, Force, Keep, Occasion, Op, OpKind, Record, Update, Warning};
use crate::change_feed::{ChangeFeed, Watched};
use crate::deletions::{Deletion, Origin};
use crate::overrides::{Overrides, SurvivorMap};
use crate::person::{DistinctId, Person};
use crate::row::Row;
use crate::store::Identities;
use crate::view::View;
use weir_base::clock::UnixMicros;
use weir_event::auto_set::Names;
use weir_event::id::ProjectId;

/// Sequences of a normal run.
const SEQUENCES: u64 = 6_000;

/// Sequences after which a database with restarts is closed and opened.
const RESTART_EVERY: u64 = 500;

/// Few ids, so that they collide; two of them may not be merged, and a third may be written like them.
const IDS: [&str; 6] = ["a", "b", "c", "d", "null", "'Anonymous'"];

fn object(random: &mut StdRng) -> Map<String, Value> {
    let mut object = Map::new();
    for _ in 0..random.random_range(0..3_u8) {
        let keys = ["$os", "$pathname", "$geoip_city_name", "plan", "email"];
        let key = *keys.choose(random).expect("some");
        let values = [json!(null), json!(1), json!("x"), json!("y"), json!({"deep": [1]})];
        object.insert(key.to_owned(), values.choose(random).expect("some").clone());
    }
    object
}

/// A noise property and a normal one.
static AUTO_SET: [Names; 3] = [
    ("$browser", "$initial_browser"),
    ("$os", "$initial_os"),
    ("utm_source", "$initial_utm_source"),
];

fn update(random: &mut StdRng) -> Update {
    // Half of the updates have no `$set` and `$set_once`.
    let (set, set_once) = match random.random_bool(0.5) {
        true => (object(random), object(random)),
        false => Default::default(),
    };
    let mut auto_sets = Vec::new();
    for names in &AUTO_SET {
        if random.random_bool(0.3) {
            let value = json!(random.random_range(0..3));
            auto_sets.push((names, !set.contains_key(names.0), true, value));
        }
    }
    let place = auto_sets.pop_if(|_| random.random_bool(0.2));
    let auto_set =
        [auto_set::tests::auto_set(&auto_sets), auto_set::tests::auto_set(place.as_slice())];
    let unset = ["plan", "$browser"].into_iter().filter(|_| random.random_bool(0.15));
    let unset = unset.map(str::to_owned).collect();
    let occasions =
        [Occasion::PersonEvent, Occasion::OtherEvent, Occasion::OtherEvent, Occasion::Creation];
    let occasion = *occasions.choose(random).expect("some");
    Update { set, set_once, unset, auto_set, occasion }
}

fn kind(random: &mut StdRng, project: ProjectId) -> OpKind {
    let id = |random: &mut StdRng| (*IDS.choose(random).expect("some")).to_owned();
    match random.random_range(0..17_u8) {
        0..2 => OpKind::Touch,
        2..4 => OpKind::Personless,
        4..7 => OpKind::Update(update(random)),
        7 => OpKind::UpdateExisting(update(random)),
        8..12 => OpKind::Merge {
            other: id(random),
            force: if random.random_bool(0.2) { Force::Yes } else { Force::No },
            update: Update { occasion: Occasion::PersonEvent, ..update(random) },
        },
        14 => OpKind::Change {
            person: uuid_of(project, &id(random)),
            update: Update { occasion: Occasion::PersonEvent, ..update(random) },
        },
        15..17 => {
            let extents = [Extent::Person, Extent::Events, Extent::Both];
            let extent = *extents.choose(random).expect("some");
            OpKind::Delete { person: uuid_of(project, &id(random)), extent }
        }
        _ => OpKind::Split {
            person: uuid_of(project, &id(random)),
            keep: match random.random_range(0..4_u8) {
                0 => Keep::Own,
                1 => Keep::One(id(random)),
                _ => Keep::AllBut((0..random.random_range(1..3_u8)).map(|_| id(random)).collect()),
            },
        },
    }
}

/// The records of one sequence; sometimes an earlier event is repeated, as when SDKs retry.
pub(super) fn sequence(random: &mut StdRng, project: ProjectId, after: u64) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    let mut sizes = StdRng::seed_from_u64(random.random());
    for number in 1..=random.random_range(2..16_u64) {
        let earlier = records.iter().flat_map(|record| &record.ops).cloned().collect::<Vec<_>>();
        let op = |_| match earlier.choose(random).filter(|_| random.random_bool(0.1)) {
            Some(retry) => retry.clone(),
            None => Op {
                distinct_id: (*IDS.choose(random).expect("some")).to_owned(),
                event_id: Uuid::from_u128(random.random()),
                timestamp: UnixMicros(random.random_range(0..1000)),
                kind: kind(random, project),
            },
        };
        let ops = (0..[1, 1, 1, 2, 5][sizes.random_range(0..5)]).map(op).collect();
        records.push(Record { sequence: after + number, project, ops });
    }
    records
}

/// The uuids and distinct ids of persons, by number.
type Owned = BTreeMap<i64, (Uuid, Vec<DistinctId>)>;

fn owned(view: &View, project: ProjectId) -> Owned {
    let mut all = Owned::new();
    let visit = |row: &Row<'_>, ids: &[DistinctId]| {
        all.insert(row.number, (row.uuid, ids.to_vec()));
        Ok(std::ops::ControlFlow::Continue(()))
    };
    view.scan_rows_with_ids(project, 0..i64::MAX, visit).expect("scans");
    all
}

/// A feed of who has other distinct ids, with who had which at its last look.
struct Watch(ChangeFeed, Owned);

impl Watch {
    /// Checks that the feed names those who have changed by a record, and after a single op nobody else.
    fn check(&mut self, project: ProjectId, record: &Record) {
        let (view, changed) = self.0.changes().expect("reads");
        let now = owned(&view, project);
        let all = now.keys().chain(self.1.keys()).copied();
        let differ: BTreeSet<i64> =
            all.filter(|number| now.get(number) != self.1.get(number)).collect();
        let range = (project, 0)..(project, i64::MAX);
        let named: BTreeSet<i64> = changed.within(&range).map(|(_, number)| number).collect();
        assert!(named.is_superset(&differ), "{named:?} and not {differ:?}: {record:#?}");
        assert!(record.ops.len() > 1 || named == differ, "{named:?}, not {differ:?}: {record:#?}");
        self.1 = now;
    }
}

/// All entries of a project.
fn entries(overrides: &Overrides, project: ProjectId) -> SurvivorMap {
    let map = overrides.map_of(project, usize::MAX).expect("reads").expect("any number");
    map.survivors
}

/// Checks that what has changed between two states turns the entries of one into those of the other.
fn assert_told(project: ProjectId, a: &Overrides, b: &Overrides) {
    for (from, to) in [(a, b), (b, a)] {
        let changed = to.changes_since(project, from.at().expect("a state")).expect("reads");
        let mut map = entries(from, project);
        for (person, survivor) in changed.expect("few changes") {
            match person == survivor {
                true => map.remove(&person),
                false => map.insert(person, survivor),
            };
        }
        assert_eq!(map, entries(to, project));
    }
}

/// Applies records, and checks that it is told which overrides they change, and which have changed since `first`.
fn applied_records(
    identities: &Identities,
    project: ProjectId,
    records: &[Record],
    first: Option<&Overrides>,
) -> Vec<Warning> {
    let before = identities.overrides();
    let warnings = identities.apply(records).expect("applies").warnings;
    let after = identities.overrides();
    for other in first.into_iter().chain([&before]) {
        assert_told(project, other, &after);
    }
    warnings
}

/// Stored events: distinct ids, and the person that each was stored or folded with.
type Events = Vec<(String, Uuid)>;

/// Rewrites stored events as compaction does, with the current survivors.
fn fold(identities: &Identities, project: ProjectId, events: &mut Events) {
    let overrides = identities.overrides();
    for (id, person) in events {
        let owner = overrides.of_event(project, *person, id).expect("reads");
        *person = owner.unwrap_or(*person);
    }
}

fn assert_same(identities: &Identities, model: &Model, project: ProjectId, events: &Events) {
    let view = identities.view();
    for id in IDS {
        let person = view.person_of(project, id).expect("reads");
        assert_eq!(person, model.person_of(project, id), "{id}");
        let Some(person) = person else { continue };
        let ids = view.distinct_ids(project, person.uuid).expect("reads");
        assert_eq!(ids, model.ids_of(person.number), "{id}");
        let found = view.person_by_uuid(project, person.uuid).expect("reads");
        assert_eq!(found.as_ref(), Some(&person), "{id}");
    }
    for (_, person) in &model.persons {
        let Some(email) = person.properties.get("email") else { continue };
        let text = email.as_str().map_or_else(|| email.to_string(), str::to_owned);
        let found = view.persons_by_email(project, &text.to_uppercase()).expect("reads");
        let has_it = |other: &&Person| other.properties.get("email") == Some(email);
        let sorted = |mut persons: Vec<Person>| {
            persons.sort_by_key(|person| person.number);
            persons
        };
        let found = sorted(found.iter().filter(has_it).cloned().collect());
        let expected = model.persons.iter().map(|(_, other)| other).filter(has_it).cloned();
        assert_eq!(found, sorted(expected.collect()), "{text}");
    }
    for (number, (uuid, ids)) in owned(&view, project) {
        let names: Vec<&str> = ids.iter().map(|id| &*id.text).collect();
        assert_eq!(names, model.ids_of(number));
        for id in ids {
            let (owner, since) = model.since[&(project, id.text.to_string())];
            assert_eq!((owner, Some(since)), (uuid, id.since), "{}", id.text);
        }
    }
    let mut listed = Vec::new();
    let visit = |number| {
        listed.push(number);
        std::ops::ControlFlow::Continue(())
    };
    view.scan_listed(project, UnixMicros(i64::MAX), visit).expect("scans");
    let mut expected: Vec<&Person> = model.persons.iter().map(|(_, person)| person).collect();
    expected.sort_by_key(|person| std::cmp::Reverse((person.created_at, person.uuid)));
    assert_eq!(listed, expected.iter().map(|person| person.number).collect::<Vec<_>>());
    let mut deletions = Vec::new();
    let visit = |deletion: Deletion| {
        assert_eq!(deletion.done_at, None);
        deletions.push((project, deletion.person, deletion.asked_at));
        std::ops::ControlFlow::Continue(())
    };
    view.scan_deletions(project, visit).expect("scans");
    deletions.reverse();
    assert_eq!(deletions, model.deletions, "requests in their order");
    let pending = identities.deletions();
    for id in IDS {
        let limit = model.deleted.get(&(project, id.to_owned())).copied().unwrap_or(0);
        for position in [0, limit.saturating_sub(1), limit, limit + 1] {
            let found = pending.is_deleted(project, id, Origin::Log(position));
            assert_eq!(found, position < limit, "{id} at {position}");
        }
    }
    let count = usize::try_from(view.person_count(project).expect("reads")).expect("small");
    assert_eq!(count, model.persons.len());
    let overrides = identities.overrides();
    for (id, stored) in events {
        let owner = overrides.of_event(project, *stored, id).expect("reads").unwrap_or(*stored);
        let expected =
            model.person_of(project, id).map_or_else(|| uuid_of(project, id), |p| p.uuid);
        assert_eq!(owner, expected, "an event of {id}");
    }
}

/// Goal: persons, warnings, and the persons of stored events equal the model, however the log is
/// split into calls, and wherever the process ends in between.
#[test]
fn every_batching_gives_the_persons_of_the_model() {
    let seed = std::env::var_os("WEIR_SEQUENCES_SEED")
        .map_or_else(rand::random, |seed| seed.to_str().expect("text").parse().expect("a number"));
    println!("WEIR_SEQUENCES_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let directories = [(); 4].map(|()| tempfile::tempdir().expect("a directory"));
    let limits = [AMPLE, AMPLE, AMPLE, PARTS];
    let open = |at: usize| {
        let store = Identities::open(directories[at].path(), limits[at]).expect("opens");
        if at.is_multiple_of(2) {
            store.read_overrides(|| true).expect("reads");
        }
        store
    };
    let mut stores: Vec<Option<Identities>> = (0..limits.len()).map(|at| Some(open(at))).collect();
    let (mut applied, mut born) = (0, 0);
    for number in 0..SEQUENCES {
        let project = ProjectId(i64::try_from(number).expect("small") + 1);
        let records = sequence(&mut random, project, applied);
        let mut model = Model::default();
        (model.applied, model.born) = (applied, born);
        records.iter().for_each(|record| model.feed(record));
        let restart = number % RESTART_EVERY == RESTART_EVERY - 1;
        let cut = random.random_range(0..records.len());
        let mut watch = stores.get(1).and_then(Option::as_ref).map(|store| {
            let (feed, view) = store.watch(Watched::DistinctIds);
            Watch(feed, owned(&view, project))
        });
        for (at, store) in stores.iter_mut().enumerate() {
            let mut warnings: Vec<Warning> = Vec::new();
            let mut events = Events::new();
            let mut rest = records.as_slice();
            let mut first = Some(store.as_ref().expect("open").overrides());
            while !rest.is_empty() {
                let take = match at {
                    0 => rest.len(),
                    1 => 1,
                    _ => random.random_range(1..=rest.len()),
                };
                let (now, later) = rest.split_at(take);
                if at == 3 && restart {
                    // The process ends after any part of the next records.
                    first = None;
                    let identities = store.take().expect("open");
                    let parts = random.random_range(0..4);
                    warnings.extend(identities.apply_parts(now, parts).expect("applies"));
                    drop(identities);
                    *store = Some(open(at));
                }
                let identities = store.as_ref().expect("open");
                warnings.extend(applied_records(identities, project, now, first.as_ref()));
                if let (1, [record], Some(watch)) = (at, now, &mut watch) {
                    watch.check(project, record);
                }
                let ids = now.iter().flat_map(|record| &record.ops).map(|op| &op.distinct_id);
                events.extend(ids.map(|id| (id.clone(), uuid_of(project, id))));
                if random.random_bool(0.3) {
                    fold(identities, project, &mut events);
                }
                rest = later;
                if at == 2 && restart && records.len() - rest.len() >= cut {
                    (first, *store) = (None, None);
                    *store = Some(open(at));
                    // The replay begins earlier than necessary.
                    store
                        .as_ref()
                        .expect("open")
                        .apply(&records[..records.len() - rest.len()])
                        .expect("applies");
                }
            }
            let identities = store.as_ref().expect("open");
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                assert_eq!(warnings, model.warnings);
                assert_same(identities, &model, project, &events);
            }));
            if let Err(panic) = checked {
                println!("sequence {number} in store {at}: {records:#?}");
                std::panic::resume_unwind(panic);
            }
        }
        (applied, born) = (model.applied, model.born);
    }
}
