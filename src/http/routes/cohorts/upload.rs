//! Cohorts as forms with a file: a static cohort whose persons are in a CSV file, as PostHog's page sends it.
//!
//! | first line | column | persons |
//! |---|---|---|
//! | one cell: `person_id`, `person-id` or `Person .id` | this column | by uuid |
//! | one cell: `email` or `e-mail` | this column | by the property of this name |
//! | one other cell | the first column, including this line | by distinct id |
//! | several cells | the first of: person id, distinct id (`distinct_id`, `distinct-id`), email | as above |
//!
//! Column names are case-insensitive. Unknown persons are ignored, as in other lists of persons.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use csv::{ReaderBuilder, StringRecord};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::fields::{Fields, refused};
use crate::multipart;
use crate::response::Problem;
use crate::routes::query::problems;
use weir_app::App;
use weir_base::error::Kind;
use weir_event::id::ProjectId;
use weir_event::json;
use weir_identity::IdentityError;
use weir_identity::view::{Flow, View};
use weir_metadata::cohorts::MEMBERS_MAX;

/// Most bytes of all fields of a form besides its file.
const FIELDS_MAX_BYTES: usize = 1 << 20;

/// The field with the file.
const FILE: &str = "csv";

/// The field with a list of persons by their uuids.
const UUIDS: &str = "_create_static_person_ids";

/// Fields of forms that are items of lists, with the names of these lists.
const LISTS: [(&str, &str); 4] =
    [(UUIDS, UUIDS), ("person_ids", UUIDS), ("person_id", UUIDS), ("distinct_ids", "distinct_ids")];

/// Fields that are JSON texts.
const DOCUMENTS: [&str; 3] = ["filters", "groups", "query"];

/// Names of columns, in lower case, by the kind of id that they contain; the first kind with a matching column is used.
const COLUMNS: [(IdKind, &[&str]); 3] = [
    (IdKind::Person, &["person_id", "person-id", "person .id"]),
    (IdKind::Distinct, &["distinct_id", "distinct-id"]),
    (IdKind::Email, &["email", "e-mail"]),
];

/// The property that the identity store indexes.
const INDEXED: &str = "email";

/// Parses a form: its fields, and the file `csv`.
pub(super) fn fields(content_type: &str, body: &Bytes) -> Result<Fields, Problem> {
    let (mut fields, mut file) = (Map::new(), None);
    let mut left_bytes = FIELDS_MAX_BYTES;
    for part in multipart::parts(content_type, body)? {
        let name = part.name;
        if name == FILE {
            file = Some(part.value);
            continue;
        }
        left_bytes = left_bytes.checked_sub(part.value.len()).ok_or_else(|| {
            let detail = format!("The fields of the form have more than {FIELDS_MAX_BYTES} bytes.");
            Problem::new(Kind::TooLarge, "payload_too_large", detail)
        })?;
        let text = || String::from_utf8_lossy(&part.value).into_owned();
        if let Some((_, list)) = LISTS.iter().find(|(item, _)| *item == name) {
            let items = fields.entry(*list).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(items) = items {
                items.push(Value::String(text()));
            }
        } else if DOCUMENTS.contains(&name.as_str()) {
            let document = json::read_within(Fields::DEPTH_MAX, &part.value);
            let document = document.map_err(|error| {
                let detail = format!("Value must be valid JSON: {error}");
                refused(name.clone(), "invalid_input", detail)
            })?;
            fields.insert(name, document);
        } else {
            fields.insert(name, Value::String(text()));
        }
    }
    Ok(Fields::from(fields).with_file(file))
}

/// Resolves the persons of the file `csv`, on a thread that may wait for the disk.
pub(super) async fn persons(
    app: &App,
    project: ProjectId,
    csv: Bytes,
) -> Result<Vec<Uuid>, Problem> {
    let found = app.engine.read(move |view, stop| match Sought::read(&csv) {
        Ok(sought) => sought.persons(&view, project, stop).map(Ok),
        Err(unusable) => Ok(Err(unusable)),
    });
    let found = found.await.map_err(problems::problem)?;
    found.map_err(|unusable| refused(FILE, "invalid_input", unusable.to_string()))
}

/// Kinds of ids in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdKind {
    Person,
    Distinct,
    Email,
}

/// Errors of files without a usable list of persons. The texts are PostHog's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Unusable {
    #[error("CSV file is empty. Please upload a CSV file with at least one row of data.")]
    Empty,
    #[error("CSV file encoding is not supported. Please save your file as UTF-8 and try again.")]
    Encoding,
    #[error(
        "Multi-column CSV must contain at least one column with a supported ID header: 'person_id', 'Person .id' \
         (PostHog export format), 'distinct_id', 'distinct-id', or 'email'. Found columns: {0}"
    )]
    NoColumn(String),
    #[error(
        "CSV file contains no valid person IDs, distinct IDs, or email addresses. Please ensure your file has data rows \
         with person IDs, distinct IDs, or email addresses."
    )]
    NoIds,
    #[error("A static cohort has at most {MEMBERS_MAX} members.")]
    TooMany,
}

/// The ids in a file, by which persons are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sought {
    kind: IdKind,
    /// The name of the column; for emails the name of the property.
    column: String,
    ids: Vec<String>,
}

impl Sought {
    fn read(csv: &[u8]) -> Result<Self, Unusable> {
        let text = std::str::from_utf8(csv).map_err(|_| Unusable::Encoding)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let rows =
            ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        // Reading from memory does not fail, and the text is UTF-8.
        let mut rows = rows.into_records().filter_map(Result::ok);
        let first = rows.find(|row| row.iter().any(|cell| !cell.is_empty()));
        let first = first.ok_or(Unusable::Empty)?;
        let filled = first.iter().filter(|cell| !cell.trim().is_empty()).count();
        let is_single = filled <= 1;
        let (kind, at) = match column_of(&first) {
            Some((kind @ (IdKind::Person | IdKind::Email), 0)) if is_single => (kind, 0),
            _ if is_single => (IdKind::Distinct, 0),
            Some(found) => found,
            None => {
                let names = first.iter().map(str::trim).filter(|cell| !cell.is_empty());
                return Err(Unusable::NoColumn(names.collect::<Vec<_>>().join(", ")));
            }
        };
        let column = first.get(at).map(|cell| cell.trim().to_owned()).unwrap_or_default();
        // A single column of distinct ids has no header line.
        let head = (is_single && kind == IdKind::Distinct).then_some(first);
        let mut ids = Vec::new();
        for row in head.into_iter().chain(rows) {
            let Some(id) = row.get(at).map(str::trim).filter(|id| !id.is_empty()) else {
                continue;
            };
            if ids.len() == MEMBERS_MAX {
                return Err(Unusable::TooMany);
            }
            ids.push(id.to_owned());
        }
        if ids.is_empty() {
            return Err(Unusable::NoIds);
        }
        Ok(Self { kind, column, ids })
    }

    /// Looks up the persons that exist. Ends early once `stop` is set.
    fn persons(
        &self,
        view: &View,
        project: ProjectId,
        stop: &AtomicBool,
    ) -> Result<Vec<Uuid>, IdentityError> {
        if self.kind == IdKind::Email && self.column != INDEXED {
            return self.persons_by_property(view, project, stop);
        }
        let mut persons = Vec::new();
        for id in &self.ids {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            match self.kind {
                IdKind::Person => {
                    if let Ok(uuid) = Uuid::try_parse(id) {
                        persons.extend(view.person_by_uuid(project, uuid)?.map(|found| found.uuid));
                    }
                }
                IdKind::Distinct => {
                    persons.extend(view.person_of(project, id)?.map(|found| found.uuid));
                }
                IdKind::Email => {
                    let found = view.persons_by_email(project, id)?;
                    persons.extend(found.into_iter().map(|found| found.uuid));
                }
            }
        }
        Ok(persons)
    }

    /// Scans all persons for a property that has no index.
    fn persons_by_property(
        &self,
        view: &View,
        project: ProjectId,
        stop: &AtomicBool,
    ) -> Result<Vec<Uuid>, IdentityError> {
        let wanted: HashSet<&str> = self.ids.iter().map(String::as_str).collect();
        let mut persons = Vec::new();
        view.scan_persons(project, |person| {
            let value = person.properties.get(&self.column).and_then(Value::as_str);
            if value.is_some_and(|value| wanted.contains(value)) {
                persons.push(person.uuid);
            }
            if stop.load(Ordering::Relaxed) { Flow::Break(()) } else { Flow::Continue(()) }
        })?;
        Ok(persons)
    }
}

/// The column that is used, by the names in the header line.
fn column_of(names: &StringRecord) -> Option<(IdKind, usize)> {
    let lower: Vec<String> = names.iter().map(|name| name.trim().to_lowercase()).collect();
    COLUMNS.into_iter().find_map(|(kind, known)| {
        let at = lower.iter().position(|name| known.contains(&name.as_str()))?;
        Some((kind, at))
    })
}

#[cfg(test)]
mod tests {
    use super::{IdKind, Sought, Unusable};

    /// Expectations: PostHog's rules, as in the table at the top of this file.
    #[test]
    fn the_column_follows_from_the_first_line() {
        let (person, distinct, email) = (IdKind::Person, IdKind::Distinct, IdKind::Email);
        for (csv, kind, column, ids) in [
            ("u1\nu2\n\n u3 \n", distinct, "u1", &["u1", "u2", "u3"][..]),
            ("\n\nu1", distinct, "u1", &["u1"]),
            ("\u{feff}u1\r\nu2,ignored", distinct, "u1", &["u1", "u2"]),
            ("distinct_id\nu1", distinct, "distinct_id", &["distinct_id", "u1"]),
            ("person_id\na\nb", person, "person_id", &["a", "b"]),
            ("Person .id\na", person, "Person .id", &["a"]),
            ("Email\na@x.org", email, "Email", &["a@x.org"]),
            ("name,email\nAda,a@x.org\nBob\nEve,", email, "email", &["a@x.org"]),
            ("email,distinct-id\na@x.org,u1", distinct, "distinct-id", &["u1"]),
            ("DISTINCT_ID , PERSON-ID\nu1,a", person, "PERSON-ID", &["a"]),
        ] {
            let ids = ids.iter().map(|id| (*id).to_owned()).collect();
            let expected = Sought { kind, column: column.to_owned(), ids };
            assert_eq!(Sought::read(csv.as_bytes()), Ok(expected), "{csv:?}");
        }
        for (csv, expected) in [
            (&b""[..], Unusable::Empty),
            (b"\r\n\n", Unusable::Empty),
            (b"\xff\xfe", Unusable::Encoding),
            (b"name, plan\nAda,pro", Unusable::NoColumn("name, plan".to_owned())),
            (b"person_id\n\n", Unusable::NoIds),
            (b"name,email\nAda,\n", Unusable::NoIds),
        ] {
            assert_eq!(Sought::read(csv), Err(expected), "{csv:?}");
        }
        let many = "u\n".repeat(1_000_001);
        assert_eq!(Sought::read(many.as_bytes()), Err(Unusable::TooMany));
    }
}
