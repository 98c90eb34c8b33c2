//! `person_id IN COHORT 5` and `IN COHORT 'name'`: [`members`] is the query of the members, from a table of the schema that
//! [`By`] names. Who makes these tables is not known here.

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, SetExpr, Statement, TableFactor,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// How a cohort is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By its id, a number.
    Id,
    /// By its name, a text.
    Name,
}

impl By {
    /// Both ways.
    pub const ALL: [Self; 2] = [Self::Id, Self::Name];

    /// The schema that has cohorts by what they are named, each as a table of its members with their `id`.
    pub fn schema(self) -> &'static str {
        match self {
            Self::Id => "cohorts_by_id",
            Self::Name => "cohorts_by_name",
        }
    }
}

/// The query of the members of a cohort.
pub(crate) fn members(by: By, name: &str) -> Result<Box<Query>, ParserError> {
    let parsed = Parser::parse_sql(&GenericDialect, "SELECT id FROM cohorts.cohort")?.pop();
    let Some(Statement::Query(mut query)) = parsed else {
        return Err(ParserError::ParserError("a query of a cohort is none".to_owned()));
    };
    if let SetExpr::Select(select) = &mut *query.body
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Table { name: table, .. } = &mut from.relation
    {
        let parts = [Ident::new(by.schema()), Ident::with_quote('"', name)];
        *table = ObjectName(parts.map(ObjectNamePart::Identifier).into());
    }
    Ok(query)
}
