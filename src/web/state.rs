//! What a page of an insight asks, as the query string of its address: [`insight::Question`]. It is read from the
//! address ([`insight::Question::parse`]) and printed into it; the same value makes the JSON query of the API
//! ([`node`]), SQL ([`sql`]) and a command that asks it ([`curl`]), and is made of the JSON of a saved insight
//! ([`stored`]). SQL of its own is saved, too ([`saved_sql`]).

pub mod breakdown;
pub mod cohort;
pub mod curl;
pub mod exclusion;
pub mod filters;
pub mod flag;
pub mod insight;
pub mod node;
pub mod parameters;
pub mod point;
pub mod range;
pub mod saved_sql;
pub mod series;
pub mod sql;
pub mod stored;

#[cfg(test)]
mod tests;
