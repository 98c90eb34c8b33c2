//! Persons of events as numbers: [`PersonNumbers`], for plans that count and sort by persons.
//!
//! A query that looks at many events asks for each whose it is. Comparing, hashing and keeping the text of a uuid for
//! each row costs more than reading the row. So each uuid that events were stored with gets the number of the person
//! that it belongs to today: merges are looked up once for each uuid, not for each event, and what comes after works
//! on four bytes. Numbers are those of one view.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, StringViewArray, UInt32Array};
use arrow::datatypes::{DataType, UInt32Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility, create_udf,
};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use parking_lot::RwLock;
use uuid::Uuid;

use crate::events::resolve_person::{Gives, ResolvePerson, Survivors, person_of_key};
use weir_event::id::ProjectId;
use weir_identity::overrides::Overrides;

/// A row whose number is not known yet. No person has it.
const UNKNOWN: u32 = u32::MAX;

/// The persons of a project as of one view, numbered from 0 on in the order in which they are met. Takes no memory
/// before the first.
#[derive(Debug)]
pub struct PersonNumbers {
    project: ProjectId,
    overrides: Arc<Overrides>,
    hasher: RandomState,
    known: RwLock<Known>,
}

#[derive(Debug)]
struct Known {
    /// The number of each uuid that events were stored with, but of those whose events belong to several persons.
    stored: HashTable<(Uuid, u32)>,
    /// The number of each person, who is in `persons` there.
    numbers: HashTable<u32>,
    persons: Vec<Uuid>,
    memory: MemoryReservation,
}

impl PersonNumbers {
    /// None yet. Their memory is of `pool`.
    pub(crate) fn new(
        project: ProjectId,
        overrides: Arc<Overrides>,
        pool: &Arc<dyn MemoryPool>,
    ) -> Self {
        let memory = MemoryConsumer::new("numbers of persons").register(pool);
        Self::with(project, overrides, memory)
    }

    fn with(project: ProjectId, overrides: Arc<Overrides>, memory: MemoryReservation) -> Self {
        let known = Known {
            stored: HashTable::new(),
            numbers: HashTable::new(),
            persons: Vec::new(),
            memory,
        };
        Self { project, overrides, hasher: RandomState::default(), known: RwLock::new(known) }
    }

    /// None yet, of the same view and with memory of the same pool.
    pub(crate) fn anew(&self) -> Self {
        let (project, overrides) = (self.project, Arc::clone(&self.overrides));
        let memory = self.known.read().memory.new_empty();
        Self::with(project, overrides, memory)
    }

    /// The person with a number.
    pub fn person(&self, number: u32) -> Option<Uuid> {
        self.known.read().persons.get(usize::try_from(number).ok()?).copied()
    }

    /// The number of the person that each event belongs to, by the uuid that it was stored with, and by its distinct
    /// id where persons were split; null where there is none. A person of today has the number of its events.
    fn numbers(
        &self,
        stored: &StringViewArray,
        distinct_ids: Option<&StringViewArray>,
    ) -> Result<UInt32Array> {
        let uuids: Vec<Option<Uuid>> = stored
            .iter()
            .map(|text| text.and_then(|text| Uuid::try_parse_ascii(text.as_bytes()).ok()))
            .collect();
        let mut numbers = self.known_numbers(&uuids);
        let mut missing = Vec::new();
        for (row, (uuid, number)) in uuids.iter().zip(&numbers).enumerate() {
            let Some(uuid) = uuid.filter(|_| *number == UNKNOWN) else { continue };
            let is_split = self.overrides.is_split(self.project, uuid);
            let person = match distinct_ids {
                Some(ids) => self.overrides.of_event(self.project, uuid, ids.value(row)),
                None => self.overrides.get(self.project, uuid),
            };
            let person = person.map_err(|error| DataFusionError::External(Box::new(error)))?;
            missing.push((row, (!is_split).then_some(uuid), person.unwrap_or(uuid)));
        }
        if !missing.is_empty() {
            let mut known = self.known.write();
            known.make_room(missing.len(), &self.hasher)?;
            for (row, stored, person) in missing {
                let number = known.add(person, &self.hasher)?;
                if let Some(stored) = stored {
                    known.remember(stored, number, &self.hasher);
                }
                if let Some(own) = numbers.get_mut(row) {
                    *own = number;
                }
            }
        }
        Ok(numbers.into_iter().map(|number| (number != UNKNOWN).then_some(number)).collect())
    }

    /// The numbers that need no look at merges; [`UNKNOWN`] for all others.
    fn known_numbers(&self, uuids: &[Option<Uuid>]) -> Vec<u32> {
        let known = self.known.read();
        let number = |uuid: &Option<Uuid>| {
            let uuid = uuid.as_ref()?;
            let found = known.stored.find(self.hasher.hash_one(uuid), |(own, _)| own == uuid)?;
            Some(found.1)
        };
        uuids.iter().map(|uuid| number(uuid).unwrap_or(UNKNOWN)).collect()
    }

    /// The number of the person of an event, by the columns `person_id` as it is stored and `distinct_id`, which may be
    /// left out where nobody was ever split; or by the `person_id` of today alone.
    pub(crate) fn of_event(self: &Arc<Self>, arguments: Vec<Expr>) -> Expr {
        let takes = vec![DataType::Utf8View; arguments.len()];
        let signature = Signature::exact(takes, Volatility::Immutable);
        let function = NumberOfPerson { numbers: Arc::clone(self), signature };
        ScalarUDF::new_from_impl(function).call(arguments)
    }

    /// The numbers of the persons with these keys.
    pub(crate) fn of_keys(&self, keys: &Decimal128Array) -> Result<UInt32Array> {
        let persons = || keys.iter().map(|key| key.map(person_of_key));
        let known = self.known.read();
        let number = |person: Option<Uuid>| known.find(person?, &self.hasher);
        let mut numbers: Vec<Option<u32>> = persons().map(number).collect();
        drop(known);
        let missing = numbers.iter().filter(|number| number.is_none()).count();
        if missing > keys.null_count() {
            let mut known = self.known.write();
            known.make_room(missing, &self.hasher)?;
            for (number, person) in numbers.iter_mut().zip(persons()) {
                if let (None, Some(person)) = (&number, person) {
                    *number = Some(known.add(person, &self.hasher)?);
                }
            }
        }
        Ok(numbers.into())
    }

    /// The uuid of the person with a number: a text.
    pub(crate) fn uuid_of(self: &Arc<Self>, number: Expr) -> Expr {
        let numbers = Arc::clone(self);
        let invoke = move |arguments: &[ColumnarValue]| {
            let arrays = ColumnarValue::values_to_arrays(arguments)?;
            let given = arrays.first().and_then(|array| array.as_primitive_opt::<UInt32Type>());
            let uuid =
                |number: Option<u32>| Some(numbers.person(number?)?.hyphenated().to_string());
            let uuids: StringViewArray = given.into_iter().flatten().map(uuid).collect();
            Ok(ColumnarValue::Array(Arc::new(uuids) as ArrayRef))
        };
        let (takes, gives) = (vec![DataType::UInt32], DataType::Utf8View);
        create_udf("uuid_of_person", takes, gives, Volatility::Immutable, Arc::new(invoke))
            .call(vec![number])
    }
}

/// `number_of_person(person_id[, distinct_id])`.
#[derive(Debug)]
struct NumberOfPerson {
    numbers: Arc<PersonNumbers>,
    signature: Signature,
}

/// The function that returns the keys of persons whose numbers `function` returns; `None` for other functions.
pub(crate) fn keys_of(function: &ScalarUDF) -> Option<ScalarUDF> {
    let own = function.inner().downcast_ref::<NumberOfPerson>()?;
    let PersonNumbers { project, overrides, .. } = &*own.numbers;
    let arguments = match &own.signature.type_signature {
        TypeSignature::Exact(types) => types.len(),
        _ => return None,
    };
    let survivors = Survivors::Store(Arc::clone(overrides));
    Some(ResolvePerson::function((*project, survivors), arguments, Gives::Key))
}

/// Two give the same numbers if these are of the same view.
impl PartialEq for NumberOfPerson {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.numbers, &other.numbers) && self.signature == other.signature
    }
}

impl Eq for NumberOfPerson {}

impl Hash for NumberOfPerson {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.numbers).hash(state);
    }
}

impl ScalarUDFImpl for NumberOfPerson {
    fn name(&self) -> &'static str {
        "number_of_person"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt32)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let mut texts = arrays.iter().map(|array| array.as_string_view());
        let missing = || DataFusionError::Internal("there is no person to number".to_owned());
        let persons = texts.next().ok_or_else(missing)?;
        Ok(ColumnarValue::Array(Arc::new(self.numbers.numbers(persons, texts.next())?)))
    }
}

impl Known {
    /// Makes room for so many more uuids and persons.
    fn make_room(&mut self, more: usize, hasher: &RandomState) -> Result<()> {
        let has_room = self.stored.len() + more <= self.stored.capacity()
            && self.numbers.len() + more <= self.numbers.capacity()
            && self.persons.len() + more <= self.persons.capacity();
        if has_room {
            return Ok(());
        }
        // While they move there are two of each.
        let wanted = self.persons.len().max(self.stored.len()) + more;
        let grown = grown_table_bytes(wanted, size_of::<(Uuid, u32)>())
            .saturating_add(grown_table_bytes(wanted, size_of::<u32>()))
            .saturating_add(wanted.next_power_of_two().saturating_mul(size_of::<Uuid>()));
        self.memory.try_resize(self.bytes().saturating_add(grown))?;
        self.stored.reserve(more, |(uuid, _)| hasher.hash_one(uuid));
        let Self { numbers, persons, .. } = self;
        numbers.reserve(more, |number| hasher.hash_one(person_at(persons, *number)));
        persons.reserve(more);
        self.memory.try_resize(self.bytes())
    }

    fn bytes(&self) -> usize {
        bytes(self.stored.capacity(), self.numbers.capacity(), self.persons.capacity())
    }

    /// The number of a person of today, if it has one.
    fn find(&self, person: Uuid, hasher: &RandomState) -> Option<u32> {
        let is_own = |number: &u32| person_at(&self.persons, *number) == person;
        self.numbers.find(hasher.hash_one(person), is_own).copied()
    }

    /// The number of a person of today, which gets one if it has none.
    fn add(&mut self, person: Uuid, hasher: &RandomState) -> Result<u32> {
        if let Some(number) = self.find(person, hasher) {
            return Ok(number);
        }
        let Self { numbers, persons, .. } = self;
        let number = u32::try_from(persons.len()).ok().filter(|number| *number != UNKNOWN);
        let too_many = || DataFusionError::ResourcesExhausted("too many persons".to_owned());
        let number = number.ok_or_else(too_many)?;
        persons.push(person);
        let hash = hasher.hash_one(person);
        numbers.insert_unique(hash, number, |number| hasher.hash_one(person_at(persons, *number)));
        Ok(number)
    }

    fn remember(&mut self, stored: Uuid, number: u32, hasher: &RandomState) {
        let hash = hasher.hash_one(stored);
        let entry =
            self.stored.entry(hash, |(own, _)| *own == stored, |(own, _)| hasher.hash_one(own));
        entry.or_insert((stored, number));
    }
}

fn person_at(persons: &[Uuid], number: u32) -> Uuid {
    let at = usize::try_from(number).unwrap_or(usize::MAX);
    persons.get(at).copied().unwrap_or_default()
}

fn bytes(stored: usize, numbers: usize, persons: usize) -> usize {
    table_bytes(stored, size_of::<(Uuid, u32)>())
        .saturating_add(table_bytes(numbers, size_of::<u32>()))
        .saturating_add(persons.saturating_mul(size_of::<Uuid>()))
}

/// Memory of a hash table with room for so many entries of this size: each has a byte for its place, and one place in eight
/// stays free.
pub(crate) fn table_bytes(entries: usize, entry_bytes: usize) -> usize {
    entries.saturating_mul(entry_bytes + 1) / 7 * 8
}

/// Memory of a hash table that has grown to have room for so many entries: the number of its places is a power of two.
pub(crate) fn grown_table_bytes(entries: usize, entry_bytes: usize) -> usize {
    let places = entries.saturating_mul(8).div_ceil(7).checked_next_power_of_two();
    places.unwrap_or(usize::MAX).saturating_mul(entry_bytes + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::StringViewArray;
    use datafusion::error::DataFusionError;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use uuid::Uuid;

    use super::PersonNumbers;
    use weir_base::clock::UnixMicros;
    use weir_event::id::{PersonId, ProjectId};
    use weir_identity::change::{Force, Keep, Op, OpKind, Record, Update};
    use weir_identity::limits::Limits;
    use weir_identity::store::Identities;

    const PROJECT: ProjectId = ProjectId(1);
    const IDS: u32 = 2000;

    fn id(number: u32) -> String {
        format!("id {number}")
    }

    /// The uuid of the person that an id has at first.
    fn own(number: u32) -> Uuid {
        PersonId::of(PROJECT, &id(number)).0
    }

    fn apply(identities: &Identities, sequence: u64, ops: Vec<(String, OpKind)>) {
        let op = |(distinct_id, kind)| Op {
            distinct_id,
            event_id: Uuid::nil(),
            timestamp: UnixMicros(1),
            kind,
        };
        let ops = ops.into_iter().map(op).collect();
        identities.apply(&[Record { sequence, project: PROJECT, ops }]).unwrap();
    }

    fn numbers(identities: &Identities, bytes: usize) -> PersonNumbers {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        PersonNumbers::new(PROJECT, Arc::new(identities.overrides()), &pool)
    }

    /// Goal: each event has the number of the person that its distinct id belongs to, whatever it was stored with, and
    /// each person one number. Method: random merges and splits, beside the persons of the view; several threads.
    #[test]
    fn events_have_the_numbers_of_their_persons() {
        let directory = tempfile::tempdir().unwrap();
        let identities = Identities::open(directory.path(), Limits::SMALL).unwrap();
        let mut rng = StdRng::seed_from_u64(9);
        apply(&identities, 1, (0..IDS).map(|number| (id(number), OpKind::Touch)).collect());
        // What an event of each id may have been stored with: its own person, and all that it was merged into.
        let mut stored: Vec<Vec<Uuid>> = (0..IDS).map(|number| vec![own(number)]).collect();
        for sequence in 2..600 {
            let at = rng.random_range(0..IDS);
            let kind = match rng.random_bool(0.8) {
                true => OpKind::Merge {
                    other: id(rng.random_range(0..IDS)),
                    force: Force::Yes,
                    update: Update::default(),
                },
                false => {
                    let person = identities.view().person_of(PROJECT, &id(at)).unwrap().unwrap();
                    OpKind::Split { person: person.uuid, keep: Keep::One(id(at)) }
                }
            };
            let of_event =
                if matches!(kind, OpKind::Split { .. }) { String::new() } else { id(at) };
            apply(&identities, sequence, vec![(of_event, kind)]);
            for (number, stored) in (0..IDS).zip(&mut stored) {
                if sequence % 60 == 0 {
                    let person =
                        identities.view().person_of(PROJECT, &id(number)).unwrap().unwrap();
                    stored.push(person.uuid);
                }
            }
        }
        let mut events = Vec::new();
        for (number, stored) in (0..IDS).zip(&stored) {
            events.extend(stored.iter().map(|uuid| (*uuid, number)));
        }
        let view = identities.view();
        let numbers = numbers(&identities, 64 << 20);
        let ask = |events: &[(Uuid, u32)]| {
            let uuids: StringViewArray =
                events.iter().map(|(uuid, _)| Some(uuid.to_string())).collect();
            let ids: StringViewArray = events.iter().map(|(_, number)| Some(id(*number))).collect();
            let found = numbers.numbers(&uuids, Some(&ids)).unwrap();
            found.values().to_vec()
        };
        let found = std::thread::scope(|scope| {
            let (first, second) = events.split_at(events.len() / 2);
            let all = scope.spawn(|| events.chunks(1000).flat_map(&ask).collect::<Vec<u32>>());
            let halves: Vec<u32> = [second, first].into_iter().flat_map(&ask).collect();
            let all = all.join().unwrap();
            assert_eq!(all.get(first.len()..), halves.get(..second.len()));
            assert_eq!(all.get(..first.len()), halves.get(second.len()..));
            all
        });
        let mut of_person = BTreeMap::new();
        for ((_, number), found) in events.iter().zip(found) {
            let person = view.person_of(PROJECT, &id(*number)).unwrap().unwrap().uuid;
            assert_eq!(numbers.person(found), Some(person));
            assert_eq!(*of_person.entry(person).or_insert(found), found, "one number");
        }
        assert!(of_person.len() < 1900, "some were merged: {}", of_person.len());
    }

    /// Goal: no more memory than the pool gives, and the error says so.
    #[test]
    fn numbers_stay_within_their_memory() {
        let directory = tempfile::tempdir().unwrap();
        let identities = Identities::open(directory.path(), Limits::SMALL).unwrap();
        let uuids: StringViewArray =
            (0..30_000).map(|number| Some(own(number).to_string())).collect();
        let found = numbers(&identities, 8 << 20).numbers(&uuids, None).unwrap();
        assert_eq!((found.value(0), found.value(29_999)), (0, 29_999));
        let error = numbers(&identities, 1 << 20).numbers(&uuids, None).unwrap_err();
        assert!(matches!(error, DataFusionError::ResourcesExhausted(_)), "{error}");
        let text: StringViewArray = [None, Some("nobody")].into_iter().collect();
        let nobody = numbers(&identities, 8 << 20).numbers(&text, None).unwrap();
        assert_eq!(arrow::array::Array::null_count(&nobody), 2);
    }
}
