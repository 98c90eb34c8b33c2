//! Walks over syntax trees: [`walk`], [`walk_mut`], [`each_expression`], [`has_relation`]. The parser's own walks are
//! compiled for each type of visitor, 500 functions at a time; these are compiled once, and call the visitor through a
//! pointer. Lints forbid the others.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

/// Walks over `node`; returns the value with which `visitor` breaks, if it does.
#[expect(clippy::disallowed_methods, reason = "the one walk that is compiled")]
pub(crate) fn walk<V: Visitor>(node: &impl Visit, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut kept = Kept { visitor, end: None };
    let _ = node.visit(&mut Pointer(&mut kept));
    kept.outcome()
}

/// The same for a visitor that changes nodes.
#[expect(clippy::disallowed_methods, reason = "the one walk that is compiled")]
pub(crate) fn walk_mut<V: VisitorMut>(
    node: &mut impl VisitMut,
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    let mut kept = Kept { visitor, end: None };
    let _ = node.visit(&mut PointerMut(&mut kept));
    kept.outcome()
}

/// Calls `each` with every expression in `node`, a parent before its children.
pub(crate) fn each_expression<B>(
    node: &impl Visit,
    each: impl FnMut(&Expr) -> ControlFlow<B>,
) -> ControlFlow<B> {
    struct Each<F>(F);
    impl<B, F: FnMut(&Expr) -> ControlFlow<B>> Visitor for Each<F> {
        type Break = B;

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<B> {
            (self.0)(expression)
        }
    }
    walk(node, &mut Each(each))
}

/// Whether `node` names a table anywhere.
pub(crate) fn has_relation(node: &impl Visit) -> bool {
    struct FindRelation;
    impl Visitor for FindRelation {
        type Break = ();

        fn pre_visit_relation(&mut self, _: &ObjectName) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    walk(node, &mut FindRelation).is_break()
}

/// A visitor, and the value with which it broke: so that visitors with any type of break are one type behind the
/// pointer.
struct Kept<'v, V, B> {
    visitor: &'v mut V,
    end: Option<B>,
}

impl<V, B> Kept<'_, V, B> {
    fn keep(&mut self, call: impl FnOnce(&mut V) -> ControlFlow<B>) -> ControlFlow<()> {
        call(self.visitor).map_break(|end| self.end = Some(end))
    }

    fn outcome(self) -> ControlFlow<B> {
        self.end.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

struct Pointer<'v>(&'v mut dyn Visitor<Break = ()>);
struct PointerMut<'v>(&'v mut dyn VisitorMut<Break = ()>);

/// All hooks of a visitor, each forwarded to the same hook of another one.
macro_rules! hooks {
    ($visitor:ident, $pointer:ident, $($hook:ident: $node:ty,)+) => {
        impl<V: $visitor> $visitor for Kept<'_, V, V::Break> {
            type Break = ();
            $(fn $hook(&mut self, node: $node) -> ControlFlow<()> {
                self.keep(|visitor| visitor.$hook(node))
            })+
        }

        impl $visitor for $pointer<'_> {
            type Break = ();
            $(fn $hook(&mut self, node: $node) -> ControlFlow<()> {
                self.0.$hook(node)
            })+
        }
    };
}

hooks! {
    Visitor, Pointer,
    pre_visit_query: &Query, post_visit_query: &Query,
    pre_visit_select: &Select, post_visit_select: &Select,
    pre_visit_relation: &ObjectName, post_visit_relation: &ObjectName,
    pre_visit_table_factor: &TableFactor, post_visit_table_factor: &TableFactor,
    pre_visit_expr: &Expr, post_visit_expr: &Expr,
    pre_visit_statement: &Statement, post_visit_statement: &Statement,
    pre_visit_value: &ValueWithSpan, post_visit_value: &ValueWithSpan,
}

hooks! {
    VisitorMut, PointerMut,
    pre_visit_query: &mut Query, post_visit_query: &mut Query,
    pre_visit_select: &mut Select, post_visit_select: &mut Select,
    pre_visit_relation: &mut ObjectName, post_visit_relation: &mut ObjectName,
    pre_visit_table_factor: &mut TableFactor, post_visit_table_factor: &mut TableFactor,
    pre_visit_expr: &mut Expr, post_visit_expr: &mut Expr,
    pre_visit_statement: &mut Statement, post_visit_statement: &mut Statement,
    pre_visit_value: &mut ValueWithSpan, post_visit_value: &mut ValueWithSpan,
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use datafusion::sql::sqlparser::ast::{Expr, Query, Value, ValueWithSpan, VisitorMut};

    use super::{each_expression, walk_mut};
    use crate::dialect::hogql;

    /// Counts hooks, changes numbers to 7 and breaks at a text.
    #[derive(Default)]
    struct Sevens {
        hooks: Vec<&'static str>,
    }

    impl VisitorMut for Sevens {
        type Break = String;

        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<String> {
            self.hooks.push("query");
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<String> {
            self.hooks.push("end of query");
            ControlFlow::Continue(())
        }

        fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<String> {
            match &mut value.value {
                Value::Number(number, _) => *number = "7".into(),
                Value::SingleQuotedString(text) => return ControlFlow::Break(text.clone()),
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn walks_call_each_hook_until_it_breaks() {
        for (sql, broken, printed, hooks) in [
            (
                "SELECT 1 FROM (SELECT 2)",
                None,
                "SELECT 7 FROM (SELECT 7)",
                &["query", "query", "end of query", "end of query"][..],
            ),
            ("SELECT 1, 'x', 2", Some("x"), "SELECT 7, 'x', 2", &["query"]),
        ] {
            let mut statement = hogql::statement(sql, 50).unwrap();
            let query = crate::dialect::statements::query_in(&mut statement).unwrap();
            let mut visitor = Sevens::default();
            let end = walk_mut(query, &mut visitor).break_value();
            assert_eq!(end.as_deref(), broken, "{sql}");
            assert_eq!(query.to_string(), printed);
            assert_eq!(visitor.hooks, hooks, "{sql}");
        }
    }

    #[test]
    fn parents_come_before_their_children() {
        let mut statement = hogql::statement("SELECT a + f(b)", 50).unwrap();
        let query = crate::dialect::statements::query_in(&mut statement).unwrap();
        let mut met = Vec::new();
        let end = each_expression(query, |part| match part {
            Expr::Identifier(name) if name.value == "b" => ControlFlow::Break("b"),
            other => {
                met.push(other.to_string());
                ControlFlow::Continue(())
            }
        });
        assert_eq!(
            (met, end),
            (vec!["a + f(b)".into(), "a".into(), "f(b)".into()], ControlFlow::Break("b"))
        );
    }
}
