//! Registration of our implementations of ClickHouse functions, those that cannot be written as SQL templates over
//! other functions (see `clickhouse`): [`register`].
//!
//! Names are case-insensitive as in SQL; `guard/functions.rs` defines the memory limit of each. As in ClickHouse, a
//! null argument gives null unless the function's comment states otherwise, arrays are lists, and array indexes are
//! 1-based.

mod arrays;
pub(super) mod calendar;
mod codes;
pub(super) mod date_trunc;
mod elements;
pub(super) mod json;
pub(super) mod json_last;
pub(super) mod json_property;
mod json_raw;
pub(super) mod json_written;
mod lambdas;
pub(super) mod local_time;
pub mod number_set;
mod overloads;
mod own;
mod patterns;
pub mod quantile;
pub mod serializable;
mod steps;
#[cfg(test)]
mod tests;
pub mod text_number;
pub(crate) mod text_truth;
mod texts;
mod times;
mod urls;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;

use crate::functions::overloads::overloads;
use crate::functions::own::Own;

/// Names of the ClickHouse functions that may have a lambda as their first argument.
pub(super) use crate::functions::lambdas::NAMES as OF_LAMBDAS;

/// Scalar functions, grouped by topic.
const ALL: [&[Own]; 8] = [
    arrays::ALL,
    codes::ALL,
    elements::ALL,
    patterns::ALL,
    steps::ALL,
    texts::ALL,
    times::ALL,
    urls::ALL,
];

/// Registers all of these functions in a session.
///
/// # Errors
///
/// The session refuses one of them: a bug.
pub(super) fn register(session: &mut dyn FunctionRegistry) -> Result<()> {
    for own in ALL
        .into_iter()
        .flatten()
        .cloned()
        .map(Own::function)
        .chain(overloads())
        .chain([json_raw::function()])
    {
        session.register_udf(Arc::new(own))?;
    }
    for function in lambdas::all() {
        session.register_higher_order_function(Arc::new(function))?;
    }
    Ok(())
}

/// Their names, spelled as in ClickHouse.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let of_sql = |name: &&str| !name.contains('_');
    let scalar = ALL.into_iter().flatten().map(|own| own.name).filter(of_sql);
    scalar.chain(OF_LAMBDAS).chain(["concat", "reverse"])
}
