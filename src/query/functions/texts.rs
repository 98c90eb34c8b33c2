//! Functions of texts. They count characters, where ClickHouse counts bytes in some.

use std::sync::Arc;

use arrow::array::Array;
use arrow::array::ArrayRef;
use arrow::array::Int64Array;
use arrow::array::ListBuilder;
use arrow::array::StringViewBuilder;
use arrow::datatypes::DataType;
use datafusion::error::Result;

use crate::query::functions::arrays::whole_of;
use crate::query::functions::own::Own;
use crate::query::functions::own::Takes;
use crate::query::functions::own::list_of;
use crate::query::functions::own::text;
use crate::query::functions::own::texts;
use crate::query::functions::own::whole;

/// All of them.
pub(super) const ALL: &[Own] = &[
    Own::new("countSubstrings", &[Takes::Text, Takes::Text], whole, occurrences),
    Own::new("replaceOne", &[Takes::Text, Takes::Text, Takes::Text], text, replaced),
    Own::new("splitByWhitespace", &[Takes::Text], |_| Ok(list_of(DataType::Utf8View)), words),
];

/// How often a text stands in another one, none of them in another.
fn occurrences(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let (all, wanted) = (texts(sent, 0)?, texts(sent, 1)?);
    let count = |(text, wanted): (Option<&str>, Option<&str>)| {
        let (text, wanted) = text.zip(wanted)?;
        Some(if wanted.is_empty() { 0 } else { whole_of(text.matches(wanted).count()) })
    };
    Ok(Arc::new(all.iter().zip(wanted.iter()).map(count).collect::<Int64Array>()))
}

/// With a text in the place of another one, where this stands first.
fn replaced(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let (all, from, to) = (texts(sent, 0)?, texts(sent, 1)?, texts(sent, 2)?);
    let mut given = StringViewBuilder::with_capacity(all.len());
    for ((text, from), to) in all.iter().zip(from.iter()).zip(to.iter()) {
        let own = text.zip(from).zip(to);
        given.append_option(own.map(|((text, from), to)| match from.is_empty() {
            true => text.to_owned(),
            false => text.replacen(from, to, 1),
        }));
    }
    Ok(Arc::new(given.finish()))
}

fn words(sent: &[ArrayRef]) -> Result<ArrayRef> {
    let mut given = ListBuilder::new(StringViewBuilder::new());
    for text in texts(sent, 0)? {
        for word in text.into_iter().flat_map(str::split_whitespace) {
            given.values().append_value(word);
        }
        given.append(text.is_some());
    }
    Ok(Arc::new(given.finish()))
}
