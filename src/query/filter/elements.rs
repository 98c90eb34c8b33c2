//! The condition that the elements of an event meet criteria: [`condition`].

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::logical_expr::{Expr, ScalarUDF};
use datafusion::prelude::ident;

use crate::filter::condition;
use crate::filter::condition::{About, Call, Content, Pace};
use crate::filter::content::ConditionContent;
use crate::guard::watched::Watched;
use weir_event::elements::criteria::Criteria;
use weir_event::elements::elements;

/// The column of events with the chain of elements that they are about.
const ELEMENTS: &str = "elements_chain";

/// The condition that the elements of an event meet these criteria. It is never null.
pub fn condition(criteria: Criteria) -> Expr {
    function(criteria).call(vec![ident(ELEMENTS)])
}

/// The same as a function of chains of elements.
pub(crate) fn function(criteria: Criteria) -> ScalarUDF {
    let pace = Pace::Slow(Watched::new(criteria.patterns().cloned().collect()));
    let content = Content::Known(Box::new(ConditionContent::Elements(criteria.clone())));
    let about = About { content, ..About::default() };
    let test = condition::of_one("matches_elements", move |chains: &ArrayRef, call: Call<'_>| {
        let Some(chains) = chains.as_string_view_opt() else {
            return Ok(BooleanArray::new_null(0));
        };
        // Few chains in a batch are distinct, so the result is cached by chain.
        let mut known: HashMap<&str, bool> = HashMap::new();
        let is_met = |chain: &'_ str| criteria.are_met_by(&elements(chain));
        let mut answers = Vec::with_capacity(chains.len());
        for chain in chains {
            call.check()?;
            answers.push(
                chain.is_some_and(|chain| *known.entry(chain).or_insert_with(|| is_met(chain))),
            );
        }
        Ok(BooleanArray::from(answers))
    });
    condition::function(about, "matches_elements", vec![DataType::Utf8View], pace, test)
}
