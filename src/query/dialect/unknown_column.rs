//! The error for a column that does not exist: it names a few similar columns instead of all.

use std::collections::BTreeSet;

use datafusion::common::Column;
use datafusion::common::utils::datafusion_strsim::levenshtein;
use datafusion::common::utils::quote_identifier;

use crate::kernel::error::NO_COLUMN;

/// Maximum columns that the error names.
const NAMED_MAX: usize = 5;

/// Maximum characters of a name in comparisons and in the error.
const NAME_MAX_CHARS: usize = 100;

/// The error for the column `asked`, where `known` exist.
pub(crate) fn told(asked: &Column, known: &[Column]) -> String {
    let cut = |name: &str| name.chars().take(NAME_MAX_CHARS).collect::<String>();
    let name = cut(asked.name());
    let wanted = name.to_lowercase();
    // Joined tables may have columns of the same name.
    let known: BTreeSet<&str> = known.iter().map(Column::name).collect();
    let distance = |known: &str| levenshtein(&wanted, &cut(known).to_lowercase());
    let mut nearest: Vec<(usize, &str)> =
        known.into_iter().map(|known| (distance(known), known)).collect();
    nearest.sort_unstable();
    let nearest: Vec<String> = nearest
        .iter()
        .take(NAMED_MAX)
        .map(|(_, known)| quote_identifier(known).into_owned())
        .collect();
    let table = asked.relation.as_ref().map(|table| format!("{}.", cut(table.table())));
    let told = format!("{NO_COLUMN}{}{name}", table.unwrap_or_default());
    match nearest.as_slice() {
        [] => told,
        [only] => format!("{told}; there is {only}"),
        _ => format!("{told}; the nearest are {}", nearest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::Column;

    use super::told;

    fn columns(names: &[&str]) -> Vec<Column> {
        names.iter().map(|name| Column::new(Some("events"), *name)).collect()
    }

    /// Expectations: edit distances counted by hand.
    #[test]
    fn the_nearest_are_named() {
        let names = columns(&[
            "uuid",
            "event",
            "distinct_id",
            "timestamp",
            "person_id",
            "$browser",
            "$browser_version",
            "properties",
            "event",
        ]);
        for (asked, nearest) in [
            ("evnt", "event"),
            ("Timestamp", "timestamp"),
            ("browser", "\"$browser\""),
            ("distinctid", "distinct_id"),
        ] {
            let text = told(&Column::new_unqualified(asked), &names);
            let begin = format!("there is no column {asked}; the nearest are {nearest}, ");
            assert!(text.starts_with(&begin), "{text}");
            assert_eq!(text.split(", ").count(), 5, "{text}");
        }
        let other = told(&Column::new(Some("p"), "id"), &columns(&["uuid"]));
        assert_eq!(other, "there is no column p.id; there is uuid");
        assert_eq!(told(&Column::new_unqualified("x"), &[]), "there is no column x");
    }

    #[test]
    fn long_names_are_cut() {
        let text =
            told(&Column::new_unqualified("é".repeat(100_000)), &columns(&["event", "uuid"]));
        assert!(text.chars().count() < 200, "{}", text.len());
    }
}
