//! A snapshot of the state at one applied sequence. All reads of one view are consistent.
//!
//! A view keeps old rows on disk from being reclaimed: drop it soon. Reads may touch the disk;
//! async code calls them on a blocking thread unless a few hundred microseconds are acceptable.
//! Where a method fails "if the database fails", [`IdentityError::Reopening`] is included.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use uuid::Uuid;

use crate::cache::IdState;
use crate::codec::Counters;
use crate::deletions::Deletion;
use crate::person::{DistinctId, Group, Person};
use crate::reading::Reading;
use crate::row::Row;
use crate::{IdentityError, codec};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;

pub use crate::codec::Point as Moment;

/// Whether a scan continues.
pub type Flow = ControlFlow<()>;

/// A snapshot of the state.
pub struct View {
    reading: Reading,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl View {
    pub(super) fn new(reading: Reading) -> Self {
        Self { reading }
    }

    /// The view of a closed database: every read fails.
    pub(super) fn closed() -> Self {
        Self { reading: Reading::closed() }
    }

    /// Sequence of the last record that this view contains.
    pub fn applied_sequence(&self) -> Result<u64, IdentityError> {
        Ok(self.counters()?.applied)
    }

    /// The state of this view among those of the store: one record may lead over several.
    pub fn moment(&self) -> Result<Moment, IdentityError> {
        Ok(self.counters()?.point())
    }

    /// The person that has this distinct id.
    pub fn person_of(
        &self,
        project: ProjectId,
        distinct_id: &str,
    ) -> Result<Option<Person>, IdentityError> {
        match self.id(project, distinct_id)? {
            IdState::Person(number) => self.person_by_number(project, number),
            IdState::Unknown | IdState::Personless => Ok(None),
        }
    }

    /// As [`View::person_of`], for frequent reads of the same persons: decoded persons are cached
    /// and shared.
    pub fn shared_person_of(
        &self,
        project: ProjectId,
        distinct_id: &str,
    ) -> Result<Option<Arc<Person>>, IdentityError> {
        let IdState::Person(number) = self.id(project, distinct_id)? else { return Ok(None) };
        let key = codec::key(project, &[&number.to_be_bytes()]);
        let row = self.reading.get(|tables| &tables.persons, key)?;
        row.map(|row| self.reading.decoded()?.person(number, &row)).transpose()
    }

    /// The person with this uuid. A person that was merged away has none; see
    /// [`Overrides`](crate::overrides::Overrides) for its survivor.
    pub fn person_by_uuid(
        &self,
        project: ProjectId,
        uuid: Uuid,
    ) -> Result<Option<Person>, IdentityError> {
        match self.number_of(project, uuid)? {
            Some(number) => self.person_by_number(project, number),
            None => Ok(None),
        }
    }

    /// The person with this integer id.
    pub fn person_by_number(
        &self,
        project: ProjectId,
        number: i64,
    ) -> Result<Option<Person>, IdentityError> {
        let key = codec::key(project, &[&number.to_be_bytes()]);
        let row = self.reading.get(|tables| &tables.persons, key)?;
        row.map(|row| codec::decode_person(number, &row)).transpose()
    }

    /// All distinct ids of a person, in the order in which persons got them; empty if there is no
    /// such person.
    pub fn distinct_ids(
        &self,
        project: ProjectId,
        uuid: Uuid,
    ) -> Result<Vec<String>, IdentityError> {
        let Some(number) = self.number_of(project, uuid)? else {
            return Ok(Vec::new());
        };
        let ids = self.positioned_ids(project, number)?;
        Ok(ids.into_iter().map(|(_, id)| id.text.into_string()).collect())
    }

    /// Visits all persons of a project in the order of their numbers, until `visit` breaks. Holds
    /// one person in memory at a time.
    pub fn scan_persons(
        &self,
        project: ProjectId,
        mut visit: impl FnMut(Person) -> Flow,
    ) -> Result<(), IdentityError> {
        for entry in self.reading.prefix(|tables| &tables.persons, codec::key(project, &[]))? {
            let (key, row) = entry?.into_inner()?;
            let person = codec::decode_person(codec::decode_person_key(&key)?.1, &row)?;
            if visit(person).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the rows of the persons of a project whose numbers are in `numbers`, ascending, until
    /// `visit` breaks.
    pub fn scan_rows(
        &self,
        project: ProjectId,
        numbers: Range<i64>,
        mut visit: impl FnMut(&Row<'_>) -> Result<Flow, IdentityError>,
    ) -> Result<(), IdentityError> {
        let key = |number: i64| codec::key(project, &[&number.to_be_bytes()]);
        // The database does not accept a range that ends before it begins.
        let numbers = numbers.start..numbers.end.max(numbers.start);
        for entry in
            self.reading.range(|tables| &tables.persons, key(numbers.start)..key(numbers.end))?
        {
            let (key, row) = entry?.into_inner()?;
            if visit(&Row::new(codec::decode_person_key(&key)?.1, &row)?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the rows of the persons of a project, the newest number first, until `visit` breaks.
    pub fn scan_newest_rows(
        &self,
        project: ProjectId,
        mut visit: impl FnMut(&Row<'_>) -> Result<Flow, IdentityError>,
    ) -> Result<(), IdentityError> {
        for entry in self.reading.prefix(|tables| &tables.persons, codec::key(project, &[]))?.rev()
        {
            let (key, row) = entry?.into_inner()?;
            if visit(&Row::new(codec::decode_person_key(&key)?.1, &row)?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the row of one person with `ask`; `None` if there is no such person.
    pub fn ask_row<T>(
        &self,
        project: ProjectId,
        number: i64,
        ask: impl FnOnce(&Row<'_>) -> T,
    ) -> Result<Option<T>, IdentityError> {
        let key = codec::key(project, &[&number.to_be_bytes()]);
        let row = self.reading.get(|tables| &tables.persons, key)?;
        row.map(|row| Ok(ask(&Row::new(number, &row)?))).transpose()
    }

    /// The number of the next new person, in any project: all persons have smaller numbers.
    pub fn next_number(&self) -> Result<i64, IdentityError> {
        Ok(self.counters()?.next_person)
    }

    /// Visits the numbers of the persons of a project in the order of lists, `created_at`
    /// descending and then uuid descending, until `visit` breaks. Persons created after `newest`
    /// are left out. Reads no rows of persons.
    pub fn scan_listed(
        &self,
        project: ProjectId,
        newest: UnixMicros,
        mut visit: impl FnMut(i64) -> Flow,
    ) -> Result<(), IdentityError> {
        let first = codec::listed_key(project, newest, Uuid::max());
        let last = codec::listed_key(project, UnixMicros(i64::MIN), Uuid::nil());
        for entry in self.reading.range(|tables| &tables.listed, first..=last)? {
            let (_, number) = entry?.into_inner()?;
            if visit(codec::number(&number, "listed person")?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The persons whose property `email` has this text, ignoring case, in the order of their
    /// numbers.
    pub fn persons_by_email(
        &self,
        project: ProjectId,
        email: &str,
    ) -> Result<Vec<Person>, IdentityError> {
        let hash = codec::email_hash(&serde_json::Value::from(email));
        let prefix = codec::key(project, &[hash.as_bytes()]);
        let mut persons = Vec::new();
        for entry in self.reading.prefix(|tables| &tables.emails, prefix)? {
            let number = codec::decode_email_key(&entry?.key()?)?;
            let person = self.person_by_number(project, number)?;
            let own = |person: &Person| person.properties.get(codec::EMAIL).map(codec::email_hash);
            persons.extend(person.filter(|person| own(person) == Some(hash)));
        }
        Ok(persons)
    }

    /// Number of persons of a project that were created after `newest`, for example with a wrong
    /// clock. Takes time in proportion to their number.
    pub fn count_created_after(
        &self,
        project: ProjectId,
        newest: UnixMicros,
    ) -> Result<u64, IdentityError> {
        let first = codec::key(project, &[]);
        let last = codec::listed_key(project, newest, Uuid::max());
        let mut count = 0;
        for entry in self.reading.range(|tables| &tables.listed, first..last)? {
            entry?.key()?;
            count += 1;
        }
        Ok(count)
    }

    /// The first distinct ids of a person, at most `limit`, in the order in which persons got them.
    pub fn first_ids(
        &self,
        project: ProjectId,
        number: i64,
        limit: usize,
    ) -> Result<Vec<String>, IdentityError> {
        let prefix = codec::key(project, &[&number.to_be_bytes()]);
        let entries = self.reading.prefix(|tables| &tables.person_ids, prefix)?.take(limit);
        let text = |value: &[u8]| Ok(codec::decode_distinct_id(value)?.text.into_string());
        entries.map(|entry| text(&entry?.into_inner()?.1)).collect()
    }

    /// Visits all distinct ids of a project with the numbers of their persons, in the order of the
    /// numbers, until `visit` breaks. To be joined with [`View::scan_persons`].
    pub fn scan_distinct_ids(
        &self,
        project: ProjectId,
        mut visit: impl FnMut(i64, String) -> Flow,
    ) -> Result<(), IdentityError> {
        for entry in self.reading.prefix(|tables| &tables.person_ids, codec::key(project, &[]))? {
            let (key, id) = entry?.into_inner()?;
            let (number, _) = codec::decode_person_id_key(&key)?;
            if visit(number, codec::decode_distinct_id(&id)?.text.into_string()).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits the rows of the persons of a project whose numbers are in `numbers`, ascending, with their
    /// distinct ids in the order in which persons got them, until `visit` breaks. One pass over both.
    pub fn scan_rows_with_ids(
        &self,
        project: ProjectId,
        numbers: Range<i64>,
        mut visit: impl FnMut(&Row<'_>, &[DistinctId]) -> Result<Flow, IdentityError>,
    ) -> Result<(), IdentityError> {
        let key = |number: i64| codec::key(project, &[&number.to_be_bytes()]);
        let range = key(numbers.start)..key(numbers.end.max(numbers.start));
        let ids = self.reading.range(|tables| &tables.person_ids, range)?;
        let mut ids = ids.map(|entry| {
            let (key, id) = entry?.into_inner()?;
            let (number, _) = codec::decode_person_id_key(&key)?;
            Ok::<_, IdentityError>((number, codec::decode_distinct_id(&id)?))
        });
        let (mut next, mut own) = (ids.next().transpose()?, Vec::new());
        self.scan_rows(project, numbers, |row| {
            own.clear();
            while let Some((owner, id)) = next.take_if(|(owner, _)| *owner <= row.number) {
                if owner == row.number {
                    own.push(id);
                }
                next = ids.next().transpose()?;
            }
            visit(row, &own)
        })
    }

    /// Visits the requests to delete events of a project, the newest first, until `visit` breaks.
    pub fn scan_deletions(
        &self,
        project: ProjectId,
        mut visit: impl FnMut(Deletion) -> Flow,
    ) -> Result<(), IdentityError> {
        for entry in
            self.reading.prefix(|tables| &tables.deletions, codec::key(project, &[]))?.rev()
        {
            let (_, row) = entry?.into_inner()?;
            if visit(codec::decode_deletion(&row)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Number of persons of a project. A counter, not a scan.
    pub fn person_count(&self, project: ProjectId) -> Result<u64, IdentityError> {
        let key = codec::meta_key(codec::COUNT_PREFIX, project);
        let Some(count) = self.reading.get(|tables| &tables.meta, key)? else {
            return Ok(0);
        };
        let count = codec::number(&count, "person count")?;
        u64::try_from(count).map_err(|_| IdentityError::Damaged { what: "person count" })
    }

    /// A group by the index of its type and its key.
    pub fn group(
        &self,
        project: ProjectId,
        type_index: u8,
        key: &str,
    ) -> Result<Option<Group>, IdentityError> {
        if key.len() > codec::TEXT_MAX_BYTES {
            return Ok(None);
        }
        let key = codec::key(project, &[&[type_index], key.as_bytes()]);
        let row = self.reading.get(|tables| &tables.groups, key)?;
        row.map(|row| codec::decode_group(&row)).transpose()
    }

    /// Visits the groups of one type, in the order of their keys, until `visit` breaks.
    pub fn scan_groups_of(
        &self,
        project: ProjectId,
        type_index: u8,
        mut visit: impl FnMut(String, Group) -> Flow,
    ) -> Result<(), IdentityError> {
        let prefix = codec::key(project, &[&[type_index]]);
        for entry in self.reading.prefix(|tables| &tables.groups, &prefix)? {
            let (key, row) = entry?.into_inner()?;
            let damaged = IdentityError::Damaged { what: "group key" };
            let key =
                codec::text(key.strip_prefix(prefix.as_slice()).ok_or(damaged)?, "group key")?;
            if visit(key, codec::decode_group(&row)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Visits all groups of a project, in the order of type index and key, until `visit` breaks.
    pub fn scan_groups(
        &self,
        project: ProjectId,
        mut visit: impl FnMut(u8, String, Group) -> Flow,
    ) -> Result<(), IdentityError> {
        let prefix = codec::key(project, &[]);
        let damaged = || IdentityError::Damaged { what: "group key" };
        for entry in self.reading.prefix(|tables| &tables.groups, &prefix)? {
            let (key, row) = entry?.into_inner()?;
            let rest = key.strip_prefix(prefix.as_slice()).and_then(<[u8]>::split_first);
            let (type_index, group_key) = rest.ok_or_else(damaged)?;
            let group_key = codec::text(group_key, "group key")?;
            if visit(*type_index, group_key, codec::decode_group(&row)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn counters(&self) -> Result<Counters, IdentityError> {
        let counters = self.reading.get(|tables| &tables.meta, codec::COUNTERS_KEY)?;
        counters.map_or(Ok(Counters::START), |bytes| Counters::decode(&bytes))
    }

    pub(super) fn id(
        &self,
        project: ProjectId,
        distinct_id: &str,
    ) -> Result<IdState, IdentityError> {
        if distinct_id.len() > codec::TEXT_MAX_BYTES {
            return Ok(IdState::Unknown);
        }
        let key = codec::key(project, &[distinct_id.as_bytes()]);
        let Some(number) = self.reading.get(|tables| &tables.ids, key)? else {
            return Ok(IdState::Unknown);
        };
        Ok(match codec::number(&number, "distinct id")? {
            0 => IdState::Personless,
            number => IdState::Person(number),
        })
    }

    /// Distinct ids of a person with their positions.
    pub(super) fn positioned_ids(
        &self,
        project: ProjectId,
        number: i64,
    ) -> Result<Vec<(i64, DistinctId)>, IdentityError> {
        self.each_positioned_id(project, number)?.collect()
    }

    /// As [`View::positioned_ids`], but lazily.
    pub(super) fn each_positioned_id(
        &self,
        project: ProjectId,
        number: i64,
    ) -> Result<impl Iterator<Item = Result<(i64, DistinctId), IdentityError>>, IdentityError> {
        let prefix = codec::key(project, &[&number.to_be_bytes()]);
        let entries = self.reading.prefix(|tables| &tables.person_ids, prefix)?;
        Ok(entries.map(|entry| {
            let (key, id) = entry?.into_inner()?;
            let (_, position) = codec::decode_person_id_key(&key)?;
            Ok((position, codec::decode_distinct_id(&id)?))
        }))
    }

    /// The number of distinct ids of a person, counted up to `most`.
    pub fn count_ids(
        &self,
        project: ProjectId,
        number: i64,
        most: usize,
    ) -> Result<usize, IdentityError> {
        let ids = self.each_positioned_id(project, number)?;
        ids.take(most).try_fold(0_usize, |count, id| id.map(|_| count.saturating_add(1)))
    }

    /// The person that replaces the one with this uuid.
    pub(super) fn survivor_of(
        &self,
        project: ProjectId,
        person: Uuid,
    ) -> Result<Option<Uuid>, IdentityError> {
        let key = codec::key(project, &[person.as_bytes()]);
        let survivor = self.reading.get(|tables| &tables.overrides, key)?;
        survivor.map(|survivor| codec::uuid(&survivor, "override")).transpose()
    }

    /// Whether any person of the project is replaced.
    pub(super) fn has_overrides(&self, project: ProjectId) -> Result<bool, IdentityError> {
        let own = codec::key(project, &[]);
        let first = self.reading.prefix(|tables| &tables.overrides, &own)?.next();
        first.map_or(Ok(false), |entry| Ok(entry?.into_inner().map(|_| true)?))
    }

    /// Visits all overrides, the replaced person and its replacement, in the order of project and
    /// uuid, until `visit` breaks.
    pub(super) fn scan_overrides(
        &self,
        visit: impl FnMut((ProjectId, Uuid), Uuid) -> Result<Flow, IdentityError>,
    ) -> Result<(), IdentityError> {
        self.scan_overrides_from(b"", visit)
    }

    /// The same of one project.
    pub(super) fn scan_overrides_of(
        &self,
        project: ProjectId,
        visit: impl FnMut((ProjectId, Uuid), Uuid) -> Result<Flow, IdentityError>,
    ) -> Result<(), IdentityError> {
        self.scan_overrides_from(&codec::key(project, &[]), visit)
    }

    fn scan_overrides_from(
        &self,
        prefix: &[u8],
        mut visit: impl FnMut((ProjectId, Uuid), Uuid) -> Result<Flow, IdentityError>,
    ) -> Result<(), IdentityError> {
        for entry in self.reading.prefix(|tables| &tables.overrides, prefix)? {
            let (key, survivor) = entry?.into_inner()?;
            let key = codec::decode_override_key(&key)?;
            if visit(key, codec::uuid(&survivor, "override")?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn number_of(
        &self,
        project: ProjectId,
        uuid: Uuid,
    ) -> Result<Option<i64>, IdentityError> {
        let key = codec::key(project, &[uuid.as_bytes()]);
        let number = self.reading.get(|tables| &tables.uuids, key)?;
        number.map(|number| codec::number(&number, "uuid")).transpose()
    }
}
