//! Form state of the pages: an insight query as the query string of its address: [`insight::Question`]. It is parsed
//! from the address ([`insight::Question::parse`]) and printed into it; the same value is converted to the JSON query
//! of the API ([`node`]), to SQL ([`sql`]) and to a curl command ([`curl`]), and is built from the JSON of a saved
//! insight ([`stored`]). Queries in SQL are saved, too ([`saved_sql`]).

pub mod actor;
pub mod board;
pub mod breakdown;
pub mod cohort;
pub mod curl;
pub mod exclusion;
pub mod filters;
pub mod flag;
pub mod flag_filters;
pub mod insight;
mod json;
pub mod node;
pub mod parameters;
pub mod point;
pub mod properties;
pub mod range;
pub mod rules;
pub mod saved_sql;
pub mod series;
pub mod sql;
pub mod stored;

#[cfg(test)]
mod tests;
