//! Shards, wishes for them, and which one a new project gets.

use super::*;
use crate::accounts::NewProject;
use crate::shards::{SHARDS_MAX, ShardRow};
use weir_event::id::ShardId;

fn row(shard: u16, wanted: &str, ready: &str) -> ShardRow {
    ShardRow { shard: ShardId(shard), wanted: wanted.to_owned(), ready: ready.to_owned() }
}

impl Bench {
    async fn shards(&self) -> Vec<ShardRow> {
        self.metadata.shards().await.expect("shards")
    }

    async fn add_shards(&self, count: u16) -> u16 {
        self.metadata.add_shards("s3://a/b", count).await.expect("shards")
    }

    /// Creates a project. Returns its shard.
    async fn placed(&self, number: u64) -> ShardId {
        let (token, settings) = (Some(format!("phc_moved_{number:06}")), ProjectPatch::default());
        let new = NewProject { token: token.filter(|_| number.is_multiple_of(2)), settings };
        let made = self.metadata.create_project(USER, "p", new, &seed(100 + number)).await;
        made.expect("a project").shard
    }

    /// The shards of all projects, by their ids.
    fn places(&self) -> Vec<(i64, u16)> {
        self.metadata.snapshot().projects().map(|own| (own.id.0, own.shard.0)).collect()
    }
}

#[tokio::test]
async fn shards_are_numbered_without_gaps_and_bounded() {
    let bench = Bench::started().await;
    assert_eq!(bench.shards().await, [row(0, "", "")]);
    assert_eq!(bench.add_shards(0).await, 1);
    assert_eq!(bench.metadata.bucket_of_shards().await.expect("a name"), None);
    assert_eq!(bench.shards().await, [row(0, "", "")]);
    assert_eq!(bench.add_shards(2).await, 3);
    assert_eq!(bench.add_shards(1).await, 4);
    let of = bench.metadata.bucket_of_shards().await.expect("a name");
    assert_eq!(of.as_deref(), Some("s3://a/b"));
    assert_eq!(code(bench.metadata.add_shards("s3://a/c", 1).await), "invalid_input");
    for count in [SHARDS_MAX - 3, SHARDS_MAX, u16::MAX] {
        assert_eq!(
            code(bench.metadata.add_shards("s3://a/b", count).await),
            "invalid_input",
            "{count}"
        );
    }
    let expected: Vec<ShardRow> = (0..4).map(|shard| row(shard, "", "")).collect();
    assert_eq!(bench.shards().await, expected);
    assert_eq!(bench.add_shards(SHARDS_MAX - 4).await, SHARDS_MAX);
    assert_eq!(code(bench.metadata.add_shards("s3://a/b", 1).await), "invalid_input");
    assert_eq!(bench.add_shards(0).await, SHARDS_MAX);
    let expected: Vec<ShardRow> = (0..SHARDS_MAX).map(|shard| row(shard, "", "")).collect();
    assert_eq!(bench.shards().await, expected);
    bench.check_snapshot().await;
}

#[tokio::test]
async fn too_many_shards_at_once_leave_none() {
    let bench = Bench::started().await;
    assert_eq!(code(bench.metadata.add_shards("s3://a/b", SHARDS_MAX).await), "invalid_input");
    assert_eq!(bench.shards().await, [row(0, "", "")]);
    let count = sql::query_scalar::<i64>("SELECT COUNT(*) FROM shards");
    assert_eq!(count.fetch_one(&mut bench.reader().await).await.expect("a count"), 0);
    assert_eq!(bench.add_shards(SHARDS_MAX - 1).await, SHARDS_MAX);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shards_that_are_added_at_once_have_numbers_of_their_own() {
    const ROUNDS: u16 = 8;
    let bench = Bench::started().await;
    let add = async |metadata: Metadata| {
        let mut totals = Vec::new();
        for _ in 0..ROUNDS {
            totals.push(metadata.add_shards("s3://a/b", 3).await.expect("shards"));
        }
        totals
    };
    let (first, second) = (bench.metadata.clone(), bench.other().await);
    let (a, b) = tokio::join!(add(first), add(second));
    let mut totals = [a, b].concat();
    totals.sort_unstable();
    assert_eq!(totals, (1..=2 * ROUNDS).map(|round| 1 + 3 * round).collect::<Vec<_>>());
    let expected: Vec<ShardRow> = (0..=6 * ROUNDS).map(|shard| row(shard, "", "")).collect();
    assert_eq!(bench.shards().await, expected);
}

#[tokio::test]
async fn projects_are_spread_and_stay() {
    let bench = Bench::started().await;
    // All, while there is one shard.
    assert_eq!(bench.placed(0).await, ShardId::FIRST);
    assert_eq!(bench.places(), [(1, 0), (2, 0)]);
    assert_eq!(bench.add_shards(2).await, 3);
    let mut shards = Vec::new();
    for number in 1..8 {
        shards.push(bench.placed(number).await.0);
    }
    assert_eq!(shards, [1, 2, 1, 2, 0, 1, 2]);
    bench.check_snapshot().await;
    let before = bench.places();
    assert_eq!(bench.add_shards(1).await, 4);
    for (id, _) in &before {
        let patch = ProjectPatch { name: Some("other".to_owned()), ..ProjectPatch::default() };
        bench.metadata.update_project(ProjectId(*id), patch).await.expect("an update");
        let number = 200 + u64::try_from(*id).expect("positive");
        bench.metadata.rotate_token(ProjectId(*id), &seed(number)).await.expect("a token");
    }
    assert_eq!(bench.places(), before);
    bench.check_snapshot().await;
    // A project that goes makes room.
    for number in 8..11 {
        assert_eq!(bench.placed(number).await, ShardId(3));
    }
    let of_second = before.iter().filter(|(_, shard)| *shard == 1).map(|(id, _)| ProjectId(*id));
    bench.metadata.delete_project(USER, of_second.max().expect("one")).await.expect("deleted");
    assert_eq!(bench.placed(11).await, ShardId(1));
    assert_eq!(bench.placed(12).await, ShardId::FIRST);
    bench.check_snapshot().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn projects_that_are_made_at_once_are_spread() {
    let bench = Bench::started().await;
    assert_eq!(bench.add_shards(3).await, 4);
    let make = async |metadata: Metadata, from: u64| {
        for number in from..from + 8 {
            let (patch, seed) = (ProjectPatch::default(), seed(number));
            metadata.create_project(USER, "p", patch, &seed).await.expect("a project");
        }
    };
    let (first, second) = (bench.metadata.clone(), bench.other().await);
    tokio::join!(make(first, 10), make(second, 30));
    bench.metadata.refresh().await.expect("refresh");
    let places = bench.places();
    let count = |shard| places.iter().filter(|(_, own)| *own == shard).count();
    assert_eq!([0, 1, 2, 3].map(count), [5, 4, 4, 4], "{places:?}");
}

#[tokio::test]
async fn the_first_project_has_the_first_shard() {
    let bench = Bench::empty().await;
    assert_eq!(bench.add_shards(2).await, 3);
    let started = bench.metadata.bootstrap(FirstStart::default(), &seed(1)).await.expect("start");
    assert_eq!(started.project.shard, ShardId::FIRST);
    assert_eq!(bench.placed(1).await, ShardId(1));
}

#[tokio::test]
async fn wishes_are_those_of_one_node() {
    let bench = Bench::started().await;
    let metadata = &bench.metadata;
    let want = async |shard, url| metadata.want_shard(ShardId(shard), url).await.expect("a row");
    let ready = async |shard, url| metadata.note_ready(ShardId(shard), url).await.expect("a row");
    let forget = async |shard, url| metadata.forget_wish(ShardId(shard), url).await.expect("a row");
    // The first shard may have no row yet.
    assert!(!ready(0, "a").await && !forget(0, "a").await && !want(1, "a").await);
    assert!(want(0, "a").await);
    assert_eq!(bench.shards().await, [row(0, "a", "")]);
    assert_eq!(bench.add_shards(1).await, 2);
    assert_eq!(bench.shards().await, [row(0, "a", ""), row(1, "", "")]);
    assert!(want(1, "a").await && !want(2, "a").await);
    assert!(!ready(1, "b").await && ready(1, "a").await);
    assert_eq!(bench.shards().await, [row(0, "a", ""), row(1, "a", "a")]);
    // Another wish: the first node's steps come too late.
    for shard in [0, 1] {
        assert!(want(shard, "b").await);
        assert!(!ready(shard, "a").await && !forget(shard, "a").await);
    }
    assert_eq!(bench.shards().await, [row(0, "b", ""), row(1, "b", "")]);
    assert!(ready(0, "b").await && ready(1, "b").await && forget(1, "b").await);
    assert_eq!(bench.shards().await, [row(0, "b", "b"), row(1, "", "")]);
    assert!(!forget(1, "b").await && !ready(1, "b").await);
    bench.check_snapshot().await;
}
