//! `person_id IN COHORT 5` and `IN COHORT 'name'`: [`members`] is the query of a cohort's members, from a table in the
//! schema of [`By`]. The tables themselves are provided elsewhere.

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, ObjectNamePart, Query, SetExpr, Statement, TableFactor,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// How a query refers to a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By its id, a number.
    Id,
    /// By its name, a text.
    Name,
}

impl By {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::Id, Self::Name];

    /// The schema in which each cohort is a table, named by its id or its name, of its members' `id`s.
    pub fn schema(self) -> &'static str {
        match self {
            Self::Id => "cohorts_by_id",
            Self::Name => "cohorts_by_name",
        }
    }
}

/// The query of a cohort's members.
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
