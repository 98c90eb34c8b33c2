//! What a question about persons means for one of them, and the questions that few persons have to be
//! read for.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use uuid::Uuid;

use crate::persons::people::{FUTURE, Part, PersonsQuestion};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::person::Person;
use weir_identity::row::{Key, Row};
use weir_identity::view::{Flow, View};
use weir_identity::{IdentityError, row};

/// The property that has emails.
pub(super) const EMAIL: &str = "email";

/// Properties that are looked for in a row, each by itself; if there are more the row is decoded.
const KEYS_MAX: usize = 8;

/// A question asked of one view.
pub(super) struct Search<'a> {
    pub(super) view: &'a View,
    pub(super) project: ProjectId,
    pub(super) question: &'a PersonsQuestion,
    pub(super) now: Now,
    pub(super) stop: &'a AtomicBool,
    pub(super) sought: Option<Sought>,
    /// The number of the person whose distinct id the key identifier is.
    holder: Option<i64>,
    /// The properties that are asked for, if they are few.
    keys: BTreeMap<&'a str, Key>,
}

/// What a search finds.
pub(super) struct Sought {
    uuids: Vec<Uuid>,
    /// Numbers of the persons with these uuids, who may be gone.
    pub(super) numbers: Vec<i64>,
    /// In lower case.
    pub(super) email: String,
}

impl PersonsQuestion {
    /// Whether it cannot be answered without a look at everybody.
    pub(super) fn is_about_everybody(&self) -> bool {
        let narrows = self.search.is_some()
            || self.properties.is_some()
            || self.cohort.is_some()
            || self.changed_since.is_some();
        let is_named = self.distinct_id.is_some()
            || self.numbers.is_some()
            || self.uuids.is_some()
            || self.key_identifier.is_some();
        narrows && !is_named && self.known_email().is_none()
    }

    /// The email that every answer has, letters compared without case, if the question says so.
    fn known_email(&self) -> Option<String> {
        let asked = self.email.clone();
        asked.or_else(|| self.properties.as_ref().and_then(Tree::required_email))
    }

    /// The properties of persons that it asks for.
    pub(super) fn keys(&self) -> Vec<&str> {
        let filters = self.properties.iter().flat_map(Tree::filters);
        let keys = filters.filter_map(|filter| match filter {
            Filter::Property { scope: Scope::Person, predicate } => Some(&*predicate.key),
            _ => None,
        });
        let of_search = self.search.iter().map(|_| EMAIL);
        let mut keys: Vec<&str> = keys.chain(of_search).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(
        view: &'a View,
        project: ProjectId,
        question: &'a PersonsQuestion,
        now: Now,
        stop: &'a AtomicBool,
    ) -> Result<Self, IdentityError> {
        let names = question.keys();
        let keys = match names.len() {
            0..=KEYS_MAX => names.into_iter().map(|name| (name, Key::new(name))).collect(),
            _ => BTreeMap::new(),
        };
        let sought = match question.search.as_deref() {
            Some(text) => Some(Sought::new(view, project, text)?),
            None => None,
        };
        let holder = match question.key_identifier.as_deref() {
            Some(text) => view.person_of(project, text)?.map(|person| person.number),
            None => None,
        };
        Ok(Self { view, project, question, now, stop, sought, holder, keys })
    }

    /// How many persons there are, and the numbers of those in `part`, of a question that is not about
    /// everybody.
    pub(super) fn find(&self, part: Part) -> Result<(usize, Vec<i64>), IdentityError> {
        if let Some(distinct_id) = &self.question.distinct_id {
            let person = self.view.person_of(self.project, distinct_id)?;
            let person = person.filter(|person| self.is_kept(person));
            let numbers: Vec<i64> = person.iter().map(|person| person.number).collect();
            let wanted = numbers.iter().copied().skip(part.offset).take(part.limit);
            return Ok((numbers.len(), wanted.collect()));
        }
        if let Some(persons) = self.named()? {
            return Ok(self.listed(persons, part));
        }
        match self.question.known_email() {
            Some(email) => {
                let persons = self.view.persons_by_email(self.project, &email)?;
                Ok(self.listed(persons, part))
            }
            None => self.all(part),
        }
    }

    /// The persons of whom every answer is one, if the question names them.
    fn named(&self) -> Result<Option<Vec<Person>>, IdentityError> {
        let (view, project, question) = (self.view, self.project, self.question);
        let mut persons = Vec::new();
        if let Some(numbers) = &question.numbers {
            for number in numbers {
                persons.extend(view.person_by_number(project, *number)?);
            }
        } else if let Some(uuids) = &question.uuids {
            for uuid in uuids {
                persons.extend(view.person_by_uuid(project, *uuid)?);
            }
        } else if let Some(text) = question.key_identifier.as_deref() {
            persons = view.persons_by_email(project, text)?;
            persons.extend(view.person_of(project, text)?);
        } else {
            return Ok(None);
        }
        Ok(Some(persons))
    }

    /// All persons.
    fn all(&self, part: Part) -> Result<(usize, Vec<i64>), IdentityError> {
        let newest = self.newest();
        let count = self.view.person_count(self.project)?;
        let hidden = self.view.count_created_after(self.project, newest)?;
        let mut left_out = 0;
        let mut numbers = Vec::new();
        self.view.scan_listed(self.project, newest, |number| {
            if left_out < part.offset {
                left_out += 1;
            } else if numbers.len() < part.limit {
                numbers.push(number);
            }
            self.flow(numbers.len() < part.limit)
        })?;
        Ok((usize::try_from(count.saturating_sub(hidden)).unwrap_or(usize::MAX), numbers))
    }

    /// Those of `persons` who answer, in the order of lists, each once.
    fn listed(&self, mut persons: Vec<Person>, part: Part) -> (usize, Vec<i64>) {
        let newest = self.newest();
        persons.retain(|person| person.created_at <= newest && self.is_kept(person));
        persons.sort_unstable_by_key(|person| Reverse((person.created_at, person.uuid)));
        persons.dedup_by_key(|person| person.number);
        let numbers = persons.iter().map(|person| person.number);
        let wanted = numbers.skip(part.offset).take(part.limit).collect();
        (persons.len(), wanted)
    }

    pub(super) fn flow(&self, goes_on: bool) -> Flow {
        if goes_on && !self.stop.load(Ordering::Relaxed) {
            Flow::Continue(())
        } else {
            Flow::Break(())
        }
    }

    pub(super) fn newest(&self) -> UnixMicros {
        self.now.at.saturating_add(FUTURE)
    }

    /// Whether a person answers the question, without a look at when it was created.
    pub(super) fn is_kept(&self, person: &Person) -> bool {
        self.holds(&Subject::Person(person))
    }

    /// The same of the person with this number, if there is one.
    pub(super) fn is_number_kept(&self, number: i64) -> Result<bool, IdentityError> {
        let person = self.view.person_by_number(self.project, number)?;
        Ok(person.is_some_and(|person| self.is_kept(&person)))
    }

    /// The same, reading no more of the row than is asked for.
    pub(super) fn is_row_kept(&self, row: &Row<'_>) -> Result<bool, IdentityError> {
        // The cheapest question first: it needs nothing of the row decoded.
        if self.question.changed_since.is_some_and(|since| row.changed_sequence < since) {
            return Ok(false);
        }
        if self.keys.is_empty() {
            return Ok(self.is_kept(&row.person()?));
        }
        let (person, failed) = (OnceCell::new(), OnceCell::new());
        let holds = self.holds(&Subject::Row { row, person: &person, failed: &failed });
        failed.into_inner().map_or(Ok(holds), Err)
    }

    fn holds(&self, subject: &Subject<'_>) -> bool {
        let question = self.question;
        if !self.is_named(subject) {
            return false;
        }
        let email = || subject.property(EMAIL, self);
        let is_member = |cohort| {
            let is_in = question.in_cohort.as_ref().zip(subject.person());
            is_in.is_some_and(|(is_in, person)| is_in(self.view, cohort, person))
        };
        question
            .email
            .as_deref()
            .is_none_or(|wanted| email().is_some_and(|email| email.as_str() == Some(wanted)))
            && question.cohort.is_none_or(is_member)
            && self.sought.as_ref().is_none_or(|sought| {
                let (uuid, ..) = subject.place();
                sought.uuids.contains(&uuid) || sought.is_in(email().as_deref())
            })
            && question.properties.as_ref().is_none_or(|tree| {
                tree.holds(&mut |filter| self.filter_holds(filter, subject, &is_member))
            })
    }

    /// Whether a person is among those whom the question names, if it names any.
    fn is_named(&self, subject: &Subject<'_>) -> bool {
        let question = self.question;
        let (number, changed_sequence) = subject.record();
        question.changed_since.is_none_or(|since| changed_sequence >= since)
            && question.numbers.as_ref().is_none_or(|numbers| numbers.contains(&number))
            && question.uuids.as_ref().is_none_or(|uuids| uuids.contains(&subject.place().0))
            && question.key_identifier.as_deref().is_none_or(|text| {
                let email = || subject.property(EMAIL, self);
                self.holder == Some(number)
                    || email().is_some_and(|email| email.as_str() == Some(text))
            })
    }

    /// Whether a filter holds for a person. What is not about persons holds for nobody.
    fn filter_holds(
        &self,
        filter: &Filter,
        subject: &Subject<'_>,
        is_member: &impl Fn(i64) -> bool,
    ) -> bool {
        match filter {
            Filter::Property { scope: Scope::Person, predicate } => {
                let value = subject.property(&predicate.key, self);
                predicate.matches_value(value.as_deref(), self.now)
            }
            Filter::Property { scope: Scope::PersonMetadata, predicate } => {
                let (uuid, created_at, is_identified) = subject.place();
                let value = place_value(&predicate.key, uuid, created_at, is_identified);
                predicate.matches_value(value.as_ref(), self.now)
            }
            Filter::Property { .. } | Filter::Flag { .. } => false,
            Filter::Cohort { id, membership } => membership.accepts(is_member(*id)),
        }
    }
}

/// What filters of the type `person_metadata` ask of a person, by its name: of the uuid, the time of
/// creation, and whether it is identified.
pub(crate) fn place_value(
    key: &str,
    uuid: Uuid,
    created_at: UnixMicros,
    is_identified: bool,
) -> Option<Value> {
    match key {
        "created_at" => Some(Value::from(created_at.to_rfc3339())),
        "id" | "uuid" => Some(Value::from(uuid.to_string())),
        "is_identified" => Some(Value::from(is_identified)),
        _ => None,
    }
}

impl Sought {
    fn new(view: &View, project: ProjectId, text: &str) -> Result<Self, IdentityError> {
        let mut found = Vec::from_iter(view.person_of(project, text)?);
        let uuid = Uuid::try_parse(text).ok();
        if let Some(uuid) = uuid {
            found.extend(view.person_by_uuid(project, uuid)?);
        }
        Ok(Self {
            uuids: found.iter().map(|person| person.uuid).chain(uuid).collect(),
            numbers: found.iter().map(|person| person.number).collect(),
            email: text.to_lowercase(),
        })
    }

    fn is_in(&self, email: Option<&Value>) -> bool {
        let email = email.and_then(Value::as_str);
        email.is_some_and(|email| email.to_lowercase().contains(&self.email))
    }
}

/// Who is asked about.
enum Subject<'s> {
    Person(&'s Person),
    /// A row, which is decoded only if need be; `failed` is why it could not be.
    Row {
        row: &'s Row<'s>,
        person: &'s OnceCell<Option<Person>>,
        failed: &'s OnceCell<IdentityError>,
    },
}

/// A value, borrowed or just read.
type Seen<'s> = std::borrow::Cow<'s, Value>;

impl<'s> Subject<'s> {
    fn property(&self, name: &str, search: &Search<'_>) -> Option<Seen<'s>> {
        match self {
            Self::Person(person) => person.properties.get(name).map(Seen::Borrowed),
            Self::Row { row, failed, .. } => {
                let value = row::value(row.property(search.keys.get(name)?)?);
                let value = value.map_err(|error| failed.set(error));
                value.ok().map(Seen::Owned)
            }
        }
    }

    fn place(&self) -> (Uuid, UnixMicros, bool) {
        match self {
            Self::Person(person) => (person.uuid, person.created_at, person.is_identified),
            Self::Row { row, .. } => (row.uuid, row.created_at, row.is_identified),
        }
    }

    /// The number, and the record that changed the person last.
    fn record(&self) -> (i64, u64) {
        match self {
            Self::Person(person) => (person.number, person.changed_sequence),
            Self::Row { row, .. } => (row.number, row.changed_sequence),
        }
    }

    fn person(&self) -> Option<&'s Person> {
        match self {
            Self::Person(person) => Some(person),
            Self::Row { row, person, failed } => {
                let read = || row.person().map_err(|error| failed.set(error)).ok();
                person.get_or_init(read).as_ref()
            }
        }
    }
}
