//! What is written is read again as the same: functions by their values on rows, operators by their rows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, TimeUnit};
use arrow::util::display::array_value_to_string;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, Volatility, create_udf,
};
use datafusion::prelude::{SessionContext, ident};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::contents::FunctionContent;
use super::{Above, Fragments};
use crate::events::resolve_person::{Gives, ResolvePerson, Survivors, person_key};
use crate::events::scoped::{Scope, ScopedExec};
use crate::events::session_functions::SessionFunction;
use crate::filter::content::{ConditionContent, OfColumn, OfEvents};
use crate::filter::{matches, tree};
use crate::functions::serializable::{FunctionReader, SerializableFunction};
use crate::functions::{json_property, serializable, text_number};
use crate::guard::Pools;
use weir_base::clock::UnixMicros;
use weir_event::id::{PersonId, ProjectId};
use weir_event::predicate::Matching;
use weir_event::predicate::filter::Filter;
use weir_event::predicate::moment::Now;
use weir_event::predicate::tree::Tree;
use weir_event::schema::PropertyType;
use weir_identity::overrides::OverrideMap;

fn fragments() -> Fragments {
    Fragments::new(&SessionContext::new().task_ctx(), ABOVE, Pools::beside(1 << 20))
}

const ABOVE: Above = Above { functions: &[FunctionReader::of::<Suffix>()], folds: &[] };

/// A function with a parameter, as crates above have them.
#[derive(Debug, Serialize, Deserialize)]
struct Suffix(String);

impl SerializableFunction for Suffix {
    const NAME: &'static str = "suffix";

    fn takes() -> DataType {
        DataType::Utf8View
    }

    fn gives() -> DataType {
        DataType::Utf8View
    }

    fn invoke(&self, texts: &ArrayRef) -> Result<ArrayRef> {
        let suffixed = |text: Option<&str>| Some(format!("{}{}", text?, self.0));
        Ok(Arc::new(texts.as_string_view().iter().map(suffixed).collect::<StringViewArray>()))
    }
}

/// The function of an expression that calls one.
fn function_of(call: Expr) -> Arc<ScalarUDF> {
    match call {
        Expr::ScalarFunction(call) => call.func,
        other => panic!("{other} calls no function"),
    }
}

/// What is read of what is written.
fn sent(function: &ScalarUDF) -> ScalarUDF {
    let content = fragments().write_function(function).expect("it has a content");
    fragments().read_function(&content.expect("it is not known by its name")).expect("a function")
}

/// The values of a function of texts.
fn values(function: &ScalarUDF, columns: &[&[Option<&str>]]) -> Vec<String> {
    let arrays: Vec<ArrayRef> = columns
        .iter()
        .map(|texts| Arc::new(texts.iter().copied().collect::<StringViewArray>()) as ArrayRef)
        .collect();
    let rows = columns[0].len();
    let fields: Vec<_> =
        arrays.iter().map(|own| Arc::new(Field::new("a", own.data_type().clone(), true))).collect();
    let types: Vec<DataType> = arrays.iter().map(|own| own.data_type().clone()).collect();
    let gives = function.return_type(&types).expect("a type");
    let arguments = ScalarFunctionArgs {
        args: arrays.into_iter().map(ColumnarValue::Array).collect(),
        arg_fields: fields,
        number_rows: rows,
        return_field: Arc::new(Field::new("b", gives, true)),
        config_options: Arc::new(ConfigOptions::new()),
    };
    let given = function.invoke_with_args(arguments).expect("values");
    let given = given.into_array(rows).expect("an array");
    (0..rows).map(|row| array_value_to_string(&given, row).expect("a value")).collect()
}

fn person(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

#[test]
fn functions_of_persons_give_the_same() {
    let project = ProjectId(7);
    let of_id = |id: &str| PersonId::of(project, id).0;
    let map = OverrideMap {
        survivors: HashMap::from([(person(1), person(2)), (of_id("a"), person(3))])
            .into_iter()
            .collect(),
        splits: HashSet::from([person(9)]).into_iter().collect(),
        ..OverrideMap::default()
    };
    let texts: Vec<String> = [1, 2, 9, 9].map(|number| person(number).to_string()).to_vec();
    let persons: Vec<Option<&str>> =
        texts.iter().map(|text| Some(text.as_str())).chain([None, Some("no uuid")]).collect();
    let ids = [Some("x"), Some("x"), Some("a"), Some("b"), Some("c"), Some("d")];
    for arguments in [1, 2] {
        let survivors = Survivors::Map(Arc::new(map.clone()));
        let own = ResolvePerson::function((project, survivors), arguments, Gives::Text);
        let columns = &[&persons[..], &ids[..]][..arguments];
        let found = values(&sent(&own), columns);
        assert_eq!(found, values(&own, columns));
        let expected = match arguments {
            1 => [person(2), person(2), person(9), person(9)],
            _ => [person(2), person(2), person(3), of_id("b")],
        };
        assert_eq!(found[..4], expected.map(|own| own.to_string()));
        // Keys are the same for the same persons, and others for others.
        let key = person_key(Some(&own));
        let keys = values(&sent(&key), columns);
        assert_eq!(keys, values(&key, columns));
        let uuids = || keys.iter().zip(&found).take(4);
        for (a, of_a) in uuids() {
            for (b, of_b) in uuids() {
                assert_eq!(a == b, of_a == of_b);
            }
        }
    }
}

#[test]
fn functions_of_texts_give_the_same() {
    let texts = [Some("12"), Some("-0.5e3"), Some("x"), None];
    for call in [text_number::number(ident("a")), text_number::wide_number(ident("a"))] {
        let own = function_of(call);
        assert_eq!(values(&sent(&own), &[&texts]), values(&own, &[&texts]));
    }
    let urls = [Some("https://a.example/b?c"), Some("/b"), Some(""), None];
    for own in [SessionFunction::Path, SessionFunction::Host] {
        let own = own.function();
        assert_eq!(values(&sent(&own), &[&urls]), values(&own, &[&urls]));
    }
    let own = json_property::function();
    let rows = [Some(r#"{"k":1.50,"k":"b"}"#), Some(r#"{"k":[1, 2]}"#), Some("{}"), None];
    let keys = [Some("k"); 4];
    assert_eq!(values(&sent(&own), &[&rows, &keys]), values(&own, &[&rows, &keys]));
}

#[test]
fn functions_with_parameters_give_the_same() {
    let own = function_of(serializable::call(Suffix("\"!".to_owned()), ident("a")));
    let texts = [Some("a"), None, Some("")];
    let found = values(&sent(&own), &[&texts]);
    assert_eq!(found, values(&own, &[&texts]));
    assert_eq!(found, ["a\"!", "", "\"!"]);
    let unknown = br#"{"Serializable":["prefix","x"]}"#;
    for content in [&unknown[..], br#"{"Serializable":["suffix",1]}"#] {
        assert!(fragments().read_function(content).is_err());
    }
}

/// Conditions of events are sent with their filters; those that look up persons, groups or cohorts are not.
#[test]
fn conditions_of_events_give_the_same() {
    let now = Now::utc(UnixMicros(1_700_000_000_000_000));
    let filter = |of: &str, key: &str, operator: &str, value: Value| json!({"type": of, "key": key, "operator": operator, "value": value});
    let tree = |filters: Value| Tree::parse(&filters, "event", Matching::Legacy).expect("filters");
    let rows = [
        Some(r#"{"plan":"pro","n":5,"at":"2023-11-10"}"#),
        Some(r#"{"plan":"Free","n":"7.5","v":"1.2.3"}"#),
        Some(r#"{"n":9007199254740993}"#),
        Some("{}"),
        None,
    ];
    for (filters, expected) in [
        (
            json!([filter("event", "plan", "exact", json!(["pro", "x"]))]),
            [true, false, false, false, false],
        ),
        (json!([filter("event", "plan", "is_not", json!("pro"))]), [false, true, true, true, true]),
        (
            json!([filter("event", "plan", "regex", json!("^[pF]"))]),
            [true, true, false, false, false],
        ),
        (
            json!([filter("event", "plan", "not_icontains", json!("FRE"))]),
            [true, false, true, true, true],
        ),
        (json!([filter("event", "n", "gt", json!(5.5))]), [false, true, true, false, false]),
        (
            json!([filter("event", "n", "lt", json!(9_007_199_254_740_993_i64))]),
            [true, true, false, false, false],
        ),
        (
            json!([filter("event", "n", "between", json!([5, 7.5]))]),
            [true, true, false, false, false],
        ),
        (
            json!([filter("event", "at", "is_date_after", json!("-7d"))]),
            [true, false, false, false, false],
        ),
        (
            json!([filter("event", "v", "semver_gte", json!("1.2"))]),
            [false, true, false, false, false],
        ),
        (
            json!({"type": "OR", "values": [filter("event", "plan", "is_not_set", json!(null)), filter("event", "n", "exact", json!("5"))]}),
            [true, false, true, true, true],
        ),
    ] {
        let own = matches::of_events(OfEvents { tree: tree(filters.clone()), now })
            .expect("filters of events");
        let found = values(&sent(&own), &[&rows]);
        assert_eq!(found, values(&own, &[&rows]), "{filters}");
        assert_eq!(found, expected.map(|holds| holds.to_string()), "{filters}");
    }
    let Tree::All(filters) = tree(json!([filter("event", "p", "icontains", json!("A"))])) else {
        panic!("a list of filters");
    };
    let [Tree::Leaf { filter: Filter::Property { predicate, .. }, .. }] = &filters[..] else {
        panic!("one filter");
    };
    let (kind, predicate) = (PropertyType::Text, predicate.clone());
    let own = tree::of_column(OfColumn { kind, predicate, now, without: true });
    let texts = [Some("xax"), Some("b"), None];
    let found = values(&sent(&own), &[&texts]);
    assert_eq!(found, values(&own, &[&texts]));
    assert_eq!(found, ["true", "false", "true"]);
    for of_others in [
        filter("person", "plan", "exact", json!("pro")),
        json!({"type": "cohort", "key": "id", "value": 1}),
        json!({"type": "group", "group_type_index": 0, "key": "a", "value": "b"}),
    ] {
        let own = OfEvents { tree: tree(json!([of_others])), now };
        let content = FunctionContent::Condition(ConditionContent::Events(own));
        let content = serde_json::to_vec(&content).expect("it is written");
        assert!(fragments().read_function(&content).is_err(), "{of_others}");
    }
}

/// A function over a closure has no content, nor has one that only has the name of a known one.
#[test]
fn what_has_no_content_is_not_sent() {
    for name in ["own", "upper"] {
        let invoke = Arc::new(|arguments: &[ColumnarValue]| Ok(arguments[0].clone()));
        let takes = vec![DataType::Utf8View];
        let own = create_udf(name, takes, DataType::Utf8View, Volatility::Immutable, invoke);
        assert!(fragments().write_function(&own).is_err(), "{name}");
    }
    let upper = datafusion::functions::string::upper();
    assert_eq!(fragments().write_function(&upper).expect("it is known"), None);
    for content in
        [&b""[..], b"{}", b"\xff", br#"{"Named":"nothing"}"#, br#"{"Guarded":{"Named":"upper"}}"#]
    {
        // That of a function without limits within limits, too.
        let read = fragments().read_function(content);
        assert!(read.is_err() || content.ends_with(b"upper\"}}"), "{content:?}");
    }
    let deep = format!("{}{}{}", r#"{"Guarded":"#.repeat(10_000), "1", "}".repeat(10_000));
    assert!(fragments().read_function(deep.as_bytes()).is_err());
    let odd =
        br#"{"ResolvePerson":{"project":1,"gives":"Text","by_distinct_id":false,"survivors":"AAAA","splits":""}}"#;
    assert!(fragments().read_function(odd).is_err());
}

#[tokio::test]
async fn scopes_pass_the_same_rows() {
    let context = SessionContext::new();
    let times = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let (projects, at) = (vec![1_i64, 2, 1, 1], vec![10_i64, 20, 30, 40]);
    let at = arrow::array::TimestampMicrosecondArray::from(at).with_data_type(times);
    let columns: [(&str, ArrayRef); 2] = [
        ("timestamp", Arc::new(at)),
        ("project_id", Arc::new(arrow::array::Int64Array::from(projects))),
    ];
    let rows = RecordBatch::try_from_iter(columns).expect("rows");
    let input =
        context.read_batch(rows).expect("a plan").create_physical_plan().await.expect("one");
    let kept_from = Some(UnixMicros(20));
    let scope = Scope { project: ProjectId(1), deletions: None, kept_from };
    let own = ScopedExec::new(Arc::clone(&input), scope, 1, Some(5)).expect("an operator");
    let own: Arc<dyn datafusion::physical_plan::ExecutionPlan> = Arc::new(own);
    let content = fragments().write_operator(&own).expect("a content");
    let read = fragments().read_operator(&content, &[input]).expect("an operator");
    let collect = datafusion::physical_plan::collect;
    let (expected, found) = (
        collect(Arc::clone(&own), context.task_ctx()).await.expect("rows"),
        collect(read, context.task_ctx()).await.expect("rows"),
    );
    assert_eq!(found, expected);
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
    assert!(fragments().read_operator(&content, &[]).is_err());
    let other: Arc<dyn datafusion::physical_plan::ExecutionPlan> =
        Arc::new(datafusion::physical_plan::empty::EmptyExec::new(own.schema()));
    assert!(fragments().write_operator(&other).is_err());
}
