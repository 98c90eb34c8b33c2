//! What a question about persons means for one of them, and the questions that few persons have to be
//! read for.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use uuid::Uuid;

use crate::filter::person_filter::EMAIL;
use crate::filter::subject::place_value;
use crate::persons::people::{FUTURE, Part, PersonsQuestion};
use weir_base::clock::UnixMicros;
use weir_event::id::ProjectId;
use weir_event::predicate::filter::{Filter, Scope};
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_identity::IdentityError;
use weir_identity::person::Person;
use weir_identity::view::{Flow, View};

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
}

impl<'a> Search<'a> {
    pub(super) fn new(
        view: &'a View,
        project: ProjectId,
        question: &'a PersonsQuestion,
        now: Now,
        stop: &'a AtomicBool,
    ) -> Result<Self, IdentityError> {
        let sought = match question.search.as_deref() {
            Some(text) => Some(Sought::new(view, project, text)?),
            None => None,
        };
        let holder = match question.key_identifier.as_deref() {
            Some(text) => view.person_of(project, text)?.map(|person| person.number),
            None => None,
        };
        Ok(Self { view, project, question, now, stop, sought, holder })
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

    fn flow(&self, goes_on: bool) -> Flow {
        if goes_on && !self.stop.load(Ordering::Relaxed) {
            Flow::Continue(())
        } else {
            Flow::Break(())
        }
    }

    fn newest(&self) -> UnixMicros {
        self.now.at.saturating_add(FUTURE)
    }

    /// Whether a person answers the question, without a look at when it was created.
    fn is_kept(&self, person: &Person) -> bool {
        let question = self.question;
        if !self.is_named(person) {
            return false;
        }
        let email = email_of(person);
        let is_member = |cohort| {
            let is_in = question.in_cohort.as_ref();
            is_in.is_some_and(|is_in| is_in(self.view, cohort, person))
        };
        question.email.as_deref().is_none_or(|wanted| email == Some(wanted))
            && question.cohort.is_none_or(is_member)
            && self
                .sought
                .as_ref()
                .is_none_or(|sought| sought.uuids.contains(&person.uuid) || sought.is_in(email))
            && question.properties.as_ref().is_none_or(|tree| {
                tree.holds(&mut |filter| self.filter_holds(filter, person, &is_member))
            })
    }

    /// Whether a person is among those whom the question names, if it names any.
    fn is_named(&self, person: &Person) -> bool {
        let question = self.question;
        question.changed_since.is_none_or(|since| person.changed_sequence >= since)
            && question.numbers.as_ref().is_none_or(|numbers| numbers.contains(&person.number))
            && question.uuids.as_ref().is_none_or(|uuids| uuids.contains(&person.uuid))
            && question.key_identifier.as_deref().is_none_or(|text| {
                self.holder == Some(person.number) || email_of(person) == Some(text)
            })
    }

    /// Whether a filter holds for a person. What is not about persons holds for nobody.
    fn filter_holds(
        &self,
        filter: &Filter,
        person: &Person,
        is_member: &impl Fn(i64) -> bool,
    ) -> bool {
        match filter {
            Filter::Property { scope: Scope::Person, predicate } => {
                predicate.matches_value(person.properties.get(&*predicate.key), self.now)
            }
            Filter::Property { scope: Scope::PersonMetadata, predicate } => {
                let Person { uuid, created_at, is_identified, .. } = person;
                let value = place_value(&predicate.key, *uuid, *created_at, *is_identified);
                predicate.matches_value(value.as_ref(), self.now)
            }
            Filter::Property { .. } | Filter::Flag { .. } => false,
            Filter::Cohort { id, membership } => membership.accepts(is_member(*id)),
        }
    }
}

fn email_of(person: &Person) -> Option<&str> {
    person.properties.get(EMAIL).and_then(Value::as_str)
}

impl Sought {
    pub(super) fn new(view: &View, project: ProjectId, text: &str) -> Result<Self, IdentityError> {
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

    fn is_in(&self, email: Option<&str>) -> bool {
        email.is_some_and(|email| email.to_lowercase().contains(&self.email))
    }
}
