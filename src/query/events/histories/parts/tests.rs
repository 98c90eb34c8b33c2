//! Parts of folds of random rows, beside a map of the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringViewArray, UInt32Array,
};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use super::{FoldContent, FoldExec, FoldReader, FoldReaders, PartialFold, PartsOf, merge, parts};
use crate::events::histories::fold::{ACTOR, AT, Fold, MASK, Row, Rows, TEXT};
use crate::events::resolve_person::{KEY, person_of_key};
use crate::kernel::error::QueryError;
use crate::kernel::interner::Interner;

type Plain = (i64, u32, Option<String>);

/// All rows by actor.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct All(BTreeMap<String, Vec<Plain>>);

impl Fold for All {
    fn actor(&mut self, actor: &str, rows: &[Row], texts: &Interner) -> Result<(), QueryError> {
        let plain = |row: &Row| (row.at, row.mask, texts.get(row.text).map(str::to_owned));
        let before = self.0.insert(actor.to_owned(), rows.iter().map(plain).collect());
        assert_eq!(before, None, "each actor comes once");
        Ok(())
    }
}

impl PartialFold for All {
    const NAME: &'static str = "all";

    fn merge(&mut self, other: Self) -> Result<(), QueryError> {
        for (actor, rows) in other.0 {
            assert_eq!(self.0.insert(actor, rows), None, "an actor is in one part");
        }
        Ok(())
    }
}

/// Batches of rows of some actors, which are keys of persons or texts, and the rows by actor in order.
fn rows(random: &mut StdRng, has_keys: bool, kind: Rows) -> (Vec<RecordBatch>, All) {
    let (mut batches, mut expected) = (Vec::new(), All::default());
    for _ in 0..20 {
        let rows: Vec<(Option<i128>, Plain)> = (0..random.random_range(1..200))
            .map(|_| {
                let actor = random.random_bool(0.95).then(|| random.random_range(0..50) << 100);
                let text = random.random_bool(0.5).then(|| random.random_range(0..3).to_string());
                (actor, (random.random_range(0..9), random.random_range(0..3), text))
            })
            .collect();
        let name = |key: i128| match has_keys {
            true => person_of_key(key).to_string(),
            false => format!("actor {key}"),
        };
        for (actor, row) in &rows {
            let Some(actor) = actor else { continue };
            expected.0.entry(name(*actor)).or_default().push(row.clone());
        }
        let keys = || rows.iter().map(|(actor, _)| *actor);
        let actors: ArrayRef = match has_keys {
            true => Arc::new(keys().collect::<Decimal128Array>().with_data_type(KEY)),
            false => Arc::new(keys().map(|key| key.map(name)).collect::<StringViewArray>()),
        };
        let at = rows.iter().map(|(_, row)| row.0);
        let masks = rows.iter().map(|(_, row)| row.1);
        let texts = rows.iter().map(|(_, row)| row.2.as_deref());
        let columns: [(&str, ArrayRef); 4] = [
            (ACTOR, actors),
            (AT, Arc::new(Int64Array::from_iter_values(at))),
            (MASK, Arc::new(UInt32Array::from_iter_values(masks))),
            (TEXT, Arc::new(texts.collect::<StringViewArray>())),
        ];
        batches.push(RecordBatch::try_from_iter(columns).expect("rows"));
    }
    for rows in expected.0.values_mut() {
        rows.sort();
        if kind != Rows::All {
            rows.dedup();
        }
    }
    (batches, expected)
}

async fn plan(batches: Vec<RecordBatch>) -> Arc<dyn ExecutionPlan> {
    let plan = SessionContext::new().read_batches(batches).expect("a plan");
    plan.create_physical_plan().await.expect("a plan")
}

/// Goal: merged parts give what all rows give. Method: random rows beside a map of them.
#[tokio::test]
async fn parts_together_are_the_whole() {
    let mut random = StdRng::seed_from_u64(5);
    for (has_keys, rows_of, partitions) in [
        (true, Rows::All, 3),
        (true, Rows::Distinct, 4),
        (false, Rows::All, 1),
        (false, Rows::Distinct, 3),
    ] {
        let (batches, expected) = rows(&mut random, has_keys, rows_of);
        let mut fold = All::default();
        let own = PartsOf::fold(rows_of, &fold).expect("a fold");
        let plan = FoldExec::over(plan(batches).await, own, partitions).expect("a plan");
        let found = collect(plan, Arc::new(TaskContext::default())).await.expect("parts");
        let of_batch = |batch: &RecordBatch| {
            let parts = parts(batch).expect("parts").iter().flatten().map(<[u8]>::to_vec);
            parts.collect::<Vec<_>>()
        };
        let found: Vec<Vec<u8>> = found.iter().flat_map(of_batch).collect();
        assert_eq!(found.len(), partitions);
        found.iter().for_each(|part| merge(&mut fold, part).expect("a part"));
        assert_eq!(fold, expected, "{has_keys} {rows_of:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_folded_is_an_error() {
    const READERS: FoldReaders = &[FoldReader::of::<All>()];
    let mut random = StdRng::seed_from_u64(6);
    let (batches, _) = rows(&mut random, true, Rows::All);
    let parts_of = || PartsOf::fold(Rows::All, &All::default()).expect("a fold");
    // Memory for one batch or so.
    let pool = Arc::new(GreedyMemoryPool::new(8 << 10));
    let environment = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc();
    let context = TaskContext::default().with_runtime(environment.expect("an environment"));
    let folded = FoldExec::over(plan(batches.clone()).await, parts_of(), 1).expect("a plan");
    let error = collect(folded, Arc::new(context)).await.expect_err("there is no memory");
    let is_memory = matches!(error.find_root(), DataFusionError::ResourcesExhausted(_));
    assert!(is_memory, "{error}");
    // Numbers of persons are those of one process, and a plan without actors has none.
    let numbers: ArrayRef = Arc::new(UInt32Array::from(vec![1]));
    for name in [ACTOR, "other"] {
        let batch = RecordBatch::try_from_iter([(name, Arc::clone(&numbers))]).expect("rows");
        assert!(FoldExec::over(plan(vec![batch]).await, parts_of(), 2).is_err(), "{name}");
    }
    // What another process sends.
    let content = |name: &str, fold: &str| {
        let fold = to_raw_value(fold).expect("JSON");
        FoldContent { name: name.to_owned(), is_distinct: false, fold }
    };
    assert!(PartsOf::read(content("nothing", "{}"), READERS).is_err());
    let garbage = PartsOf::read(content("all", "garbage"), READERS).expect("a known fold");
    let folded = FoldExec::over(plan(batches).await, garbage, 1).expect("a plan");
    assert!(collect(folded, Arc::new(TaskContext::default())).await.is_err());
    assert!(merge(&mut All::default(), b"[").is_err());
}
