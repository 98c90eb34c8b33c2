//! Persons of events as numbers: [`PersonNumbers`], for plans that count and sort by persons.
//!
//! A query that looks at many events asks for each whose it is. Comparing, hashing and keeping the text of a uuid for
//! each row costs more than reading the row. So each uuid that events were stored with gets the number of the person
//! that it belongs to today: merges are looked up once for each uuid, not for each event, and what comes after works
//! on four bytes. Numbers are those of one view.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::AsArray;
use arrow::array::StringViewArray;
use arrow::array::UInt32Array;
use arrow::datatypes::DataType;
use arrow::datatypes::UInt32Type;
use datafusion::error::DataFusionError;
use datafusion::error::Result;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::ColumnarValue;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::ScalarFunctionArgs;
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::ScalarUDFImpl;
use datafusion::logical_expr::Signature;
use datafusion::logical_expr::Volatility;
use datafusion::logical_expr::create_udf;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use parking_lot::RwLock;
use uuid::Uuid;

use crate::event::id::ProjectId;
use crate::identity::overrides::Overrides;

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
    pub(super) fn new(
        project: ProjectId,
        overrides: Arc<Overrides>,
        pool: &Arc<dyn MemoryPool>,
    ) -> Self {
        let known = Known {
            stored: HashTable::new(),
            numbers: HashTable::new(),
            persons: Vec::new(),
            memory: MemoryConsumer::new("numbers of persons").register(pool),
        };
        Self { project, overrides, hasher: RandomState::default(), known: RwLock::new(known) }
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
    pub fn of_event(self: &Arc<Self>, person: Expr, distinct_id: Option<Expr>) -> Expr {
        let arguments: Vec<Expr> = std::iter::once(person).chain(distinct_id).collect();
        let types = vec![DataType::Utf8View; arguments.len()];
        let signature = Signature::exact(types, Volatility::Immutable);
        let function = NumberOfPerson { numbers: Arc::clone(self), signature };
        ScalarUDF::new_from_impl(function).call(arguments)
    }

    /// The uuid of the person with a number: a text.
    pub(super) fn uuid_of(self: &Arc<Self>, number: Expr) -> Expr {
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

impl Known {
    /// Makes room for so many more uuids and persons.
    fn make_room(&mut self, more: usize, hasher: &RandomState) -> Result<()> {
        let has_room = self.stored.len() + more <= self.stored.capacity()
            && self.numbers.len() + more <= self.numbers.capacity()
            && self.persons.len() + more <= self.persons.capacity();
        if has_room {
            return Ok(());
        }
        // Tables double, and while they move there are two.
        let wanted = (self.persons.len().max(self.stored.len()) + more).next_power_of_two();
        self.memory.try_resize(self.bytes().saturating_add(bytes(wanted, wanted, wanted)))?;
        self.stored.reserve(more, |(uuid, _)| hasher.hash_one(uuid));
        let Self { numbers, persons, .. } = self;
        numbers.reserve(more, |number| hasher.hash_one(person_at(persons, *number)));
        persons.reserve(more);
        self.memory.try_resize(self.bytes())
    }

    fn bytes(&self) -> usize {
        bytes(self.stored.capacity(), self.numbers.capacity(), self.persons.capacity())
    }

    /// The number of a person of today.
    fn add(&mut self, person: Uuid, hasher: &RandomState) -> Result<u32> {
        let Self { numbers, persons, .. } = self;
        let hash = hasher.hash_one(person);
        if let Some(number) = numbers.find(hash, |number| person_at(persons, *number) == person) {
            return Ok(*number);
        }
        let number = u32::try_from(persons.len()).ok().filter(|number| *number != UNKNOWN);
        let too_many = || DataFusionError::ResourcesExhausted("too many persons".to_owned());
        let number = number.ok_or_else(too_many)?;
        persons.push(person);
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

/// Memory of tables for so many entries: one byte for each place of a hash table besides its value.
fn bytes(stored: usize, numbers: usize, persons: usize) -> usize {
    let of_table = |entries: usize, bytes: usize| entries.saturating_mul(bytes + 1) / 7 * 8;
    of_table(stored, size_of::<(Uuid, u32)>())
        .saturating_add(of_table(numbers, size_of::<u32>()))
        .saturating_add(persons.saturating_mul(size_of::<Uuid>()))
}

/// `number_of_person(person_id[, distinct_id])`.
#[derive(Debug)]
struct NumberOfPerson {
    numbers: Arc<PersonNumbers>,
    signature: Signature,
}

impl PartialEq for NumberOfPerson {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.numbers, &other.numbers) && self.signature == other.signature
    }
}

impl Eq for NumberOfPerson {}

impl std::hash::Hash for NumberOfPerson {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.numbers).hash(state);
    }
}

impl ScalarUDFImpl for NumberOfPerson {
    fn name(&self) -> &str {
        "number_of_person"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt32)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays: Vec<ArrayRef> = arguments
            .args
            .into_iter()
            .map(|argument| argument.into_array(rows))
            .collect::<Result<_>>()?;
        let mut texts = arrays.iter().map(|array| array.as_string_view());
        let missing = || DataFusionError::Internal("number_of_person takes a person".to_owned());
        let persons = texts.next().ok_or_else(missing)?;
        let numbers = self.numbers.numbers(persons, texts.next())?;
        Ok(ColumnarValue::Array(Arc::new(numbers)))
    }
}
