//! Round trips of queries: through addresses, and through the JSON of saved insights.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::state::breakdown::Breakdown;
use crate::state::exclusion::Exclusion;
use crate::state::filters::{Filter, OPERATORS, OWNERS};
use crate::state::insight::{
    ATTRIBUTIONS, CRITERIA, FUNNELS_SHOWN, INTERVALS, Kind, ORDERS, Options, PATH_EVENTS, Question,
    RETENTION_SHOWN, RETENTION_TYPES, STATUSES, TRENDS_SHOWN, WINDOW_UNITS,
};
use crate::state::node::node;
use crate::state::parameters::{Parameters, Printer};
use crate::state::point::Point;
use crate::state::range::Range;
use crate::state::series::{Event, MATHS, Series};
use crate::state::{breakdown, stored};

/// Texts that must round-trip through addresses.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z$_]{1,8}",
        1 => "[ -~]{1,12}",
        1 => select(vec!["*", "action:1", "\\*", "\\", "a&b=c+d%", "é ü 日本", "\u{202e}\0"])
            .prop_map(str::to_owned),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    let operators: Vec<&str> =
        OPERATORS.iter().map(|(operator, _)| *operator).filter(|own| *own != "not_in").collect();
    let property = (select(OWNERS.to_vec()), text(), select(operators), vec(text(), 1..4))
        .prop_map(|(owner, key, operator, values)| {
            let owner = if owner == "cohort" { "event" } else { owner };
            let mut filter = Filter { owner, key, operator, values };
            if !filter.has_values() {
                filter.values.clear();
            }
            filter
        });
    let cohort = (0_u32..99, any::<bool>()).prop_map(|(id, is_not)| Filter {
        owner: "cohort",
        key: id.to_string(),
        operator: if is_not { "not_in" } else { "exact" },
        values: Vec::new(),
    });
    prop_oneof![4 => property, 1 => cohort]
}

fn series() -> impl Strategy<Value = Series> {
    let event = prop_oneof![
        6 => text().prop_map(Event::Named),
        1 => Just(Event::All),
        1 => (1_u32..99).prop_map(Event::Action),
    ];
    let math = select(MATHS.map(|(math, _, _)| math).to_vec());
    let property = option::of(text());
    let names = (event, option::of(text()));
    let maths = (math, property, option::of(0_u8..5));
    (names, maths, any::<bool>(), vec(filter(), 0..3)).prop_map(
        |((event, name), (math, math_property, math_group), is_optional, filters)| Series {
            event,
            name,
            math,
            math_property,
            math_group,
            is_optional,
            filters,
        },
    )
}

fn breakdowns() -> impl Strategy<Value = Breakdown> {
    let owners: Vec<&str> =
        breakdown::OWNERS.into_iter().filter(|owner| *owner != "cohort").collect();
    let properties = vec((select(owners), text()), 1..3);
    let cohorts = vec((1_u32..99).prop_map(|id| ("cohort", id.to_string())), 1..3);
    let keys = prop_oneof![3 => properties, 1 => cohorts];
    let some = (keys, option::of(1_u16..99), any::<bool>())
        .prop_map(|(keys, limit, is_other_hidden)| Breakdown { keys, limit, is_other_hidden });
    prop_oneof![1 => Just(Breakdown::default()), 1 => some]
}

fn compare() -> impl Strategy<Value = Option<String>> {
    option::of(select(vec!["previous", "-1w", "-1y"]).prop_map(str::to_owned))
}

fn subsequence(words: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(words, 0..=words.len())
}

fn options(kind: Kind) -> BoxedStrategy<Options> {
    let number = || option::of(1_u16..400);
    match kind {
        Kind::Trends => {
            let formulas = vec(select(vec!["A", "A/2", "1+A*3"]).prop_map(str::to_owned), 0..2);
            (breakdowns(), compare(), select(TRENDS_SHOWN.to_vec()), formulas, number())
                .prop_map(|(breakdown, compare, shown, formulas, smoothing)| Options::Trends {
                    breakdown,
                    compare,
                    shown,
                    formulas,
                    smoothing,
                })
                .boxed()
        }
        Kind::Funnel => {
            let words = (
                select(ATTRIBUTIONS.to_vec()),
                select(FUNNELS_SHOWN.to_vec()),
                select(ORDERS.to_vec()),
                select(WINDOW_UNITS.to_vec()),
            );
            let steps = (option::of(1_u16..9), option::of(1_u16..9));
            let exclusion =
                (text(), steps, vec(filter(), 0..2)).prop_map(|(name, (from, to), filters)| {
                    Exclusion { event: Event::Named(name), from, to, filters }
                });
            (breakdowns(), words, option::of(1_u32..5), vec(exclusion, 0..3))
                .prop_map(|(breakdown, words, window, exclusions)| {
                    let (attribution, shown, order, window_unit) = words;
                    Options::Funnel {
                        breakdown,
                        attribution,
                        shown,
                        order,
                        window,
                        window_unit,
                        exclusions,
                    }
                })
                .boxed()
        }
        Kind::Retention => {
            let words = (select(RETENTION_SHOWN.to_vec()), select(RETENTION_TYPES.to_vec()));
            (words, number(), any::<bool>(), option::of(1_u32..9))
                .prop_map(|((shown, type_), intervals, is_cumulative, occurrences)| {
                    Options::Retention { shown, type_, intervals, is_cumulative, occurrences }
                })
                .boxed()
        }
        Kind::Paths => {
            let lists = (subsequence(&PATH_EVENTS), vec(text(), 0..3), vec(text(), 0..3));
            let numbers = (option::of(1_u16..100), number(), option::of(0_u32..9));
            (lists, option::of(text()), option::of(text()), numbers)
                .prop_map(|((include, groupings, exclude), start, end, (steps, edges, least))| {
                    Options::Paths { include, start, end, steps, edges, least, groupings, exclude }
                })
                .boxed()
        }
        Kind::Lifecycle => {
            subsequence(&STATUSES).prop_map(|only| Options::Lifecycle { only }).boxed()
        }
        Kind::Stickiness => {
            let criteria = option::of((select(CRITERIA.to_vec()), 1_u32..9));
            (compare(), number(), any::<bool>(), criteria)
                .prop_map(|(compare, interval_count, is_cumulative, criteria)| {
                    Options::Stickiness { compare, interval_count, is_cumulative, criteria }
                })
                .boxed()
        }
    }
}

fn question() -> impl Strategy<Value = Question> {
    select(Kind::ALL.to_vec()).prop_flat_map(|kind| {
        let date =
            || option::of(select(vec!["-7d", "-30d", "2026-01-31", "all"]).prop_map(str::to_owned));
        let interval = option::of(select(INTERVALS.to_vec()));
        let number = if kind.series_max() > 0 { 1..=kind.series_max().min(4) } else { 0..=0 };
        let who = (any::<bool>(), option::of(0_u8..5));
        ((date(), date()), interval, vec(filter(), 0..3), who, vec(series(), number), options(kind))
            .prop_map(
                move |(
                    (from, to),
                    interval,
                    filters,
                    (is_without_tests, group),
                    series,
                    options,
                )| {
                    let interval = interval.filter(|_| kind != Kind::Paths);
                    let range = Range { from, to };
                    Question { range, interval, filters, is_without_tests, group, series, options }
                },
            )
    })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_failure_persistence(
        proptest::test_runner::FileFailurePersistence::WithSource("regressions"),
    ))]
    #[test]
    fn questions_go_through_addresses(question in question()) {
        let address = question.print();
        prop_assert!(address.is_ascii());
        let parsed = Question::parse(question.kind(), &address);
        prop_assert_eq!(parsed.as_ref(), Ok(&question), "{}", address);
    }

    #[test]
    fn questions_keep_what_they_are_about(question in question(), kind in select(Kind::ALL.to_vec())) {
        let other = question.of_kind(kind);
        prop_assert_eq!(other.kind(), kind);
        prop_assert_eq!(Question::parse(kind, &other.print()), Ok(other.clone()));
        prop_assert_eq!((&other.range, &other.filters), (&question.range, &question.filters));
    }

    #[test]
    fn any_text_is_a_question_or_an_error(text in any::<String>(), kind in select(Kind::ALL.to_vec())) {
        if let Ok(question) = Question::parse(kind, &text) {
            prop_assert_eq!(Question::parse(kind, &question.print()), Ok(question));
        }
    }

    #[test]
    fn parameters_in_any_order_are_a_question_or_an_error(
        pairs in vec((select(vec!["a", "b", "from", "f1.key", "f1.value", "f2.op", "a.math", "by1.key", "show",
                                  "compare", "formula", "interval", "window", "not1", "not2.from", "a.f1.key", "by.limit", "x.y"]),
                      select(vec!["a", "", "1", "day", "sum", "line", "not_in", "*"])), 0..6),
        kind in select(Kind::ALL.to_vec()),
    ) {
        let mut printer = Printer::default();
        pairs.iter().for_each(|(name, value)| printer.add(name, Some(value)));
        if let Ok(question) = Question::parse(kind, &printer.finish()) {
            prop_assert_eq!(Question::parse(kind, &question.print()), Ok(question));
        }
    }

    /// A saved query is opened as the same query.
    #[test]
    fn questions_go_through_the_api(mut question in question()) {
        // The API has no words for these: how the numbers of a retention are shown, and its aggregations.
        let is_retention = question.kind() == Kind::Retention;
        if let Options::Retention { shown, .. } = &mut question.options {
            *shown = "percent";
        }
        if is_retention {
            for series in &mut question.series {
                (series.math, series.math_property, series.math_group) = ("total", None, None);
                series.is_optional = false;
            }
            let first = question.series[0].clone();
            question.series.resize(2, first);
        }
        question.range.from.get_or_insert_with(|| "-7d".to_owned());
        let query = node(&question);
        let read = stored::question(&query);
        prop_assert_eq!(read.map(|read| node(&read)), Some(query));
    }

    #[test]
    fn marks_go_through_addresses(
        series in option::of(0_u16..9), day in option::of(text()), value in vec(text(), 0..3),
        truths in (any::<bool>(), any::<bool>()), step in option::of(-9_i16..9), (row, cell) in (option::of(0_u16..9), option::of(0_u16..9)),
        texts in (option::of(text()), option::of(text()), option::of(text()), option::of(text())),
    ) {
        let (is_previous, is_drop_off) = truths;
        let (status, start, end, dropoff) = texts;
        let point = Point { series, day, value, is_previous, step, is_drop_off, row, cell, status, start, end, dropoff };
        let mut printer = Printer::default();
        point.add_to(&mut printer);
        let mut parameters = Parameters::parse(&printer.finish()).unwrap();
        prop_assert_eq!(Point::take(&mut parameters), Ok(point));
        prop_assert_eq!(parameters.finish(), Ok(()));
    }
}

#[test]
fn what_is_wrong_is_told_by_its_name() {
    for (kind, query, expected) in [
        (Kind::Trends, "a=x&mth=dau", Some("mth")),
        (Kind::Trends, "a=x&a.math=often", Some("a.math")),
        (Kind::Trends, "a=x&a=y", Some("a")),
        (Kind::Trends, "a=action:x", Some("a")),
        (Kind::Trends, "interval=year", Some("interval")),
        (Kind::Trends, "f1.key=a", Some("f1.value")),
        (Kind::Trends, "f1.key=a&f1.op=not_in&f1.value=1", Some("f1.op")),
        (Kind::Trends, "f1.key=a&f1.of=cohort", Some("f1.key")),
        (Kind::Trends, "by1.key=a&by2.of=cohort&by2.key=1", Some("by1.of")),
        (Kind::Trends, "smoothing=-1", Some("smoothing")),
        (Kind::Trends, "window=3", Some("window")),
        (Kind::Paths, "a=x", Some("a")),
        (Kind::Lifecycle, "only=old", Some("only")),
        (Kind::Lifecycle, "a=x&b=y", Some("b")),
        // What forms send for empty rows.
        (
            Kind::Trends,
            "a=x&a.math=&b=&b.math=dau&f1.of=person&f1.key=&f1.op=regex&f1.value=",
            None,
        ),
    ] {
        let error = Question::parse(kind, query).err().map(|wrong| wrong.name);
        assert_eq!(error.as_deref(), expected, "{query}");
    }
    let long = format!("a={}", "x".repeat(20_000));
    assert_eq!(Question::parse(Kind::Trends, &long).unwrap_err().name, "address");
}

#[test]
fn groups_of_filters_that_all_hold_are_a_list() {
    let leaf =
        |key: &str| json!({"key": key, "value": ["x"], "operator": "exact", "type": "event"});
    let all = |values: Value| json!({"type": "AND", "values": values});
    let any = |values: Value| json!({"type": "OR", "values": values});
    let of = |properties: Value| json!({"kind": "TrendsQuery", "series": [{"kind": "EventsNode", "event": "a"}], "properties": properties});
    for (properties, keys) in [
        (all(json!([all(json!([leaf("a")])), all(json!([leaf("b"), leaf("c")]))])), Some(3)),
        (all(json!([all(json!([leaf("a")])), any(json!([leaf("b")]))])), Some(2)),
        (any(json!([leaf("a")])), Some(1)),
        (any(json!([leaf("a"), leaf("b")])), None),
        (all(json!([any(json!([leaf("a"), leaf("b")]))])), None),
    ] {
        let query = of(properties);
        let read = stored::question(&query).map(|question| question.filters.len());
        assert_eq!(read, keys, "{query}");
        // A sketch represents the rest, whatever the filters are.
        let sketch = stored::sketch(&query).unwrap();
        assert_eq!((sketch.filters.len(), sketch.series.len()), (0, 1), "{query}");
    }
    let odd = json!({"kind": "InsightVizNode", "source": {"kind": "TrendsQuery", "interval": "decade",
        "series": [{"kind": "EventsNode", "event": "a", "math": "often", "custom_name": "A"}],
        "trendsFilter": {"display": "BoldNumber"}}});
    assert_eq!(stored::question(&odd), None);
    let sketch = stored::sketch(&odd).unwrap();
    assert_eq!((sketch.series[0].name.as_deref(), sketch.interval), (Some("A"), None));
    assert_eq!(stored::sketch(&json!({"kind": "HogQLQuery"})), None);
}
