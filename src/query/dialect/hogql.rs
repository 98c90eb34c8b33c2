//! The HogQL dialect of the SQL parser: [`Hogql`] extends the generic dialect by `a ?? b`, `c ? a : b`, `=~`, `=~*`,
//! `IN [..]`, `IN COHORT 5`, `extract(text, pattern)`, and lambdas as arguments of functions that accept one.
//! [`statement`] parses a query, in which `WITH 1 AS x` names an expression, and ARRAY JOIN takes arrays.

use std::any::TypeId;

use datafusion::error::{DataFusionError, Result};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    Ident, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, ObjectName, OneOrManyWithParens,
    Value,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::dialect::clickhouse::call;
use crate::dialect::cohort_names::By;
use crate::dialect::statements::only;
use crate::dialect::{array_join, cohort_names, dashed_names, with_constants};
use crate::functions;

/// The function that returns its first argument that is not null.
const COALESCE: &str = "coalesce";

/// Lower precedence than OR; right-associative.
const TERNARY: u8 = 3;

/// Parses a text of one statement.
///
/// # Errors
///
/// It is not a statement, or has more than one.
pub(crate) fn statement(sql: &str, recursion_limit: usize) -> Result<Statement> {
    let tokens = Tokenizer::new(&Hogql, sql).tokenize_with_location();
    let tokens = tokens.map_err(|error| DataFusionError::from(ParserError::from(error)))?;
    dashed_names::check(&tokens)?;
    let statements = DFParserBuilder::new(array_join::written(with_constants::written(tokens)))
        .with_dialect(&Hogql)
        .with_recursion_limit(recursion_limit)
        .build()?
        .parse_statements()?;
    only(statements)
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Hogql;

/// Delegates methods to the generic dialect.
macro_rules! generic {
    ($($name:ident)*) => {
        $(fn $name(&self) -> bool {
            GenericDialect.$name()
        })*
    };
}

impl Dialect for Hogql {
    /// The parser checks in places for the generic dialect.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, sign: char) -> bool {
        GenericDialect.is_delimited_identifier_start(sign)
    }

    fn is_identifier_start(&self, sign: char) -> bool {
        GenericDialect.is_identifier_start(sign)
    }

    fn is_identifier_part(&self, sign: char) -> bool {
        GenericDialect.is_identifier_part(sign)
    }

    generic! {
        supports_unicode_string_literal
        supports_partition_by_after_order_by
        supports_array_join_syntax
        supports_group_by_expr
        supports_group_by_with_modifier
        supports_left_associative_joins_without_parens
        supports_connect_by
        supports_match_recognize
        supports_pipe_operator
        supports_start_transaction_modifier
        supports_window_function_null_treatment_arg
        supports_dictionary_syntax
        supports_window_clause_named_window_reference
        supports_parenthesized_set_variables
        supports_select_wildcard_except
        support_map_literal_syntax
        allow_extract_custom
        allow_extract_single_quotes
        supports_extract_comma_syntax
        supports_create_view_comment_syntax
        supports_parens_around_table_factor
        supports_values_as_table_factor
        supports_create_index_with_clause
        supports_explain_with_utility_options
        supports_limit_comma
        supports_update_order_by
        supports_from_first_select
        supports_projection_trailing_commas
        supports_asc_desc_in_column_definition
        supports_try_convert
        supports_bitwise_shift_operators
        supports_comment_on
        supports_load_extension
        supports_named_fn_args_with_assignment_operator
        supports_struct_literal
        supports_empty_projections
        supports_nested_comments
        supports_multiline_comment_hints
        supports_user_host_grantee
        supports_string_escape_constant
        supports_array_typedef_with_brackets
        supports_match_against
        supports_set_names
        supports_comma_separated_set_assignments
        supports_filter_during_aggregation
        supports_select_wildcard_exclude
        supports_data_type_signed_suffix
        supports_interval_options
        supports_quote_delimited_string
        supports_select_wildcard_replace
        supports_select_wildcard_ilike
        supports_select_wildcard_rename
        supports_optimize_table
        supports_install
        supports_detach
        supports_prewhere
        supports_with_fill
        supports_limit_by
        supports_interpolate
        supports_settings
        supports_select_format
        supports_comment_optimizer_hint
        supports_constraint_keyword_without_name
        supports_key_column_option
        supports_comma_separated_trim
        supports_cte_without_as
        supports_select_item_multi_column_alias
        supports_xml_expressions
    }

    fn parse_prefix(
        &self,
        parser: &mut Parser<'_>,
    ) -> Option<std::result::Result<Expr, ParserError>> {
        if begins_lambda(parser) {
            return Some(lambda(parser));
        }
        if begins_extraction(parser) {
            parser.next_token();
            let name = ObjectName::from(vec![Ident::new("extract")]);
            return Some(parser.parse_function(name));
        }
        None
    }

    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        left: &Expr,
        _precedence: u8,
    ) -> Option<std::result::Result<Expr, ParserError>> {
        let infix = infix(parser)?;
        for _ in 0..infix.tokens() {
            parser.next_token();
        }
        Some(infix.read(parser, left, self))
    }

    fn get_next_precedence(
        &self,
        parser: &Parser<'_>,
    ) -> Option<std::result::Result<u8, ParserError>> {
        if parser.peek_nth_token_ref(0).token == Token::Colon {
            return Some(Ok(self.prec_unknown()));
        }
        infix(parser).map(|infix| Ok(infix.precedence(self)))
    }
}

/// An infix operator that the generic dialect lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Infix {
    /// `a ?? b`
    Otherwise,
    /// `c ? a : b`
    Ternary,
    /// `=~`, `=~*`
    Match { has_case: bool },
    /// `IN [..]`, `NOT IN [..]`
    InArray { is_negated: bool },
    /// `IN COHORT`, `NOT IN COHORT`
    InCohort { is_negated: bool },
}

/// The operator at the current position.
fn infix(parser: &Parser<'_>) -> Option<Infix> {
    let next = |at: usize| parser.peek_nth_token_ref(at);
    let is_question =
        |token: &TokenWithSpan| matches!(&token.token, Token::Placeholder(sign) if sign == "?");
    let is_beside = |at: usize| next(at).span.end == next(at + 1).span.start;
    let keyword = |at: usize| match &next(at).token {
        Token::Word(word) => word.keyword,
        _ => Keyword::NoKeyword,
    };
    match &next(0).token {
        Token::Placeholder(_) if is_question(next(0)) => {
            let is_pair = is_question(next(1)) && is_beside(0);
            Some(if is_pair { Infix::Otherwise } else { Infix::Ternary })
        }
        Token::Eq if is_beside(0) => match &next(1).token {
            Token::Tilde => Some(Infix::Match { has_case: true }),
            Token::TildeAsterisk => Some(Infix::Match { has_case: false }),
            _ => None,
        },
        Token::Word(_) => {
            let is_negated = keyword(0) == Keyword::NOT;
            let at = usize::from(is_negated);
            if keyword(at) != Keyword::IN {
                return None;
            }
            let is_cohort = |word: &str| word.eq_ignore_ascii_case("cohort");
            match &next(at + 1).token {
                Token::LBracket => Some(Infix::InArray { is_negated }),
                Token::Word(word) if word.quote_style.is_none() && is_cohort(&word.value) => {
                    Some(Infix::InCohort { is_negated })
                }
                _ => None,
            }
        }
        _ => None,
    }
}

impl Infix {
    fn precedence(self, dialect: &Hogql) -> u8 {
        match self {
            Self::Otherwise => dialect.prec_value(Precedence::PgOther),
            Self::Ternary => TERNARY,
            Self::Match { .. } => dialect.prec_value(Precedence::Eq),
            Self::InArray { .. } | Self::InCohort { .. } => dialect.prec_value(Precedence::Between),
        }
    }

    /// Number of its tokens.
    fn tokens(self) -> usize {
        match self {
            Self::Ternary => 1,
            Self::Otherwise | Self::Match { .. } => 2,
            Self::InArray { is_negated } | Self::InCohort { is_negated } => {
                2 + usize::from(is_negated)
            }
        }
    }

    /// Parses what follows the operator.
    fn read(
        self,
        parser: &mut Parser<'_>,
        left: &Expr,
        dialect: &Hogql,
    ) -> std::result::Result<Expr, ParserError> {
        let precedence = self.precedence(dialect);
        Ok(match self {
            Self::Otherwise => {
                let right = parser.parse_subexpr(precedence)?;
                otherwise(left.clone(), right)
            }
            Self::Ternary => {
                let result = parser.parse_subexpr(dialect.prec_unknown())?;
                parser.expect_token(&Token::Colon)?;
                let otherwise = parser.parse_subexpr(precedence - 1)?;
                let condition = left.clone();
                Expr::Case {
                    case_token: AttachedToken::empty(),
                    end_token: AttachedToken::empty(),
                    operand: None,
                    conditions: vec![CaseWhen { condition, result }],
                    else_result: Some(Box::new(otherwise)),
                }
            }
            Self::Match { has_case } => {
                let op = match has_case {
                    true => BinaryOperator::PGRegexMatch,
                    false => BinaryOperator::PGRegexIMatch,
                };
                let right = Box::new(parser.parse_subexpr(precedence)?);
                Expr::BinaryOp { left: Box::new(left.clone()), op, right }
            }
            Self::InArray { is_negated } => match parser.parse_array_expr(false)? {
                Expr::Array(array) if array.elem.is_empty() => {
                    Expr::Value(Value::Boolean(is_negated).into())
                }
                Expr::Array(array) => Expr::InList {
                    expr: Box::new(left.clone()),
                    list: array.elem,
                    negated: is_negated,
                },
                other => other,
            },
            Self::InCohort { is_negated } => {
                let (by, name) = match parser.next_token().token {
                    Token::Number(id, _) => (By::Id, id),
                    Token::SingleQuotedString(name) => (By::Name, name),
                    _ => {
                        let why =
                            "IN COHORT takes the id of a cohort, or its name in single quotes";
                        return Err(ParserError::ParserError(why.to_owned()));
                    }
                };
                Expr::InSubquery {
                    expr: Box::new(left.clone()),
                    subquery: cohort_names::members(by, &name)?,
                    negated: is_negated,
                }
            }
        })
    }
}

/// The first value that is not null. A chain becomes a single call, as planning would copy the inner calls of nested
/// ones at each level.
fn otherwise(left: Expr, right: Expr) -> Expr {
    match left {
        Expr::Function(mut own) if is_coalesce(&own) => {
            if let FunctionArguments::List(list) = &mut own.args {
                list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(right)));
            }
            Expr::Function(own)
        }
        left => call(COALESCE, vec![left, right]),
    }
}

/// Whether a call is a plain `coalesce` of values, without further clauses.
fn is_coalesce(call: &Function) -> bool {
    let FunctionArguments::List(list) = &call.args else { return false };
    let is_value =
        |argument: &FunctionArg| matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
    call.name.to_string().eq_ignore_ascii_case(COALESCE)
        && call.over.is_none()
        && call.filter.is_none()
        && call.null_treatment.is_none()
        && call.within_group.is_empty()
        && matches!(call.parameters, FunctionArguments::None)
        && list.duplicate_treatment.is_none()
        && list.clauses.is_empty()
        && !list.args.is_empty()
        && list.args.iter().all(is_value)
}

/// Whether a lambda follows: it is the first argument of a function that accepts one. Elsewhere the arrow is JSON's.
fn begins_lambda(parser: &Parser<'_>) -> bool {
    let is_name = |at: usize| matches!(parser.peek_nth_token_ref(at).token, Token::Word(_));
    let is = |at: usize, token: Token| parser.peek_nth_token_ref(at).token == token;
    let looks_so = if is_name(0) {
        is(1, Token::Arrow)
    } else if is(0, Token::LParen) {
        let mut at = 1;
        while is_name(at) && is(at + 1, Token::Comma) {
            at += 2;
        }
        is_name(at) && is(at + 1, Token::RParen) && is(at + 2, Token::Arrow)
    } else {
        false
    };
    if !looks_so {
        return false;
    }
    let mut before = (0..=parser.get_current_index()).rev().filter_map(|at| {
        let token = &parser.token_at(at).token;
        (!matches!(token, Token::Whitespace(_))).then_some(token)
    });
    let takes_one =
        |name: &str| functions::OF_LAMBDAS.iter().any(|own| own.eq_ignore_ascii_case(name));
    before.next() == Some(&Token::LParen)
        && matches!(before.next(), Some(Token::Word(name)) if takes_one(&name.value))
}

fn parameter(parser: &mut Parser<'_>) -> std::result::Result<LambdaFunctionParameter, ParserError> {
    Ok(LambdaFunctionParameter { name: parser.parse_identifier()?, data_type: None })
}

fn lambda(parser: &mut Parser<'_>) -> std::result::Result<Expr, ParserError> {
    let params = if parser.consume_token(&Token::LParen) {
        let params = parser.parse_comma_separated(parameter)?;
        parser.expect_token(&Token::RParen)?;
        OneOrManyWithParens::Many(params)
    } else {
        OneOrManyWithParens::One(parameter(parser)?)
    };
    parser.expect_token(&Token::Arrow)?;
    let body = Box::new(parser.parse_expr()?);
    Ok(Expr::Lambda(LambdaFunction { params, body, syntax: LambdaSyntax::Arrow }))
}

/// Whether `extract(text, pattern)` follows, as opposed to `extract(year FROM time)`.
fn begins_extraction(parser: &Parser<'_>) -> bool {
    let next = |at: usize| &parser.peek_nth_token_ref(at).token;
    let keyword = |at: usize| match next(at) {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    keyword(0) == Keyword::EXTRACT
        && *next(1) == Token::LParen
        && keyword(3) != Keyword::FROM
        && !matches!(
            keyword(2),
            Keyword::YEAR
                | Keyword::QUARTER
                | Keyword::MONTH
                | Keyword::WEEK
                | Keyword::DAY
                | Keyword::DOW
                | Keyword::DOY
                | Keyword::HOUR
                | Keyword::MINUTE
                | Keyword::SECOND
                | Keyword::EPOCH
        )
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::{Hogql, statement};

    fn parsed(text: &str) -> Result<String, String> {
        let parser = Parser::new(&Hogql).try_with_sql(text);
        let parsed = parser.and_then(|mut parser| {
            let parsed = parser.parse_expr()?;
            match parser.peek_token().to_string().as_str() {
                "EOF" => Ok(parsed),
                other => Err(parser_error(other)),
            }
        });
        parsed.map(|own| own.to_string()).map_err(|error| error.to_string())
    }

    fn parser_error(rest: &str) -> super::ParserError {
        super::ParserError::ParserError(format!("more: {rest}"))
    }

    /// Goal: operators bind as in HogQL's grammar. Method: each tree is printed with all of its grouping.
    #[test]
    fn operators_of_hogql_are_read() {
        for (text, expected) in [
            ("a ?? 'x'", "coalesce(a, 'x')"),
            ("a ?? b ?? c", "coalesce(a, b, c)"),
            ("coalesce(a, b) ?? c", "coalesce(a, b, c)"),
            ("lower(a) ?? c", "coalesce(lower(a), c)"),
            ("a ?? (b ?? c)", "coalesce(a, (coalesce(b, c)))"),
            ("a ?? 1 = 1", "coalesce(a, 1 = 1)"),
            ("NOT a ?? b AND c", "NOT coalesce(a, b) AND c"),
            ("a > 1 ? 'x' : 'y'", "CASE WHEN a > 1 THEN 'x' ELSE 'y' END"),
            ("a OR b ? c : d", "CASE WHEN a OR b THEN c ELSE d END"),
            ("a ? 1 : b ? 2 : 3", "CASE WHEN a THEN 1 ELSE CASE WHEN b THEN 2 ELSE 3 END END"),
            ("a ? b ? 1 : 2 : 3", "CASE WHEN a THEN CASE WHEN b THEN 1 ELSE 2 END ELSE 3 END"),
            ("f(a ? b : c, d)", "f(CASE WHEN a THEN b ELSE c END, d)"),
            ("a =~ '^x'", "a ~ '^x'"),
            ("a =~* '^x' AND b", "a ~* '^x' AND b"),
            ("a !~ '^x'", "a !~ '^x'"),
            ("a IN [1, 2]", "a IN (1, 2)"),
            ("a NOT IN ['x'] AND b", "a NOT IN ('x') AND b"),
            ("a IN []", "false"),
            ("a IN COHORT 5 AND b", "a IN (SELECT id FROM cohorts_by_id.\"5\") AND b"),
            ("a NOT IN cohort 'big'", "a NOT IN (SELECT id FROM cohorts_by_name.\"big\")"),
            ("arrayMap(x -> x + 1, a)", "arrayMap(x -> x + 1, a)"),
            ("ARRAYFILTER( (x, y) -> x > y, a, b)", "ARRAYFILTER((x, y) -> x > y, a, b)"),
            ("lower(x -> 'a')", "lower(x -> 'a')"),
            ("extract(a, '([a-z]+)')", "extract(a, '([a-z]+)')"),
            ("extract(a.b, 'x')", "extract(a.b, 'x')"),
            ("EXTRACT(YEAR FROM a)", "EXTRACT(YEAR FROM a)"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "a IN COHORT b",
            "a IN COHORT",
            "a NOT IN COHORT (5)",
            "a ? b",
            "a ? b :",
            "a ??",
            "a IN [1",
            "arrayMap(x ->, a)",
            "a : b",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    /// Goal: SQL that the generic dialect parses is parsed alike. Method: both trees print the same.
    #[test]
    fn other_sql_is_that_of_the_generic_dialect() {
        for sql in [
            "SELECT a, b FROM t WHERE a -> 'x' ->> 'y' = 'z' GROUP BY ALL",
            "SELECT * EXCLUDE (a) FROM t LEFT JOIN u USING (a) LIMIT 1 OFFSET 2",
            "SELECT {'a': 1}, [1, 2][1], ARRAY[1], MAP {'a': 2}, a[1:2] FROM t",
            "SELECT a::DOUBLE, TRY_CAST(a AS BIGINT), a ~ 'x', $1, INTERVAL '1 day' FROM t",
            "SELECT quantile(0.5)(a), sum(a) FILTER (WHERE b) OVER (PARTITION BY c) FROM t PREWHERE d",
            "WITH RECURSIVE r AS (SELECT 1) SELECT position('a' IN b), N'x', E'y' FROM r",
            "SELECT a FROM t LIMIT 1 BY a SETTINGS b = 1",
        ] {
            let generic = Parser::parse_sql(&GenericDialect {}, sql).expect(sql);
            let own = statement(sql, 50).expect(sql);
            assert_eq!(own.to_string(), generic[0].to_string(), "{sql}");
        }
    }
}
