//! Templates of ClickHouse's aggregates. As in ClickHouse, rows in which an argument is null are ignored, and lists of
//! no values are empty.

/// See [`super::TEMPLATES`].
pub(super) const TEMPLATES: &[(&str, usize, &str)] = &[
    ("countIf", 1, "count(*) FILTER (WHERE $1)"),
    ("countIf", 2, "count($1) FILTER (WHERE $2)"),
    ("sumIf", 2, "sum($1) FILTER (WHERE $2)"),
    ("avgIf", 2, "avg($1) FILTER (WHERE $2)"),
    ("minIf", 2, "min($1) FILTER (WHERE $2)"),
    ("maxIf", 2, "max($1) FILTER (WHERE $2)"),
    ("uniq", 1, "count(DISTINCT $1)"),
    ("uniqExact", 1, "count(DISTINCT $1)"),
    ("uniqCombined", 1, "count(DISTINCT $1)"),
    ("uniqCombined64", 1, "count(DISTINCT $1)"),
    ("uniqHLL12", 1, "count(DISTINCT $1)"),
    ("uniqTheta", 1, "count(DISTINCT $1)"),
    ("countDistinct", 1, "count(DISTINCT $1)"),
    ("uniqIf", 2, "count(DISTINCT $1) FILTER (WHERE $2)"),
    ("uniqExactIf", 2, "count(DISTINCT $1) FILTER (WHERE $2)"),
    ("countDistinctIf", 2, "count(DISTINCT $1) FILTER (WHERE $2)"),
    (
        "argMin",
        2,
        "first_value($1 ORDER BY $2 ASC) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)",
    ),
    (
        "argMinIf",
        3,
        "first_value($1 ORDER BY $2 ASC) FILTER (WHERE $3 AND $1 IS NOT NULL AND $2 IS NOT NULL)",
    ),
    (
        "argMax",
        2,
        "first_value($1 ORDER BY $2 DESC NULLS LAST) FILTER (WHERE $1 IS NOT NULL AND $2 IS NOT NULL)",
    ),
    (
        "argMaxIf",
        3,
        "first_value($1 ORDER BY $2 DESC NULLS LAST) FILTER (WHERE $3 AND $1 IS NOT NULL AND $2 IS NOT NULL)",
    ),
    ("groupArray", 1, "list_or_empty(array_agg($1) FILTER (WHERE $1 IS NOT NULL))"),
    ("groupArrayIf", 2, "list_or_empty(array_agg($1) FILTER (WHERE $2 AND $1 IS NOT NULL))"),
    ("groupUniqArray", 1, "list_or_empty(array_agg(DISTINCT $1) FILTER (WHERE $1 IS NOT NULL))"),
    (
        "groupUniqArrayIf",
        2,
        "list_or_empty(array_agg(DISTINCT $1) FILTER (WHERE $2 AND $1 IS NOT NULL))",
    ),
    ("any", 1, "first_value($1) IGNORE NULLS"),
    ("anyIf", 2, "first_value($1) FILTER (WHERE $2) IGNORE NULLS"),
    ("anyLast", 1, "last_value($1) IGNORE NULLS"),
    ("anyLastIf", 2, "last_value($1) FILTER (WHERE $2) IGNORE NULLS"),
    ("stddevPop", 1, "stddev_pop($1)"),
    ("stddevSamp", 1, "stddev_samp($1)"),
    ("stddevPopIf", 2, "stddev_pop($1) FILTER (WHERE $2)"),
    ("stddevSampIf", 2, "stddev_samp($1) FILTER (WHERE $2)"),
    ("varPopIf", 2, "var_pop($1) FILTER (WHERE $2)"),
    ("varSampIf", 2, "var_samp($1) FILTER (WHERE $2)"),
    ("covarPopIf", 3, "covar_pop($1, $2) FILTER (WHERE $3)"),
    ("covarSampIf", 3, "covar_samp($1, $2) FILTER (WHERE $3)"),
    ("varPop", 1, "var_pop($1)"),
    ("varSamp", 1, "var_samp($1)"),
    ("covarPop", 2, "covar_pop($1, $2)"),
    ("covarSamp", 2, "covar_samp($1, $2)"),
    ("groupBitAndIf", 2, "bit_and($1) FILTER (WHERE $2)"),
    ("groupBitOrIf", 2, "bit_or($1) FILTER (WHERE $2)"),
    ("groupBitXorIf", 2, "bit_xor($1) FILTER (WHERE $2)"),
    ("uniqHLL12If", 2, "count(DISTINCT $1) FILTER (WHERE $2)"),
    ("uniqThetaIf", 2, "count(DISTINCT $1) FILTER (WHERE $2)"),
    ("groupBitAnd", 1, "bit_and($1)"),
    ("groupBitOr", 1, "bit_or($1)"),
    ("groupBitXor", 1, "bit_xor($1)"),
];

/// The number of distinct tuples of several values, over rows in which none is null.
pub(super) fn uniq_of_tuples(name: &str, width: usize) -> Option<String> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    let is_one = TEMPLATES
        .iter()
        .any(|(own, width, template)| *width == 1 && is(own) && *template == "count(DISTINCT $1)");
    if !is_one || width < 2 {
        return None;
    }
    let of = |what: &str| (1..=width).map(|at| format!("${at}{what}")).collect::<Vec<_>>();
    let (values, known) = (of("").join(", "), of(" IS NOT NULL").join(" AND "));
    Some(format!("count(DISTINCT struct({values})) FILTER (WHERE {known})"))
}

/// The template of an aggregate with a whole number as parameter, and the number of its other arguments.
pub(super) fn of_most(name: &str, most: u32) -> Option<(usize, String)> {
    let is = |own: &str| own.eq_ignore_ascii_case(name);
    let template = |name: &str| {
        let (.., template) = TEMPLATES.iter().find(|(own, ..)| *own == name)?;
        Some(*template)
    };
    for (own, width) in
        [("groupArray", 1), ("groupArrayIf", 2), ("groupUniqArray", 1), ("groupUniqArrayIf", 2)]
    {
        if is(own) {
            return Some((width, format!("array_slice({}, 1, {most})", template(own)?)));
        }
    }
    let all = "array_agg($1) FILTER (WHERE $1 IS NOT NULL)";
    let some = "array_agg($1) FILTER (WHERE $2 AND $1 IS NOT NULL)";
    match () {
        () if is("topK") => Some((1, format!("most_frequent({all}, {most})"))),
        () if is("topKIf") => Some((2, format!("most_frequent({some}, {most})"))),
        () if is("uniqUpTo") => {
            Some((1, format!("least(count(DISTINCT $1), {})", u64::from(most) + 1)))
        }
        () => None,
    }
}

/// The template of `windowFunnel(seconds)(time, condition, ...)` with this number of arguments.
pub(super) fn window_funnel(seconds: u32, arguments: usize) -> String {
    let conditions: Vec<String> = (2..=arguments).map(|at| format!("${at}")).collect();
    format!(
        "window_funnel(array_agg(funnel_steps($1, {})) FILTER (WHERE $1 IS NOT NULL), {seconds})",
        conditions.join(", ")
    )
}
