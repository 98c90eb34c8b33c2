//! Clauses of a statement that the parser accepts and DataFusion's planner silently drops: the result would be as if
//! they were not there, so each is refused with its name in the error. Clauses that the planner refuses itself are not
//! included.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Cte, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArguments, GroupByExpr,
    GroupByWithModifier, LimitClause, PipeOperator, Query, Select, SetExpr, TableAlias,
    TableFactor, TableWithJoins, Visit, Visitor, WindowType,
};

use crate::dialect::walk::walk;

/// ClickHouse keywords that the parser takes for a table's alias if they are not quoted.
const WORDS_AS_ALIASES: [&str; 13] = [
    "ALL", "ANTI", "ANY", "ARRAY", "ASOF", "FINAL", "FORMAT", "GLOBAL", "PASTE", "PREWHERE",
    "SAMPLE", "SEMI", "SETTINGS",
];

/// The clause of a query that would be dropped.
pub(super) fn of_query(query: &Query) -> Option<String> {
    let Query { with, order_by, limit_clause, locks, for_clause, settings, format_clause, .. } =
        query;
    let is_recursive = with.as_ref().is_some_and(|with| with.recursive);
    let tables = with.iter().flat_map(|with| &with.cte_tables);
    let mut of_tables = tables.filter_map(|table| of_named(table, is_recursive));
    let of_joins = query.pipe_operators.iter().find_map(|operator| match operator {
        PipeOperator::Join(join) if join.global => Some("GLOBAL JOIN"),
        _ => None,
    });
    let orders = order_by.as_ref().is_some_and(has_window_by_name);
    let is_by = matches!(limit_clause, Some(LimitClause::LimitOffset { limit_by, .. }) if !limit_by.is_empty());
    let left_out = if is_by {
        Some("LIMIT BY")
    } else if !locks.is_empty() {
        Some("FOR UPDATE")
    } else if for_clause.is_some() {
        Some("FOR")
    } else if settings.is_some() {
        Some("SETTINGS")
    } else if format_clause.is_some() {
        Some("FORMAT")
    } else {
        of_joins
    };
    let named = || orders.then(|| unavailable("OVER with the name of a window in ORDER BY"));
    left_out.map(unavailable).or_else(|| of_tables.next()).or_else(named)
}

/// The clause of a CTE that would be dropped.
fn of_named(table: &Cte, is_recursive: bool) -> Option<String> {
    if table.from.is_some() {
        return Some(unavailable("FROM behind a table of WITH"));
    }
    let query = &*table.query;
    let is_step = is_recursive && matches!(*query.body, SetExpr::SetOperation { .. });
    let has_more = query.with.is_some()
        || query.order_by.is_some()
        || query.limit_clause.is_some()
        || query.fetch.is_some()
        || !query.pipe_operators.is_empty();
    let what = "WITH, ORDER BY and LIMIT of the UNION itself in a table of WITH RECURSIVE";
    (is_step && has_more).then(|| unavailable(what)).or_else(|| of_alias(&table.alias))
}

/// The clause of a SELECT that would be dropped.
pub(super) fn of_select(select: &Select) -> Option<String> {
    let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
    let of_groups = modifiers.first().map(|modifier| match modifier {
        GroupByWithModifier::Rollup => "WITH ROLLUP (write GROUP BY ROLLUP (...))",
        GroupByWithModifier::Cube => "WITH CUBE (write GROUP BY CUBE (...))",
        GroupByWithModifier::Totals => "WITH TOTALS",
        GroupByWithModifier::GroupingSets(_) => "GROUPING SETS behind GROUP BY expressions",
    });
    let conditions = [&select.selection, &select.having, &select.qualify];
    let of_windows = conditions.into_iter().flatten().any(has_window_by_name);
    let left_out = if !select.connect_by.is_empty() {
        Some("CONNECT BY")
    } else if select.exclude.is_some() {
        Some("EXCLUDE behind the columns (write * EXCLUDE (...))")
    } else if select.select_modifiers.is_some() {
        Some("a modifier of SELECT")
    } else if select.prewhere.is_some() {
        Some("PREWHERE")
    } else if select.value_table_mode.is_some() {
        Some("SELECT AS")
    } else if of_windows {
        Some("OVER with the name of a window outside of the columns")
    } else {
        of_groups
    };
    left_out.map(unavailable).or_else(|| select.from.iter().find_map(of_joins))
}

/// The clause of joins that would be dropped.
fn of_joins(tables: &TableWithJoins) -> Option<String> {
    let is_global = tables.joins.iter().any(|join| join.global);
    is_global.then(|| unavailable("GLOBAL JOIN"))
}

/// The clause of a table in FROM that would be dropped.
pub(super) fn of_table(table: &TableFactor) -> Option<String> {
    let (left_out, alias) = match table {
        TableFactor::Table {
            name: _,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } => {
            let left_out = if sample.is_some() {
                Some("SAMPLE")
            } else if !with_hints.is_empty() {
                Some("WITH behind a table")
            } else if version.is_some() {
                Some("a version of a table")
            } else if *with_ordinality {
                Some("WITH ORDINALITY")
            } else if !partitions.is_empty() {
                Some("PARTITION of a table")
            } else if json_path.is_some() {
                Some("a path behind a table")
            } else if !index_hints.is_empty() {
                Some("a hint about indexes")
            } else {
                args.as_ref().and_then(|arguments| match &arguments.settings {
                    Some(_) => Some("SETTINGS"),
                    None => of_arguments(&arguments.args),
                })
            };
            (left_out, alias)
        }
        TableFactor::Derived { lateral: _, subquery: _, alias, sample } => {
            (sample.is_some().then_some("SAMPLE"), alias)
        }
        TableFactor::Function { lateral: _, name: _, args, with_ordinality, alias } => {
            let left_out = with_ordinality.then_some("WITH ORDINALITY");
            (left_out.or_else(|| of_arguments(args)), alias)
        }
        TableFactor::NestedJoin { table_with_joins, alias } => match of_joins(table_with_joins) {
            Some(why) => return Some(why),
            None => (None, alias),
        },
        TableFactor::UNNEST { alias, .. } => (None, alias),
        // The planner supports no others.
        _ => return None,
    };
    let of_alias = |alias| of_word(alias).or_else(|| of_alias(alias));
    left_out.map(unavailable).or_else(|| alias.as_ref().and_then(of_alias))
}

/// Names of arguments of table functions are ignored by the planner.
fn of_arguments(arguments: &[FunctionArg]) -> Option<&'static str> {
    let is_named = |argument: &FunctionArg| !matches!(argument, FunctionArg::Unnamed(_));
    arguments.iter().any(is_named).then_some("a name of an argument of a function in FROM")
}

/// The keyword after a table that was parsed as its alias.
fn of_word(alias: &TableAlias) -> Option<String> {
    let word = alias.name.value.to_uppercase();
    let is_word = alias.name.quote_style.is_none() && WORDS_AS_ALIASES.contains(&word.as_str());
    (is_word && !alias.explicit).then(|| unavailable(&format!("{word} behind a table")))
}

/// The part of an alias that would be dropped.
fn of_alias(alias: &TableAlias) -> Option<String> {
    if alias.at.is_some() {
        return Some(unavailable("AT behind an alias"));
    }
    let is_typed = alias.columns.iter().any(|column| column.data_type.is_some());
    is_typed.then(|| unavailable("a type in the alias of a table"))
}

/// The part of a call that would be dropped.
pub(super) fn of_call(call: &Function, state: &SessionState) -> Option<String> {
    let name = call.name.to_string();
    let lower = name.to_lowercase();
    let arguments = match &call.args {
        FunctionArguments::Subquery(_) => {
            return Some(unavailable(&format!("a query as the arguments of {name}()")));
        }
        FunctionArguments::List(list) => Some(list),
        FunctionArguments::None => None,
    };
    if let Some(WindowType::WindowSpec(window)) = &call.over
        && window.window_name.is_some()
    {
        return Some(unavailable("the name of a window inside of OVER (...)"));
    }
    let is_distinct = arguments
        .is_some_and(|list| matches!(list.duplicate_treatment, Some(DuplicateTreatment::Distinct)));
    let has_clauses = arguments.is_some_and(|list| !list.clauses.is_empty());
    let part = if is_distinct {
        "DISTINCT"
    } else if call.filter.is_some() {
        "FILTER"
    } else if has_clauses || call.null_treatment.is_some() {
        "ORDER BY or NULLS"
    } else if !call.within_group.is_empty() {
        "WITHIN GROUP"
    } else if call.over.is_some() {
        "OVER"
    } else {
        return None;
    };
    // The planner looks up scalar functions first.
    let is_scalar = state.scalar_functions().contains_key(&lower)
        || state.higher_order_functions().contains_key(&lower)
        || ["unnest", "unnest_outer"].contains(&lower.as_str());
    // With OVER these are window functions; they are aggregates elsewhere.
    let is_of_rows = ["first_value", "last_value", "nth_value"].contains(&lower.as_str());
    let is_window = call.over.is_some()
        && state.window_functions().contains_key(&lower)
        && (is_of_rows || !state.aggregate_functions().contains_key(&lower));
    let is_left_out = is_scalar
        || is_window && matches!(part, "DISTINCT" | "FILTER" | "WITHIN GROUP")
        || is_window && has_clauses;
    is_left_out.then(|| format!("{name}() takes no {part}"))
}

/// The part of a cast's type that would be dropped: texts have any length.
pub(super) fn of_type(data_type: &DataType) -> Option<String> {
    let has_length = matches!(
        data_type,
        DataType::Char(Some(_))
            | DataType::Character(Some(_))
            | DataType::CharVarying(Some(_))
            | DataType::CharacterVarying(Some(_))
            | DataType::Nvarchar(Some(_))
            | DataType::Varchar(Some(_))
    );
    has_length.then(|| unavailable(&format!("a length of {data_type}")))
}

/// Whether a part has a call over a named window. The planner resolves those only in the select list; elsewhere such a
/// call would be treated as one without OVER.
fn has_window_by_name(part: &impl Visit) -> bool {
    walk(part, &mut WindowNames { queries: 0 }).is_break()
}

/// Stops at a call over a named window, except in nested queries, which have their own windows.
struct WindowNames {
    queries: usize,
}

impl Visitor for WindowNames {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries = self.queries.saturating_add(1);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries = self.queries.saturating_sub(1);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        match expression {
            Expr::Function(call)
                if self.queries == 0 && matches!(call.over, Some(WindowType::NamedWindow(_))) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn unavailable(what: &str) -> String {
    format!("{what} is not available")
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion::sql::parser::DFParser;

    use crate::guard::check;

    /// Statements, each with the clause that its error names; `None` for accepted ones.
    const STATEMENTS: &[(&str, Option<&str>)] = &[
        ("SELECT a FROM t SAMPLE 0.1", Some("SAMPLE")),
        ("SELECT a FROM t TABLESAMPLE (10)", Some("SAMPLE")),
        ("SELECT a FROM t AS u TABLESAMPLE BERNOULLI (10)", Some("SAMPLE")),
        ("SELECT a FROM (SELECT a FROM t) AS u TABLESAMPLE (10)", Some("SAMPLE")),
        ("SELECT a FROM t JOIN (SELECT a FROM t TABLESAMPLE (10)) AS u USING (a)", Some("SAMPLE")),
        ("SELECT a, count(*) FROM t GROUP BY a WITH TOTALS", Some("WITH TOTALS")),
        ("SELECT a, count(*) FROM t GROUP BY a WITH ROLLUP", Some("WITH ROLLUP")),
        ("SELECT a, count(*) FROM t GROUP BY a WITH CUBE", Some("WITH CUBE")),
        ("SELECT a, count(*) FROM t GROUP BY ALL WITH TOTALS", Some("WITH TOTALS")),
        ("SELECT a, count(*) FROM t GROUP BY a GROUPING SETS ((a), ())", Some("GROUPING SETS")),
        ("SELECT a, count(*) FROM t GROUP BY ROLLUP (a)", None),
        ("SELECT a FROM t GLOBAL JOIN u USING (a)", Some("GLOBAL JOIN")),
        ("SELECT a FROM t CONNECT BY a = PRIOR a", Some("CONNECT BY")),
        ("SELECT a FROM t START WITH a = 1 CONNECT BY a = PRIOR a", Some("CONNECT BY")),
        ("SELECT a FROM t SETTINGS max_threads = 1", Some("SETTINGS")),
        ("SELECT a FROM t FORMAT JSON", Some("FORMAT")),
        ("SELECT a FROM t LIMIT 1 BY a", Some("LIMIT BY")),
        ("SELECT a FROM t ORDER BY b LIMIT 2 BY a, b", Some("LIMIT BY")),
        ("SELECT a FROM t LIMIT 1 OFFSET 2", None),
        ("SELECT a FROM t FOR UPDATE", Some("FOR UPDATE")),
        ("SELECT a FROM t FOR SHARE", Some("FOR UPDATE")),
        ("SELECT a FROM t FOR JSON AUTO", Some("FOR")),
        ("SELECT a FROM t WITH (NOLOCK)", Some("WITH behind a table")),
        ("SELECT a FROM t PARTITION (p0)", Some("PARTITION")),
        ("SELECT a FROM t WITH ORDINALITY", Some("WITH ORDINALITY")),
        ("SELECT a FROM LATERAL range(1, 2) WITH ORDINALITY", Some("WITH ORDINALITY")),
        ("SELECT a FROM range(stop => 1)", Some("a name of an argument")),
        ("SELECT a FROM t any LEFT JOIN u USING (a)", Some("ANY behind a table")),
        ("SELECT a FROM t ALL INNER JOIN u USING (a)", Some("ALL behind a table")),
        ("SELECT a FROM t FINAL", Some("FINAL")),
        ("SELECT a FROM t AS any LEFT JOIN u USING (a)", None),
        ("SELECT a FROM t \"any\" LEFT JOIN u USING (a)", None),
        ("SELECT a FROM t AS u (a INT)", Some("a type in the alias")),
        ("SELECT a FROM t AS u (b)", None),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r LIMIT 5) SELECT * FROM r",
            Some("LIMIT"),
        ),
        (
            "WITH RECURSIVE r AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM r WHERE x < 5) SELECT * FROM r",
            None,
        ),
        ("WITH r AS (SELECT 1 AS x UNION ALL SELECT 2 LIMIT 1) SELECT * FROM r LIMIT 1", None),
        ("SELECT ARRAY(SELECT a FROM t)", Some("a query as the arguments of ARRAY()")),
        ("SELECT lower(DISTINCT a) FROM t", Some("lower() takes no DISTINCT")),
        ("SELECT lower(a) FILTER (WHERE a = 'x') FROM t", Some("lower() takes no FILTER")),
        ("SELECT lower(a) OVER () FROM t", Some("lower() takes no OVER")),
        ("SELECT lower(a ORDER BY a) FROM t", Some("lower() takes no ORDER BY")),
        ("SELECT lower(a) IGNORE NULLS FROM t", Some("lower() takes no ORDER BY or NULLS")),
        ("SELECT lower() WITHIN GROUP (ORDER BY a) FROM t", Some("lower() takes no WITHIN GROUP")),
        ("SELECT unnest(DISTINCT a) FROM t", Some("unnest() takes no DISTINCT")),
        (
            "SELECT row_number() FILTER (WHERE a = 1) OVER () FROM t",
            Some("row_number() takes no FILTER"),
        ),
        (
            "SELECT first_value(a) FILTER (WHERE a = 1) OVER () FROM t",
            Some("first_value() takes no FILTER"),
        ),
        (
            "SELECT last_value(a ORDER BY a) OVER () FROM t",
            Some("last_value() takes no ORDER BY or NULLS"),
        ),
        ("SELECT first_value(a) IGNORE NULLS OVER (ORDER BY a) FROM t", None),
        ("SELECT sum(a) FILTER (WHERE a = 1) OVER () FROM t", None),
        ("SELECT count(DISTINCT a) FILTER (WHERE a = 1), array_agg(a ORDER BY a) FROM t", None),
        ("SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY a)", None),
        (
            "SELECT a FROM t WINDOW w AS (ORDER BY a) ORDER BY sum(a) OVER w",
            Some("the name of a window"),
        ),
        (
            "SELECT a FROM t WINDOW w AS (ORDER BY a) QUALIFY sum(a) OVER w > 1",
            Some("the name of a window"),
        ),
        (
            "SELECT sum(a) OVER (w ROWS 2 PRECEDING) FROM t WINDOW w AS (ORDER BY a)",
            Some("the name of a window"),
        ),
        ("SELECT a FROM t WHERE a IN (SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY a))", None),
        ("SELECT a FROM t |> JOIN u USING (a)", None),
        ("SELECT a FROM (t GLOBAL JOIN u USING (a))", Some("GLOBAL JOIN")),
        ("SELECT a FROM t PREWHERE a = 1 WHERE a = 2", Some("PREWHERE")),
        ("WITH final AS (SELECT 1), any AS (SELECT 2) SELECT * FROM final, any", None),
        ("SELECT CAST(a AS VARCHAR(2)) FROM t", Some("a length of VARCHAR(2)")),
        ("SELECT a::CHAR(1), TRY_CAST(a AS VARCHAR) FROM t", Some("a length of CHAR(1)")),
        ("SELECT CAST(a AS VARCHAR), CAST(a AS DECIMAL(8, 1)) FROM t", None),
    ];

    /// Goal: no clause of a query is silently dropped. Method: each clause that is parsed and not planned.
    #[test]
    fn what_no_plan_would_have_is_refused_by_its_name() {
        let state = SessionContext::new().state();
        for (sql, expected) in STATEMENTS {
            let explained = format!("EXPLAIN {sql}");
            for sql in [*sql, explained.as_str()] {
                let parsed = DFParser::parse_sql(sql);
                let parsed = parsed.unwrap_or_else(|error| panic!("{sql}: {error}"));
                let found = check(&parsed[0], &state).map_err(|error| error.to_string());
                match expected {
                    None => assert_eq!(found, Ok(()), "{sql}"),
                    Some(name) => {
                        let why = found.unwrap_err();
                        assert!(why.contains(name), "{sql}: {why}");
                    }
                }
            }
        }
    }
}
