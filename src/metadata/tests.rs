//! Tests of the metadata store: writes are visible, before and after a restart, and in the snapshot.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;

use super::*;
use crate::accounts::ProjectPatch;
use crate::bootstrap::FirstStart;
use crate::flags::{FlagId, FlagPatch, StoredFlag};
use crate::secrets::Seed;
use crate::tests::place::Backend;
use weir_base::error::Kind;
use weir_event::id::ProjectId;

mod accounts;
mod activity;
mod bootstrap;
mod cohorts;
mod definitions;
mod documents;
mod early_access;
mod event_usage;
mod flag_calls;
mod flags;
mod leases;
mod nodes;
mod opening;
mod outage;
mod place;
mod promotions;
mod record_times;
mod removal;
mod rights;
mod schedules;
mod servers;
mod sessions;
mod shards;
mod statements;
mod transfer;
mod warnings;
mod workers;
mod writers;

const START: UnixMicros = UnixMicros(1_700_000_000_000_000);
const PROJECT: ProjectId = ProjectId(1);
const USER: UserId = UserId(1);

/// A store in a place of its own.
struct Bench {
    place: Backend,
    clock: Clock,
    metadata: Metadata,
}

impl Bench {
    /// An empty store.
    async fn empty() -> Self {
        Self::at(Backend::new().await).await
    }

    /// An empty store in this place.
    async fn at(place: Backend) -> Self {
        let clock = Clock::test(START);
        let metadata = place.open(clock.clone()).await.expect("open");
        Self { place, clock, metadata }
    }

    /// A store after its bootstrap.
    async fn started() -> Self {
        Self::started_at(Backend::new().await).await
    }

    /// A store in this place after its bootstrap.
    async fn started_at(place: Backend) -> Self {
        let bench = Self::at(place).await;
        bench.metadata.bootstrap(FirstStart::default(), &seed(1)).await.expect("first start");
        bench
    }

    /// A second handle, like that of another process.
    async fn other(&self) -> Metadata {
        self.place.open(self.clock.clone()).await.expect("open")
    }

    /// Runs a statement behind the store's back.
    async fn run(&self, statement: &str) {
        let mut tx = self.metadata.shared.db.begin().await.expect("begin");
        let query = sql::query(sqlx::AssertSqlSafe(statement.to_owned()));
        query.execute(tx.connection()).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        tx.commit().await.expect("commit");
    }

    /// A connection that reads.
    async fn reader(&self) -> Conn {
        self.metadata.shared.db.reader().await.expect("a connection")
    }

    /// Checks that the published snapshot is what a restart would load.
    async fn check_snapshot(&self) {
        let other = self.other().await;
        assert_eq!(self.metadata.snapshot(), other.snapshot());
        other.close().await;
    }

    async fn create(&self, key: &str) -> Arc<StoredFlag> {
        self.metadata.create_flag(PROJECT, USER, new(key)).await.expect("create")
    }

    async fn update(&self, id: FlagId, patch: FlagPatch) -> Arc<StoredFlag> {
        self.metadata.update_flag(PROJECT, USER, id, patch).await.expect("update").after
    }
}

fn seed(number: u64) -> Seed {
    Seed::new(&mut StdRng::seed_from_u64(number))
}

fn new(key: &str) -> FlagPatch {
    FlagPatch { key: Some(key.to_owned()), ..FlagPatch::default() }
}

/// The code of a violation.
fn code<T: std::fmt::Debug>(result: Result<T, MetadataError>) -> &'static str {
    match result {
        Err(MetadataError::Rejected(violation)) => violation.code,
        other => panic!("not rejected: {other:?}"),
    }
}

fn kind<T: std::fmt::Debug>(result: Result<T, MetadataError>) -> Kind {
    result.expect_err("an error").kind()
}
