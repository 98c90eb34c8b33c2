//! Summary of a data directory for `weir inspect`: [`Overview`] has projects, keys and log positions. A
//! server builds it from its open engines, the command from engines that it opens in a working copy.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::copy::WorkingCopy;
use crate::directory::metadata_of;
use crate::error::OpenError;
use crate::shard::Shard;
use crate::sqlite_wal::lost_changes;
use weir_base::clock::Clock;
use weir_base::config::metadata::MetadataConfig;
use weir_disk::OsDisk;
use weir_identity::limits::Limits;
use weir_identity::store::Identities;
use weir_metadata::Metadata;
use weir_metadata::postgres::MetadataAccess;
use weir_storage::wal::writer::Wal;
use weir_storage::wal::{Elsewhere, Sequence, WalSettings};

/// Memory for caches of an identity store from which a few numbers are read.
const CACHES_BYTES: u64 = 8 << 20;

/// Segment size in the settings of a log that creates no segment.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Projects, and the log position of each part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// All projects, by id.
    pub projects: Vec<ProjectOverview>,
    /// Number of valid personal API keys.
    pub keys: usize,
    /// Sequence of the last record of the log.
    pub logged: u64,
    /// Sequence of the last record that the identity store has applied.
    pub applied: u64,
    /// Whether persons of lost log records are missing.
    pub is_incomplete: bool,
    /// Whether the last changes of projects, keys and flags were lost with `metadata.db-wal`.
    #[serde(default)]
    pub has_lost_changes: bool,
    /// Number of damaged places in the newest segment of the log, and of gaps at the ends of the log.
    /// `None` if a server has the log open, or it is unknown how far the log is in files.
    pub log_damages: Option<usize>,
}

/// One project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectOverview {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its project API key, which is no secret.
    pub token: String,
    /// Number of persons.
    pub persons: u64,
    /// Number of feature flags.
    pub flags: usize,
    /// Number of cohorts.
    pub cohorts: usize,
}

impl Overview {
    /// The overview of these engines, with `logged` as the last record of the log. Reads the identity store
    /// once per project.
    ///
    /// # Errors
    ///
    /// The identity store cannot be read.
    pub fn of(
        metadata: &Metadata,
        identities: &Identities,
        logged: Sequence,
    ) -> Result<Self, OpenError> {
        let (snapshot, view) = (metadata.snapshot(), identities.view());
        let projects = snapshot.projects().map(|project| {
            Ok(ProjectOverview {
                id: project.id.0,
                name: project.name.clone(),
                token: project.token.clone(),
                persons: view.person_count(project.id)?,
                flags: snapshot.flags(project.id).len(),
                cohorts: snapshot.cohorts(project.id).len(),
            })
        });
        Ok(Self {
            projects: projects.collect::<Result<_, OpenError>>()?,
            keys: metadata.list_keys().len(),
            logged: logged.0,
            applied: view.applied_sequence()?,
            is_incomplete: identities.is_incomplete()?,
            has_lost_changes: false,
            log_damages: None,
        })
    }

    /// The overview of a working copy whose log is in files up to the record `flushed`, if that is known.
    /// The log is not replayed: the persons lack its records after `applied`.
    ///
    /// # Errors
    ///
    /// There is no metadata store, or an engine cannot be opened.
    pub async fn of_copy(
        copy: &WorkingCopy,
        flushed: Option<Sequence>,
        settings: &MetadataConfig,
        clock: Clock,
    ) -> Result<Self, OpenError> {
        let path = copy.path().join("metadata.db");
        let has_lost_changes = lost_changes(&path).map_err(OpenError::io(&path))?.is_some();
        let metadata = metadata_of(copy.path(), settings, MetadataAccess::Read, clock).await?;
        let identities =
            Identities::open(&copy.path().join("identity"), Limits::within(CACHES_BYTES))?;
        let settings =
            WalSettings { dir: copy.path().join("wal"), segment_max_bytes: SEGMENT_BYTES };
        let durable = flushed.unwrap_or_default();
        let seen = durable.max(Sequence(identities.applied_sequence()));
        let elsewhere = Elsewhere { durable, seen };
        let (_, recovered) = Wal::open(Arc::new(OsDisk), settings, elsewhere, 0)?;
        let overview = Self::of(&metadata, &identities, recovered.last)?;
        metadata.close().await;
        let log_damages = flushed.map(|_| recovered.corruptions.len());
        Ok(Self { has_lost_changes, log_damages, ..overview })
    }
}

impl Shard {
    /// The current overview of this server's directory.
    ///
    /// # Errors
    ///
    /// The identity store cannot be read.
    pub async fn overview(&self) -> Result<Overview, OpenError> {
        let (metadata, identities) = (self.node.metadata.clone(), self.identities.clone());
        let logged = self.pipeline.published();
        let looking = move || Overview::of(&metadata, &identities, logged);
        self.node.cpu.run(looking).await?
    }
}
