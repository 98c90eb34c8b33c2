//! Aggregates over sets of numbers: the number of distinct ones ([`count_numbers`]), and sets that are united later
//! ([`number_set`], [`count_union`]). For persons, of whom there are many in each of many groups: a bitmap of a million
//! takes 125 kB, where `count(DISTINCT)` stores each value.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, LargeBinaryBuilder};
use arrow::datatypes::{DataType, Field, FieldRef, UInt32Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, Signature,
    Volatility,
};
use roaring::RoaringBitmap;

/// Number of distinct numbers: `Int64`, from `UInt32`. Nulls are ignored.
pub fn count_numbers(of: Expr) -> Expr {
    called(Kind::CountNumbers, of)
}

/// Whether a function is that of [`count_numbers`].
pub(crate) fn is_count_of_numbers(function: &AggregateUDF) -> bool {
    let own = function.inner().downcast_ref::<NumberSet>();
    own.is_some_and(|own| own.kind == Kind::CountNumbers)
}

/// The set of the numbers, for [`count_union`].
pub fn number_set(of: Expr) -> Expr {
    called(Kind::Set, of)
}

/// Number of distinct numbers in the union of the sets: `Int64`.
pub fn count_union(of: Expr) -> Expr {
    called(Kind::CountUnion, of)
}

fn called(kind: Kind, of: Expr) -> Expr {
    let data_type = match kind {
        Kind::CountNumbers | Kind::Set => DataType::UInt32,
        Kind::CountUnion => SET,
    };
    let signature = Signature::exact(vec![data_type], Volatility::Immutable);
    AggregateUDF::new_from_impl(NumberSet { kind, signature }).call(vec![of])
}

/// The type of a set: its portable serialization. Sets of many groups may exceed the offsets of `Binary`.
const SET: DataType = DataType::LargeBinary;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// From numbers, their distinct count.
    CountNumbers,
    /// From numbers, their set.
    Set,
    /// From sets, the distinct count of their union.
    CountUnion,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumberSet {
    kind: Kind,
    signature: Signature,
}

impl NumberSet {
    fn sets(&self) -> Sets {
        Sets { kind: self.kind, sets: Vec::new(), bytes: 0 }
    }
}

impl AggregateUDFImpl for NumberSet {
    fn name(&self) -> &str {
        match self.kind {
            Kind::CountNumbers => "count_numbers",
            Kind::Set => "number_set",
            Kind::CountUnion => "count_union",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(match self.kind {
            Kind::CountNumbers | Kind::CountUnion => DataType::Int64,
            Kind::Set => SET,
        })
    }

    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[set]", arguments.name), SET, true))])
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.sets()))
    }

    fn groups_accumulator_supported(&self, _arguments: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(
        &self,
        _arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(self.sets()))
    }

    fn default_value(&self, data_type: &DataType) -> Result<ScalarValue> {
        match self.kind {
            Kind::CountNumbers | Kind::CountUnion => Ok(ScalarValue::Int64(Some(0))),
            Kind::Set => ScalarValue::try_from(data_type),
        }
    }
}

/// The set of each group.
#[derive(Debug)]
struct Sets {
    kind: Kind,
    sets: Vec<Set>,
    /// Upper bound of the bytes of all sets.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Set {
    numbers: RoaringBitmap,
    /// Count of the numbers, and the largest. Cached, since the bitmap counts them block by block.
    count: u64,
    largest: u32,
}

/// Maximum bytes of a block of 65,536 numbers, and its overhead.
const BLOCK_BYTES: usize = 8 << 10;
const BLOCK_HEAD_BYTES: usize = 96;

impl Set {
    /// Returns by how many bytes it grew.
    fn insert(&mut self, number: u32) -> usize {
        if !self.numbers.insert(number) {
            return 0;
        }
        let before = self.bytes();
        self.count += 1;
        self.largest = self.largest.max(number);
        self.bytes().saturating_sub(before)
    }

    /// Returns by how many bytes it grew.
    fn unite(&mut self, other: RoaringBitmap) -> usize {
        let before = self.bytes();
        self.numbers |= other;
        self.count = self.numbers.len();
        self.largest = self.numbers.max().unwrap_or(0);
        self.bytes().saturating_sub(before)
    }

    /// Upper bound of its bytes: two bytes for a number in arrays that grow by doubling, or the bits of a block; and
    /// the block's entry in an array that grows likewise.
    fn bytes(&self) -> usize {
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let blocks = usize::try_from(self.largest >> 16).unwrap_or(usize::MAX).saturating_add(1);
        let blocks = blocks.min(count);
        let values = count.saturating_mul(4).min(blocks.saturating_mul(BLOCK_BYTES));
        size_of::<Self>() + values + blocks.saturating_mul(BLOCK_HEAD_BYTES)
    }

    fn serialized(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.numbers.serialized_size());
        self.numbers.serialize_into(&mut bytes)?;
        Ok(bytes)
    }
}

fn deserialized(bytes: &[u8]) -> Result<RoaringBitmap> {
    Ok(RoaringBitmap::deserialize_from(bytes)?)
}

impl Sets {
    fn grow(&mut self, groups: usize) {
        if self.sets.len() < groups {
            self.bytes += (groups - self.sets.len()) * size_of::<Set>();
            self.sets.resize_with(groups, Set::default);
        }
    }

    fn add_numbers(
        &mut self,
        values: &[ArrayRef],
        group: impl Fn(usize) -> usize,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let numbers = values.first().and_then(|array| array.as_primitive_opt::<UInt32Type>());
        let numbers = numbers.ok_or_else(|| wrong("numbers"))?;
        for (row, number) in numbers.iter().enumerate() {
            let Some(number) = number.filter(|_| is_wanted(row)) else { continue };
            let Some(set) = self.sets.get_mut(group(row)) else { continue };
            self.bytes = self.bytes.saturating_add(set.insert(number));
        }
        Ok(())
    }

    fn add_sets(
        &mut self,
        values: &[ArrayRef],
        group: impl Fn(usize) -> usize,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let sets = values.first().and_then(|array| array.as_binary_opt::<i64>());
        for (row, bytes) in sets.ok_or_else(|| wrong("sets"))?.iter().enumerate() {
            let Some(bytes) = bytes.filter(|_| is_wanted(row)) else { continue };
            let Some(set) = self.sets.get_mut(group(row)) else { continue };
            self.bytes = self.bytes.saturating_add(set.unite(deserialized(bytes)?));
        }
        Ok(())
    }

    fn add(
        &mut self,
        values: &[ArrayRef],
        group: impl Fn(usize) -> usize,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<()> {
        match self.kind {
            Kind::CountNumbers | Kind::Set => self.add_numbers(values, group, is_wanted),
            Kind::CountUnion => self.add_sets(values, group, is_wanted),
        }
    }

    fn taken(&mut self, emit: EmitTo) -> Vec<Set> {
        let sets = emit.take_needed(&mut self.sets);
        let bytes = sets.iter().fold(0_usize, |sum, set| sum.saturating_add(set.bytes()));
        self.bytes = self.bytes.saturating_sub(bytes);
        sets
    }

    fn counts(sets: &[Set]) -> ArrayRef {
        let counts = sets.iter().map(|set| i64::try_from(set.count).ok());
        Arc::new(counts.collect::<Int64Array>())
    }

    fn serialized(sets: &[Set]) -> Result<ArrayRef> {
        let mut builder = LargeBinaryBuilder::new();
        for set in sets {
            builder.append_value(set.serialized()?);
        }
        Ok(Arc::new(builder.finish()))
    }
}

fn wrong(what: &str) -> DataFusionError {
    DataFusionError::Internal(format!("an aggregate of {what} has values of another type"))
}

impl GroupsAccumulator for Sets {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let is_wanted =
            |row: usize| filter.is_none_or(|rows| rows.is_valid(row) && rows.value(row));
        let group = |row: usize| group_indices.get(row).copied().unwrap_or(usize::MAX);
        self.add(values, group, is_wanted)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let group = |row: usize| group_indices.get(row).copied().unwrap_or(usize::MAX);
        self.add_sets(values, group, |_| true)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sets = self.taken(emit_to);
        match self.kind {
            Kind::CountNumbers | Kind::CountUnion => Ok(Self::counts(&sets)),
            Kind::Set => Self::serialized(&sets),
        }
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![Self::serialized(&self.taken(emit_to))?])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, |array| array.len());
        let mut each = Self { sets: Vec::new(), bytes: 0, ..*self };
        let own: Vec<usize> = (0..rows).collect();
        GroupsAccumulator::update_batch(&mut each, values, &own, filter, rows)?;
        GroupsAccumulator::state(&mut each, EmitTo::All)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.bytes
    }
}

/// The accumulator without groups: all rows are one group.
impl Accumulator for Sets {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.grow(1);
        self.add(values, |_| 0, |_| true)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.grow(1);
        self.add_sets(states, |_| 0, |_| true)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.grow(1);
        let evaluated = GroupsAccumulator::evaluate(self, EmitTo::All)?;
        ScalarValue::try_from_array(&evaluated, 0)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.grow(1);
        let sets = Self::serialized(&self.taken(EmitTo::All))?;
        Ok(vec![ScalarValue::try_from_array(&sets, 0)?])
    }

    fn size(&self) -> usize {
        GroupsAccumulator::size(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Int32Array, RecordBatch, UInt32Array};
    use arrow::datatypes::{Int32Type, Int64Type};
    use datafusion::datasource::MemTable;
    use datafusion::prelude::{DataFrame, SessionConfig, SessionContext, ident};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::{count_numbers, count_union, number_set};

    type Counts = BTreeMap<i32, i64>;

    async fn counts(plan: DataFrame) -> Counts {
        let mut counts = Counts::new();
        for batch in plan.collect().await.unwrap() {
            let groups = batch.column(0).as_primitive::<Int32Type>();
            // The columns between are functionally dependent on the group.
            let values = batch.columns().last().unwrap().as_primitive::<Int64Type>();
            for (group, value) in groups.values().iter().zip(values.values()) {
                assert_eq!(counts.insert(*group, *value), None, "{group} comes twice");
            }
        }
        counts
    }

    fn length(set: &BTreeSet<u32>) -> i64 {
        i64::try_from(set.len()).unwrap()
    }

    /// Goal: sets count each number once, with and without groups, in one partition and several, from numbers and from
    /// sets. Method: random numbers, sparse ones, dense ones and nulls, compared with sets of the standard library.
    #[tokio::test]
    async fn sets_count_each_number_once() {
        let mut rng = StdRng::seed_from_u64(3);
        let rows: Vec<(i32, Option<u32>)> = (0..50_000)
            .map(|_| {
                let group = rng.random_range(0..40);
                let number = match group % 3 {
                    0 => rng.random_range(0..2000),
                    1 => rng.random(),
                    _ => 70_000 + rng.random_range(0..10),
                };
                (group, rng.random_bool(0.9).then_some(number))
            })
            .collect();
        let mut expected: BTreeMap<i32, BTreeSet<u32>> = BTreeMap::new();
        for (group, number) in &rows {
            expected.entry(*group).or_default().extend(number);
        }
        let union: BTreeSet<u32> = expected.values().flatten().copied().collect();
        let expected: Counts =
            expected.into_iter().map(|(group, own)| (group, length(&own))).collect();
        let batch = |rows: &[(i32, Option<u32>)]| {
            let groups: Int32Array = rows.iter().map(|(group, _)| *group).collect();
            let numbers: UInt32Array = rows.iter().map(|(_, number)| *number).collect();
            let columns =
                [("group", Arc::new(groups) as ArrayRef), ("number", Arc::new(numbers) as _)];
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, of)| (name, of, true)))
        };
        let batches: Vec<RecordBatch> =
            rows.chunks(1000).map(|rows| batch(rows).unwrap()).collect();
        for partitions in [1, 3] {
            let mut divided = vec![Vec::new(); partitions];
            for (at, batch) in batches.iter().enumerate() {
                divided[at % partitions].push(batch.clone());
            }
            let table = MemTable::try_new(batches[0].schema(), divided).unwrap();
            let config = SessionConfig::new().with_target_partitions(partitions);
            let rows = SessionContext::new_with_config(config).read_table(Arc::new(table)).unwrap();
            let group = || vec![ident("group")];
            let counted = rows.clone().aggregate(group(), vec![count_numbers(ident("number"))]);
            assert_eq!(counts(counted.unwrap()).await, expected, "{partitions}");
            let sets = number_set(ident("number")).alias("sets");
            let sets = rows.clone().aggregate(group(), vec![sets]).unwrap();
            let again = sets.clone().aggregate(group(), vec![count_union(ident("sets"))]);
            assert_eq!(counts(again.unwrap()).await, expected, "{partitions}");
            for all in [
                rows.aggregate(Vec::new(), vec![count_numbers(ident("number"))]).unwrap(),
                sets.aggregate(Vec::new(), vec![count_union(ident("sets"))]).unwrap(),
            ] {
                let all = all.collect().await.unwrap();
                let count = all[0].column(0).as_primitive::<Int64Type>().value(0);
                assert_eq!(count, length(&union), "{partitions}");
            }
        }
    }

    /// Goal: the bytes that a set reports are no less than it takes.
    #[test]
    fn memory_is_accounted_for() {
        let mut rng = StdRng::seed_from_u64(4);
        for most in [100, 100_000, 3_000_000, u32::MAX] {
            let mut set = super::Set::default();
            let mut accounted = set.bytes();
            for _ in 0..200_000 {
                accounted += set.insert(rng.random_range(0..most));
            }
            let least = set.numbers.serialized_size();
            assert!(set.bytes() >= least && accounted == set.bytes(), "{least} {accounted}");
        }
    }
}
