//! How the work of a stage is split over nodes: [`Nodes`]. Files go to workers, each to the same one in every query as far
//! as sizes allow, because workers cache what they have read; rows in memory stay with the server that has them. Task 0 of
//! a stage with such rows is the server's own; all others are workers, in their order.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DesiredTaskCountHandler,
    DistributedLeafExec, RouteTasksEvent, RouteTasksEventResponse, RouteTasksHandler,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse, ScaleUpLeafNodeHandler, WorkerResolver,
};
use sha2::{Digest, Sha256};
use url::Url;

/// By how many percent of the average the bytes of a worker may exceed it, so that a file goes to the worker that has
/// cached it.
const EXCESS_PERCENT: u64 = 10;

/// The nodes of one query.
#[derive(Clone, Debug)]
pub(crate) struct Nodes(pub(crate) Arc<Known>);

/// The server of a query, and its workers.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) own: Url,
    pub(crate) workers: Vec<Url>,
}

impl Nodes {
    /// Most tasks of a stage.
    pub(crate) fn tasks_max(&self) -> usize {
        self.0.workers.len().saturating_add(1)
    }

    /// The position of the first worker's task among so many; `None` if a stage does not have so many.
    fn first_worker(&self, tasks: usize) -> Option<usize> {
        let first = tasks.checked_sub(self.0.workers.len())?;
        (first <= 1).then_some(first)
    }

    /// The parts of a scan of files.
    fn files(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        files: &FileScanConfig,
        tasks: usize,
    ) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
        let first = self.first_worker(tasks).ok_or_else(|| unexpected(tasks))?;
        let partitions = plan.output_partitioning().partition_count();
        let all = files.file_groups.iter().flat_map(|group| group.iter().cloned()).collect();
        let mut assigned = vec![Vec::new(); first];
        assigned.extend(assign(all, &self.0.workers));
        let parts = assigned.into_iter().map(|own| {
            let groups = grouped(own, partitions);
            let part = FileScanConfigBuilder::from(files.clone()).with_file_groups(groups).build();
            DataSourceExec::from_data_source(part) as Arc<dyn ExecutionPlan>
        });
        Ok(parts.collect())
    }
}

/// The worker of each file: the first of those by a hash of both that has room.
fn assign(mut files: Vec<PartitionedFile>, workers: &[Url]) -> Vec<Vec<PartitionedFile>> {
    let size = |file: &PartitionedFile| file.effective_size();
    let total = files.iter().map(size).fold(0, u64::saturating_add);
    let count = u64::try_from(workers.len().max(1)).unwrap_or(u64::MAX);
    let average = total.div_ceil(count);
    let most = average.saturating_add(average.saturating_mul(EXCESS_PERCENT) / 100);
    files.sort_by(|a, b| {
        size(b).cmp(&size(a)).then_with(|| a.object_meta.location.cmp(&b.object_meta.location))
    });
    let mut assigned: Vec<(u64, Vec<PartitionedFile>)> = vec![Default::default(); workers.len()];
    for mut file in files {
        // It has served its purpose when the query was planned, and would be sent.
        file.statistics = None;
        let ranked = |at: usize| workers.get(at).map(|worker| rank(worker, &file));
        let mut order: Vec<usize> = (0..workers.len()).collect();
        order.sort_by_key(|at| ranked(*at));
        let bytes = |at: &usize| assigned.get(*at).map_or(u64::MAX, |(bytes, _)| *bytes);
        let has_room = |at: &&usize| bytes(at).saturating_add(size(&file)) <= most;
        let place = order.iter().find(has_room).or_else(|| order.iter().min_by_key(|at| bytes(at)));
        if let Some((bytes, own)) = place.copied().and_then(|at| assigned.get_mut(at)) {
            *bytes = bytes.saturating_add(size(&file));
            own.push(file);
        }
    }
    assigned.into_iter().map(|(_, own)| own).collect()
}

/// The order of workers for a file.
fn rank(worker: &Url, file: &PartitionedFile) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(worker.as_str());
    digest.update([0]);
    digest.update(file.object_meta.location.as_ref());
    digest.finalize().into()
}

/// Files in so many groups of similar size; the largest come first.
fn grouped(files: Vec<PartitionedFile>, groups: usize) -> Vec<FileGroup> {
    let mut sums: Vec<(u64, Vec<PartitionedFile>)> = vec![Default::default(); groups.max(1)];
    for file in files {
        if let Some((bytes, own)) = sums.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            *bytes = bytes.saturating_add(file.effective_size());
            own.push(file);
        }
    }
    sums.into_iter().map(|(_, own)| FileGroup::new(own)).collect()
}

/// What a leaf of a plan reads.
enum Leaf<'p> {
    Files(&'p FileScanConfig),
    Rows,
}

impl<'p> Leaf<'p> {
    fn of(plan: &'p Arc<dyn ExecutionPlan>) -> Option<Self> {
        let source = plan.downcast_ref::<DataSourceExec>()?.data_source();
        let files = source.downcast_ref::<FileScanConfig>().map(Self::Files);
        files.or_else(|| source.is::<MemorySourceConfig>().then_some(Self::Rows))
    }
}

/// Whether a part of a plan reads rows in memory.
fn has_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| {
        let leaf = node.downcast_ref::<DistributedLeafExec>().map_or(node, |own| own.original());
        Ok(matches!(Leaf::of(leaf), Some(Leaf::Rows)))
    })
}

fn unexpected(tasks: usize) -> DataFusionError {
    DataFusionError::Plan(format!("a stage of {tasks} tasks has neither one nor all nodes"))
}

#[async_trait]
impl DesiredTaskCountHandler for Nodes {
    async fn handle(
        &self,
        event: DesiredTaskCountEvent<'_>,
    ) -> Option<Result<DesiredTaskCountEventResponse>> {
        let tasks = match Leaf::of(event.plan)? {
            Leaf::Files(_) => self.0.workers.len(),
            Leaf::Rows => self.tasks_max(),
        };
        Some(Ok(DesiredTaskCountEventResponse::desired(tasks)))
    }
}

impl ScaleUpLeafNodeHandler for Nodes {
    fn handle(
        &self,
        event: ScaleUpLeafNodeEvent<'_>,
    ) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
        if event.task_count == 1 {
            return None;
        }
        let parts = match Leaf::of(event.plan)? {
            Leaf::Files(files) => self.files(event.plan, files, event.task_count),
            Leaf::Rows => rows(event.plan, event.task_count),
        };
        let leaf =
            parts.and_then(|parts| DistributedLeafExec::try_new(Arc::clone(event.plan), parts));
        Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
    }
}

/// All rows in the first task.
fn rows(plan: &Arc<dyn ExecutionPlan>, tasks: usize) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    let partitions = plan.output_partitioning().partition_count();
    let none =
        MemorySourceConfig::try_new_exec(&vec![Vec::new(); partitions], plan.schema(), None)?;
    let none: Arc<dyn ExecutionPlan> = none;
    let others = std::iter::repeat_n(none, tasks.saturating_sub(1));
    Ok(std::iter::once(Arc::clone(plan)).chain(others).collect())
}

impl RouteTasksHandler for Nodes {
    fn handle(&self, event: RouteTasksEvent<'_>) -> Option<Result<RouteTasksEventResponse>> {
        if event.task_count == 1 {
            // The engine gives it to the server, which is a node itself.
            return None;
        }
        let urls = || {
            let first = self.first_worker(event.task_count);
            let first = first.ok_or_else(|| unexpected(event.task_count))?;
            if first == 0 && has_rows(event.plan)? {
                return Err(unexpected(event.task_count));
            }
            let own = std::iter::repeat_n(&self.0.own, first);
            Ok(own.chain(&self.0.workers).cloned().collect())
        };
        Some(urls().map(RouteTasksEventResponse::new))
    }
}

impl WorkerResolver for Nodes {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(std::iter::once(&self.0.own).chain(&self.0.workers).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use datafusion::datasource::listing::PartitionedFile;
    use url::Url;

    use super::{assign, grouped};

    fn workers(count: usize) -> Vec<Url> {
        (0..count).map(|at| format!("http://10.0.0.{at}:8100").parse().expect("a URL")).collect()
    }

    fn files(count: u64) -> Vec<PartitionedFile> {
        (0..count).map(|at| PartitionedFile::new(format!("{at}.parquet"), 100 + at % 7)).collect()
    }

    fn places(assigned: &[Vec<PartitionedFile>]) -> BTreeMap<String, usize> {
        let own = assigned.iter().enumerate().flat_map(|(at, files)| {
            files.iter().map(move |file| (file.object_meta.location.to_string(), at))
        });
        own.collect()
    }

    #[test]
    fn every_file_has_one_worker_and_no_worker_has_much_more_than_others() {
        for count in [1, 2, 3, 7] {
            let assigned = assign(files(200), &workers(count));
            assert_eq!(assigned.len(), count);
            assert_eq!(places(&assigned).len(), 200);
            let bytes: Vec<u64> = assigned
                .iter()
                .map(|own| own.iter().map(|file| file.effective_size()).sum())
                .collect();
            let average = bytes.iter().sum::<u64>() / u64::try_from(count).expect("a count");
            assert!(bytes.iter().all(|own| *own <= average * 112 / 100 + 110), "{bytes:?}");
        }
    }

    #[test]
    fn most_files_stay_where_they_are_when_a_worker_is_lost() {
        let all = workers(4);
        let before = places(&assign(files(400), &all));
        let after = places(&assign(files(400), &all[..3]));
        let of_others = before.iter().filter(|(_, at)| **at < 3);
        let (mut stay, mut count) = (0, 0);
        for (file, at) in of_others {
            count += 1;
            stay += usize::from(after[file] == *at);
        }
        assert!(stay * 10 >= count * 7, "{stay} of {count}");
    }

    #[test]
    fn groups_are_of_similar_size_and_may_be_empty() {
        let groups = grouped(files(3), 5);
        assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [1, 1, 1, 0, 0]);
    }
}
