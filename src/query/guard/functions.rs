//! Classification of every SQL function by the memory and time that a call may take: [`class`]. A test fails for a
//! function without a class, so a new version of DataFusion cannot add one unnoticed.

/// How a scalar function is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Called directly: the output is a part of the arguments, and optimizer rules look for the function's type.
    Plain,
    /// Called within the limits of its rule.
    Guarded(Rule),
    /// Not available in SQL.
    Absent,
}

/// How the bounds of a call follow from its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Maximum size of the output.
    pub(super) output: Output,
    /// Maximum duration.
    pub(super) cost: Cost,
}

/// Maximum bytes of the output for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// A number, a truth value, a time, or a text as short as these.
    Narrow,
    /// The size of the arguments times this factor.
    Times(usize),
    /// The arguments, with the first one between each two of the others.
    Joined,
    /// The first argument, repeated by the second.
    Repeated,
    /// As many characters as the value of the second argument.
    Padded,
    /// The first argument, with each occurrence of the second replaced by the third.
    Replaced,
    /// The same, where the second is a pattern and the third may refer to its groups.
    PatternReplaced,
    /// A text for each group of the second argument, a pattern.
    Groups,
    /// The same for each match of the pattern.
    AllGroups,
    /// The elements of the first argument as text, with the second between them and the third for nulls.
    ElementsJoined,
    /// The first argument, with any of its elements replaced by the third.
    ElementsReplaced,
    /// As many elements as the value of the second argument, of the size of the third.
    Resized,
    /// The numbers or times from the first argument to the second in steps of the third.
    Series,
    /// Lists padded to the length of the longest of them.
    Zipped,
    /// A time, formatted with the second argument.
    Formatted,
    /// As many bytes as the longest digest.
    Digest,
}

/// Maximum steps for a row, of about a nanosecond each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    /// Linear in the size of arguments and output.
    Linear,
    /// The product of the lengths of the first two arguments.
    Product,
    /// The length of the first argument times the pattern states that can be active at once.
    Pattern,
    /// The same for a LIKE pattern, whose states are its characters.
    Wildcards,
}

const fn guarded(output: Output) -> Class {
    Class::Guarded(Rule { output, cost: Cost::Linear })
}

const fn costly(output: Output, cost: Cost) -> Class {
    Class::Guarded(Rule { output, cost })
}

/// Scalar functions by class.
const SCALAR: &[(Class, &[&str])] = &[
    // Looked up by its type where fields of files are read.
    (Class::Plain, &["get_field"]),
    (
        guarded(Output::Narrow),
        &[
            // Numbers.
            "abs",
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atan2",
            "atanh",
            "cbrt",
            "ceil",
            "cos",
            "cosh",
            "cot",
            "degrees",
            "exp",
            "factorial",
            "floor",
            "gcd",
            "isnan",
            "iszero",
            "lcm",
            "ln",
            "log",
            "log10",
            "log2",
            "nanvl",
            "pi",
            "power",
            "radians",
            "random",
            "round",
            "signum",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "trunc",
            // Times.
            "current_date",
            "current_time",
            "date_bin",
            "date_part",
            "date_trunc",
            "from_unixtime",
            "make_date",
            "make_time",
            "now",
            "whole_months",
            "to_date",
            "to_local_time",
            "to_time",
            "to_timestamp",
            "to_timestamp_micros",
            "to_timestamp_millis",
            "to_timestamp_nanos",
            "to_timestamp_seconds",
            "to_unixtime",
            // Numbers and truth values of texts.
            "ascii",
            "bit_length",
            "character_length",
            "contains",
            "ends_with",
            "find_in_set",
            "octet_length",
            "port",
            "starts_with",
            // Short texts.
            "arrow_typeof",
            "chr",
            "to_hex",
            "union_tag",
            "uuid",
            "version",
            // Numbers and truth values of lists.
            "array_avg",
            "array_distance",
            "array_has",
            "array_length",
            "array_ndims",
            "array_position",
            "array_product",
            "array_sum",
            "cardinality",
            "arrayall",
            "arrayavg",
            "arraycount",
            "arrayexists",
            "arrayfirstindex",
            "arraylastindex",
            "arrayproduct",
            "arraysum",
            "arrayuniq",
            "cosine_distance",
            "countequal",
            "empty",
            "inner_product",
            "is_empty",
            "length_of",
            "notempty",
            "window_funnel",
            // Numbers and truth values of JSON.
            "json_contains",
            "json_get_bool",
            "json_get_float",
            "json_get_int",
            "json_length",
        ],
    ),
    (
        guarded(Output::Times(1)),
        &[
            "array_any_value",
            "array_element",
            "array_max",
            "array_min",
            "arraymax",
            "arraymin",
            "btrim",
            "coalesce",
            "cutfragment",
            "cutquerystring",
            "cutquerystringandfragment",
            "cutwww",
            "domain",
            "domainwithoutwww",
            "extracturlparameter",
            "fragment",
            "greatest",
            "least",
            "left",
            "ltrim",
            "netloc",
            "nullif",
            "quantiles_of_list",
            "nvl",
            "nvl2",
            "path",
            "pathfull",
            "protocol",
            "querystring",
            "querystringandfragment",
            "reverse",
            "right",
            "rtrim",
            "split_part",
            "substr",
            "substr_index",
            "topleveldomain",
            "union_extract",
        ],
    ),
    (
        guarded(Output::Times(2)),
        &[
            "array_append",
            "array_compact",
            "array_concat",
            "array_distinct",
            "array_except",
            "array_intersect",
            "array_or_null",
            "array_pop_back",
            "array_pop_front",
            "array_prepend",
            "array_remove",
            "array_remove_all",
            "array_remove_n",
            "array_reverse",
            "array_slice",
            "array_sort",
            "array_union",
            "arrays_aligned",
            "arraycompact",
            "arraydistinct",
            "arrayflatten",
            "arrayreversesort",
            "arrayslice",
            "arraysort",
            "arrayzip",
            "base64decode",
            "base64encode",
            "concat",
            "cuturlparameter",
            "decode",
            "encode",
            "flatten",
            "hex",
            "json_as_text",
            "json_from_scalar",
            "json_get",
            "json_get_json",
            "json_get_str",
            "json_union_to_text",
            "list_or_empty",
            "make_array",
            "map",
            "map_entries",
            "map_extract",
            "map_keys",
            "map_values",
            "most_frequent",
            "named_struct",
            "overlay",
            "regexpquotemeta",
            "struct",
            "trybase64decode",
            "unhex",
        ],
    ),
    // Case changes the length of letters, by a factor of at most three in UTF-8.
    (
        guarded(Output::Times(4)),
        &[
            "decodeurlcomponent",
            "decodeurlformcomponent",
            "encodeurlcomponent",
            "encodeurlformcomponent",
            "initcap",
            "lower",
            "translate",
            "upper",
        ],
    ),
    // Eight bytes for an element of one byte.
    (
        guarded(Output::Times(8)),
        &[
            "array_add",
            "array_dims",
            "array_normalize",
            "array_positions",
            "array_scale",
            "array_subtract",
            "arraycumsum",
            "arraycumsumnonnegative",
            "arraydifference",
            "arrayenumerate",
            "arrayenumeratedense",
            "arrayenumerateuniq",
            "funnel_steps",
        ],
    ),
    // A view or an offset for each character.
    (
        guarded(Output::Times(20)),
        &[
            "alphatokens",
            "extracturlparameternames",
            "extracturlparameters",
            "json_get_array",
            "json_object_keys",
            "splitbyalpha",
            "splitbynonalpha",
            "splitbywhitespace",
            "string_to_array",
        ],
    ),
    (guarded(Output::Joined), &["concat_ws"]),
    (guarded(Output::Repeated), &["array_repeat", "repeat"]),
    (guarded(Output::Padded), &["lpad", "rpad"]),
    (guarded(Output::Replaced), &["replace", "replaceone"]),
    (costly(Output::PatternReplaced, Cost::Pattern), &["regexp_replace"]),
    (costly(Output::Groups, Cost::Pattern), &["extractgroups", "regexp_match"]),
    (
        costly(Output::AllGroups, Cost::Pattern),
        &["extractallgroups", "extractallgroupshorizontal", "extractallgroupsvertical"],
    ),
    (costly(Output::Times(20), Cost::Pattern), &["extractall", "split_by_pattern"]),
    (costly(Output::Times(1), Cost::Pattern), &["regexpextract"]),
    (guarded(Output::Digest), &["sha224", "sha256", "sha384", "sha512"]),
    (
        costly(Output::Narrow, Cost::Pattern),
        &["countmatches", "regexp_count", "regexp_instr", "regexp_like"],
    ),
    (guarded(Output::ElementsJoined), &["array_to_string", "arraystringconcat"]),
    (guarded(Output::ElementsReplaced), &["array_replace", "array_replace_all", "array_replace_n"]),
    (guarded(Output::Resized), &["array_resize"]),
    (guarded(Output::Series), &["generate_series", "range"]),
    (guarded(Output::Zipped), &["arrays_zip"]),
    (guarded(Output::Formatted), &["format_time", "to_char"]),
    (
        costly(Output::Narrow, Cost::Product),
        &[
            "array_has_all",
            "array_has_any",
            "countsubstrings",
            "hassubstr",
            "levenshtein",
            "multisearchany",
            "multisearchanycaseinsensitive",
            "multisearchfirstindex",
            "multisearchfirstposition",
            "strpos",
        ],
    ),
    (
        costly(Output::Times(8), Cost::Product),
        &["multisearchallpositions", "multisearchallpositionscaseinsensitive"],
    ),
    (
        Class::Absent,
        &[
            // They reveal files, which contain the events of all projects.
            "file_row_index",
            "input_file_name",
            // They accept Arrow types, such as lists of a fixed length of billions; CAST accepts those of SQL.
            "arrow_cast",
            "arrow_field",
            "arrow_metadata",
            "arrow_try_cast",
            "cast_to_type",
            "try_cast_to_type",
            "with_metadata",
        ],
    ),
];

/// Aggregate functions: the operator that calls them accounts for their state.
#[cfg(test)]
const AGGREGATE: &[&str] = &[
    "any_value",
    "approx_distinct",
    "approx_median",
    "approx_percentile_cont",
    "approx_percentile_cont_with_weight",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "first_value",
    "grouping",
    "last_value",
    "max",
    "median",
    "min",
    "nth_value",
    "percentile_cont",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "string_agg",
    "sum",
    "var",
    "var_pop",
];

/// Window functions: for each row a value of the partition, or a number.
#[cfg(test)]
const WINDOW: &[&str] = &[
    "cume_dist",
    "dense_rank",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "nth_value",
    "ntile",
    "percent_rank",
    "rank",
    "row_number",
];

/// Table functions: they produce rows batch by batch.
#[cfg(test)]
const TABLE: &[&str] = &["generate_series", "range"];

/// Higher-order functions of DataFusion. Before the inner function is called, they copy the columns that it uses for
/// each list element.
pub(super) const HIGHER_ORDER_ABSENT: &[&str] =
    &["array_any_match", "array_filter", "array_first", "array_transform"];

/// Our own, which process a limited number of elements at a time.
#[cfg(test)]
const HIGHER_ORDER: &[&str] =
    &["array_reverse_sort_by", "array_sort_by", "arrayfilter", "arraymap"];

/// The class of the scalar function with this name; `None` for functions that are not DataFusion's.
pub(super) fn class(name: &str) -> Option<Class> {
    let mut classes = SCALAR.iter();
    classes.find(|(_, names)| names.contains(&name)).map(|(class, _)| *class)
}

/// Names of scalar functions that are not available in SQL.
pub(super) fn absent() -> impl Iterator<Item = &'static str> {
    let classes = SCALAR.iter().filter(|(class, _)| *class == Class::Absent);
    classes.flat_map(|(_, names)| names.iter().copied())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use datafusion::execution::{FunctionRegistry, SessionState, SessionStateBuilder};

    use super::{AGGREGATE, HIGHER_ORDER, HIGHER_ORDER_ABSENT, SCALAR, TABLE, WINDOW};
    use crate::functions::quantile;

    fn everything() -> SessionState {
        let mut state = SessionStateBuilder::new().with_default_features().build();
        datafusion_functions_json::register_all(&mut state).unwrap();
        state.register_udf(Arc::new(quantile::function())).unwrap();
        crate::functions::register(&mut state).unwrap();
        state
    }

    /// Asserts that `listed` has each of `registered` once, and nothing else.
    fn same<'a>(
        listed: impl Iterator<Item = &'static str>,
        registered: impl Iterator<Item = &'a str>,
    ) {
        let registered: BTreeSet<&str> = registered.collect();
        let mut seen = BTreeSet::new();
        for name in listed {
            assert!(seen.insert(name), "{name} stands in two places");
        }
        let differing: Vec<_> = seen.symmetric_difference(&registered).collect();
        assert!(differing.is_empty(), "not on both sides: {differing:?}");
    }

    /// Goal: no function can be called whose memory and time were not considered. Method: compares all registered
    /// functions, by their own names, with the lists here. It fails for a function that is new or removed.
    #[test]
    fn each_function_is_in_exactly_one_class() {
        let state = everything();
        let scalar = state.scalar_functions().values().map(|function| function.name());
        same(SCALAR.iter().flat_map(|(_, names)| names.iter().copied()), scalar);
        let aggregate = state.aggregate_functions().values().map(|function| function.name());
        same(AGGREGATE.iter().copied(), aggregate);
        let window = state.window_functions().values().map(|function| function.name());
        same(WINDOW.iter().copied(), window);
        same(TABLE.iter().copied(), state.table_functions().keys().map(String::as_str));
        let higher_order = state.higher_order_functions().values().map(|function| function.name());
        same(HIGHER_ORDER_ABSENT.iter().chain(HIGHER_ORDER).copied(), higher_order);
    }
}
