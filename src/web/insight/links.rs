//! URLs of pages about insights: [`Links`].

use serde_json::Value;

use crate::state::insight::{Kind, Question};
use crate::state::parameters::Printer;
use crate::state::point::Point;

/// The address of all insights of a project.
pub fn insights(project: i64) -> String {
    format!("/project/{project}/insights")
}

/// The address of an empty form of a kind of insight.
pub fn kind(project: i64, kind: Kind) -> String {
    format!("/project/{project}/insights/{}", kind.name())
}

/// The address of a query.
pub fn question(project: i64, question: &Question) -> String {
    format!("{}?{}", kind(project, question.kind()), question.print())
}

/// The address of a saved insight.
pub fn saved(project: i64, short_id: &str) -> String {
    format!("/project/{project}/insights/{short_id}")
}

/// The address of all dashboards of a project.
pub fn dashboards(project: i64) -> String {
    format!("/project/{project}/dashboard")
}

/// The address of a dashboard.
pub fn dashboard(project: i64, id: i64) -> String {
    format!("/project/{project}/dashboard/{id}")
}

/// URLs of the details behind the marks of one result.
#[derive(Clone, Debug)]
pub struct Links<'q> {
    /// The project.
    pub project: i64,
    /// The query, or a sketch of it.
    pub question: &'q Question,
    /// The query's JSON, where `question` is only a sketch of it.
    pub query: Option<&'q Value>,
    persons: String,
    /// URL of the result as a file, ending with its query string or a `?`.
    files: Option<String>,
    /// The time as of which the result was computed, in the time zone of the project, in the format of interval starts.
    pub at: String,
}

impl<'q> Links<'q> {
    /// The links of the result of a query.
    pub fn new(project: i64, question: &'q Question) -> Self {
        let persons = format!("{}/persons?{}", kind(project, question.kind()), question.print());
        let own = self::question(project, question);
        let separator = if own.ends_with('?') { "" } else { "&" };
        let files = Some(format!("{own}{separator}"));
        Self { project, question, query: None, persons, files, at: String::new() }
    }

    /// No links, since no address can represent the query, or the reader of the result may see nothing else.
    pub fn without(project: i64, question: &'q Question, query: &'q Value) -> Self {
        let (persons, at) = (String::new(), String::new());
        Self { project, question, query: Some(query), persons, files: None, at }
    }

    /// The same, with the saved insight of this id as the source of files.
    #[must_use]
    pub fn with_files_of(self, short_id: &str) -> Self {
        Self { files: Some(format!("{}?", saved(self.project, short_id))), ..self }
    }

    /// The same, with the time as of which the result was computed.
    #[must_use]
    pub fn as_of(&self, at: &str) -> Self {
        Self { at: at.to_owned(), ..self.clone() }
    }

    /// Whether the result can be downloaded as a file.
    pub fn has_files(&self) -> bool {
        self.files.is_some()
    }

    /// Whether an address can represent the query.
    pub fn has_address(&self) -> bool {
        self.query.is_none()
    }

    /// URL of the persons behind a mark; `None` where groups are counted, which are not listed.
    pub fn persons(&self, point: &Point) -> Option<String> {
        if !self.has_address() {
            return None;
        }
        let of_groups = |at: u16| {
            let series = self.question.series.get(usize::from(at));
            series.is_some_and(|series| series.math == "unique_group")
        };
        if self.question.group.is_some() || of_groups(point.series.unwrap_or(0)) {
            return None;
        }
        let mut printer = Printer::default();
        point.add_to(&mut printer);
        Some(format!("{}&{}", self.persons, printer.finish()))
    }

    /// URL of the result as a file of a format.
    pub fn download(&self, format: &str) -> String {
        format!("{}format={format}", self.files.as_deref().unwrap_or("?"))
    }
}
