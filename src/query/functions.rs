//! Functions of ClickHouse that are no template of others (see `clickhouse`): [`register`].
//!
//! Their names are those in SQL without case; `guard/functions.rs` has how much each may take. As in ClickHouse, a null
//! argument gives null unless the function says otherwise, arrays are lists, and places in them count from 1.

mod arrays;
pub(super) mod calendar;
mod codes;
pub(super) mod date_trunc;
mod elements;
pub(super) mod json;
pub(super) mod json_last;
pub(super) mod json_written;
mod lambdas;
pub(super) mod local_time;
pub mod number_set;
mod overloads;
mod own;
mod patterns;
pub mod quantile;
mod steps;
#[cfg(test)]
mod tests;
pub mod text_number;
mod texts;
mod times;
mod urls;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::FunctionRegistry;

use crate::functions::overloads::overloads;
use crate::functions::own::Own;

/// Names of functions that may have a lambda as their first argument, as ClickHouse has them.
pub(super) use crate::functions::lambdas::NAMES as OF_LAMBDAS;

/// Scalar functions, by what they are of.
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

/// Adds all of them to a session.
///
/// # Errors
///
/// The session does not take them: a bug.
pub(super) fn register(session: &mut dyn FunctionRegistry) -> Result<()> {
    for own in ALL.into_iter().flatten().cloned().map(Own::function).chain(overloads()) {
        session.register_udf(Arc::new(own))?;
    }
    for function in lambdas::all() {
        session.register_higher_order_function(Arc::new(function))?;
    }
    Ok(())
}

/// Their names, as ClickHouse has them.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let of_sql = |name: &&str| !name.contains('_');
    let scalar = ALL.into_iter().flatten().map(|own| own.name).filter(of_sql);
    scalar.chain(OF_LAMBDAS).chain(["concat", "reverse"])
}
