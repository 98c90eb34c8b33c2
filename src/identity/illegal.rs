//! Distinct ids that are never merged, because many unrelated clients send them by mistake: one
//! wrong `identify("null")` per client would merge all of them into one person. Events with such
//! ids are stored and have a person like any other.
//!
//! Source: `person-utils.ts` of PostHog's plugin server.

/// Longest id that may be merged, in characters; PostHog's column is as wide.
const MERGEABLE_MAX_CHARS: usize = 400;

/// Illegal in upper and lower case.
const ANY_CASE: [&str; 10] = [
    "anonymous",
    "guest",
    "distinctid",
    "distinct_id",
    "id",
    "not_authenticated",
    "email",
    "undefined",
    "true",
    "false",
];

/// Illegal only in this spelling.
const EXACT: [&str; 7] = ["[object Object]", "NaN", "None", "none", "null", "0", "undefined"];

/// Whether the id may be one side of a merge.
pub(super) fn is_mergeable(id: &str) -> bool {
    let bare = unquoted(id);
    !(id.trim().is_empty()
        || id.contains('\0')
        || EXACT.contains(&bare)
        || ANY_CASE.iter().any(|illegal| illegal.eq_ignore_ascii_case(bare))
        || id.chars().nth(MERGEABLE_MAX_CHARS).is_some())
}

/// The id without one pair of quotes around it, if it has one.
fn unquoted(id: &str) -> &str {
    ['"', '\''].iter().find_map(|quote| id.strip_prefix(*quote)?.strip_suffix(*quote)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::is_mergeable;

    /// The list of PostHog's ingestion.
    #[test]
    fn ids_sent_by_mistake_are_not_mergeable() {
        for id in [
            "",
            " ",
            "\t\n",
            "anonymous",
            "Anonymous",
            "GUEST",
            "distinctid",
            "distinct_id",
            "ID",
            "not_authenticated",
            "Email",
            "undefined",
            "Undefined",
            "TRUE",
            "false",
            "[object Object]",
            "NaN",
            "None",
            "none",
            "null",
            "0",
            "\"null\"",
            "'null'",
            "'0'",
            "\"undefined\"",
            "'guest'",
            "a\0b",
        ] {
            assert!(!is_mergeable(id), "{id:?}");
        }
        assert!(!is_mergeable(&"é".repeat(401)));
    }

    #[test]
    fn other_ids_are() {
        for id in ["user1", "00", "NULL", "nan", "[object object]", "null'", "anonymous-1", "a b"] {
            assert!(is_mergeable(id), "{id:?}");
        }
        assert!(is_mergeable(&"é".repeat(400)));
    }
}
