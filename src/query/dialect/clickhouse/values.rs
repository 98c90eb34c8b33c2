//! Templates of ClickHouse's functions of texts, numbers and lists, and functions with another name here.

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::sqlparser::ast::{WindowFrameBound, WindowType};

/// See [`super::TEMPLATES`].
pub(super) const TEMPLATES: &[(&str, usize, &str)] = &[
    // Texts.
    ("lengthUTF8", 1, "char_length($1)"),
    ("lowerUTF8", 1, "lower($1)"),
    ("upperUTF8", 1, "upper($1)"),
    ("substringUTF8", 2, "substr($1, $2)"),
    ("substringUTF8", 3, "substr($1, $2, $3)"),
    ("mid", 2, "substr($1, $2)"),
    ("mid", 3, "substr($1, $2, $3)"),
    ("leftUTF8", 2, "left($1, $2)"),
    ("rightUTF8", 2, "right($1, $2)"),
    ("space", 1, "repeat(' ', $1)"),
    (
        "appendTrailingCharIfAbsent",
        2,
        "CASE WHEN $1 = '' OR ends_with($1, $2) THEN $1 ELSE $1 || $2 END",
    ),
    ("leftPad", 2, "lpad($1, $2)"),
    ("leftPad", 3, "lpad($1, $2, $3)"),
    ("rightPad", 2, "rpad($1, $2)"),
    ("rightPad", 3, "rpad($1, $2, $3)"),
    ("trimLeft", 1, "ltrim($1)"),
    ("trimRight", 1, "rtrim($1)"),
    ("trimBoth", 1, "btrim($1)"),
    ("position", 2, "strpos($1, $2)"),
    ("positionUTF8", 2, "strpos($1, $2)"),
    ("positionCaseInsensitive", 2, "strpos(lower($1), lower($2))"),
    ("positionCaseInsensitiveUTF8", 2, "strpos(lower($1), lower($2))"),
    ("like", 2, "($1 LIKE $2)"),
    ("notLike", 2, "($1 NOT LIKE $2)"),
    ("ilike", 2, "($1 ILIKE $2)"),
    ("notILike", 2, "($1 NOT ILIKE $2)"),
    ("replaceAll", 3, "replace($1, $2, $3)"),
    ("replaceRegexpAll", 3, "regexp_replace($1, $2, $3, 'g')"),
    ("countSubstringsCaseInsensitive", 2, "countSubstrings(lower($1), lower($2))"),
    ("countMatchesCaseInsensitive", 2, "countMatches($1, '(?i)' || $2)"),
    ("splitByRegexp", 2, "split_by_pattern($2, $1)"),
    ("replaceRegexpOne", 3, "regexp_replace($1, $2, $3)"),
    ("splitByChar", 2, "string_to_array($2, $1)"),
    ("splitByString", 2, "string_to_array($2, $1)"),
    // A dot matches line breaks, too.
    ("match", 2, "regexp_like($1, $2, 's')"),
    // The first group, or the whole match if there is none.
    ("extract", 2, "coalesce((regexp_match($1, $2))[1], left($1, 0))"),
    ("startsWith", 2, "starts_with($1, $2)"),
    ("endsWith", 2, "ends_with($1, $2)"),
    // Numbers. The quotient is truncated, also for numbers with a fraction.
    ("intDiv", 2, "CAST(trunc(try_cast($1 AS DOUBLE) / try_cast($2 AS DOUBLE)) AS BIGINT)"),
    (
        "intDivOrZero",
        2,
        "CASE WHEN $1 IS NULL THEN NULL WHEN try_cast($2 AS DOUBLE) = 0 THEN 0 ELSE CAST(trunc(try_cast($1 AS DOUBLE) / nullif(try_cast($2 AS \
         DOUBLE), 0)) AS BIGINT) END",
    ),
    ("modulo", 2, "($1 % $2)"),
    ("moduloOrZero", 2, "CASE WHEN $1 IS NULL THEN NULL WHEN $2 = 0 THEN 0 ELSE $1 % $2 END"),
    ("positiveModulo", 2, "((($1 % $2) + abs($2)) % abs($2))"),
    ("plus", 2, "($1 + $2)"),
    ("minus", 2, "($1 - $2)"),
    ("multiply", 2, "($1 * $2)"),
    ("divide", 2, "(try_cast($1 AS DOUBLE) / $2)"),
    ("negate", 1, "(- $1)"),
    ("bitAnd", 2, "($1 & $2)"),
    ("bitOr", 2, "($1 | $2)"),
    ("bitXor", 2, "($1 ^ $2)"),
    ("bitShiftLeft", 2, "($1 << $2)"),
    ("bitShiftRight", 2, "($1 >> $2)"),
    ("bitTest", 2, "(($1 >> $2) & 1)"),
    ("exp2", 1, "power(CAST(2 AS DOUBLE), $1)"),
    ("exp10", 1, "power(CAST(10 AS DOUBLE), $1)"),
    ("e", 0, "exp(CAST(1 AS DOUBLE))"),
    ("isFinite", 1, "(abs(CAST($1 AS DOUBLE)) < CAST('Infinity' AS DOUBLE))"),
    ("isInfinite", 1, "(abs(CAST($1 AS DOUBLE)) = CAST('Infinity' AS DOUBLE))"),
    (
        "ifNotFinite",
        2,
        "CASE WHEN $1 IS NULL THEN NULL WHEN abs(CAST($1 AS DOUBLE)) < CAST('Infinity' AS DOUBLE) THEN $1 ELSE $2 END",
    ),
    ("max2", 2, "CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL ELSE greatest($1, $2) END"),
    ("min2", 2, "CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL ELSE least($1, $2) END"),
    // Conversions.
    (
        "toBool",
        1,
        "CASE lower(CAST($1 AS VARCHAR)) WHEN 'true' THEN true WHEN 'false' THEN false \
                   ELSE try_cast($1 AS DOUBLE) <> 0 END",
    ),
    ("toUUID", 1, "CAST($1 AS VARCHAR)"),
    // Conditions, and functions without an effect.
    ("xor", 2, "(CAST($1 AS BOOLEAN) <> CAST($2 AS BOOLEAN))"),
    ("assumeNotNull", 1, "$1"),
    ("toNullable", 1, "$1"),
    ("identity", 1, "$1"),
    ("materialize", 1, "$1"),
    // Lists and maps.
    ("arrayWithConstant", 2, "array_repeat($2, $1)"),
    ("arrayResize", 3, "array_resize($1, $2, $3)"),
    ("mapContains", 2, "array_has(map_keys($1), $2)"),
    ("mapFromArrays", 2, "map($1, $2)"),
    ("arrayJoin", 1, "unnest($1)"),
    ("has", 2, "array_has($1, $2)"),
    ("indexOf", 2, "coalesce(array_position($1, $2), 0)"),
    ("arrayElement", 2, "array_element($1, $2)"),
    ("arrayPushBack", 2, "array_append($1, $2)"),
    ("arrayPushFront", 2, "array_prepend($2, $1)"),
    ("arrayPopBack", 1, "array_pop_back($1)"),
    ("arrayPopFront", 1, "array_pop_front($1)"),
    ("arrayReverse", 1, "array_reverse($1)"),
    ("hasAll", 2, "array_has_all($1, $2)"),
    ("hasAny", 2, "array_has_any($1, $2)"),
];

/// Functions that exist under another name, whatever their arguments are.
const RENAMED: &[(&str, &str)] = &[
    ("arrayConcat", "array_concat"),
    // Here these names belong to functions of texts or of lists only.
    ("length", "length_of"),
    ("empty", "is_empty"),
    ("array", "make_array"),
    ("ceiling", "ceil"),
    ("denseRank", "dense_rank"),
    ("percentRank", "percent_rank"),
    ("editDistance", "levenshtein"),
    ("levenshteinDistance", "levenshtein"),
    ("lcase", "lower"),
    ("ucase", "upper"),
    ("leftPadUTF8", "leftPad"),
    ("rightPadUTF8", "rightPad"),
    ("reverseUTF8", "reverse"),
    ("translateUTF8", "translate"),
    ("substringIndex", "substr_index"),
    ("mapKeys", "map_keys"),
    ("mapValues", "map_values"),
    ("makeDate", "make_date"),
    ("sumWithOverflow", "sum"),
    ("timestampAdd", "dateAdd"),
    ("timestamp_add", "dateAdd"),
    ("timestampSub", "dateSub"),
    ("timestamp_sub", "dateSub"),
    ("toDate32", "toDate"),
    ("UTCTimestamp", "now"),
    ("nowInBlock", "now"),
    ("lagInFrame", "lag"),
    ("leadInFrame", "lead"),
    ("date_diff", "dateDiff"),
    ("date_add", "dateAdd"),
    ("date_sub", "dateSub"),
    ("sign", "signum"),
    ("truncate", "trunc"),
    ("isNaN", "isnan"),
    ("generateUUIDv4", "uuid"),
    ("now64", "now"),
    ("parseDateTimeBestEffort", "toDateTime"),
    ("parseDateTime64BestEffort", "toDateTime"),
    ("toDateOrNull", "toDate"),
];

/// Names of functions with another name here.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    RENAMED.iter().map(|(name, _)| *name)
}

/// The name of a function here.
pub(super) fn renamed(name: &str) -> Option<&'static str> {
    let mut renamed = RENAMED.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
    renamed.next().map(|(_, here)| *here)
}

/// `lag` and `lead` read all rows of a partition, so they are the same as those within a frame only if it extends to
/// the partition's end.
///
/// # Errors
///
/// The frame of such a call ends earlier.
pub(super) fn check_frame(name: &str, over: Option<&WindowType>) -> Result<()> {
    let (is_lag, is_lead) =
        (name.eq_ignore_ascii_case("lagInFrame"), name.eq_ignore_ascii_case("leadInFrame"));
    if !is_lag && !is_lead {
        return Ok(());
    }
    let frame = match over {
        Some(WindowType::WindowSpec(window)) => window.window_frame.as_ref(),
        _ => None,
    };
    let unbounded = |bound: &WindowFrameBound| {
        matches!(bound, WindowFrameBound::Preceding(None) | WindowFrameBound::Following(None))
    };
    let begins = frame.is_none_or(|frame| unbounded(&frame.start_bound));
    let ends = frame.and_then(|frame| frame.end_bound.as_ref()).is_some_and(unbounded);
    match begins && (is_lag || ends) {
        true => Ok(()),
        false => Err(DataFusionError::Plan(format!(
            "{name} is available over ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
        ))),
    }
}
