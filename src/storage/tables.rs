//! Where the Delta tables are: [`Tables`] is the one way to open them, in a directory of this host or in a
//! bucket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use url::Url;

use crate::cached::CachedStore;
use crate::cached::blocks::BlockCache;
use crate::checksums::CheckedStore;
use crate::delta::error::TableError;
use crate::delta::{DeltaTable, TableSpec};
use crate::durable::DurableStore;
use crate::overlay::OverlayStore;
use weir_base::clock::Clock;
use weir_base::config::bucket::BucketUrl;
use weir_disk::Disk;

/// Directory of the tables in a data directory.
const DIRECTORY: &str = "tables";

/// The place of all tables of a shard.
#[derive(Clone, Debug)]
pub struct Tables {
    place: TablesRoot,
}

#[derive(Clone, Debug)]
enum TablesRoot {
    /// Directories of tables in an absolute directory.
    Directory { disk: Arc<dyn Disk>, root: PathBuf },
    /// Prefixes of tables under that of a shard.
    Bucket(Bucket),
    /// The same, of which nothing changes: what is written goes to directories in `root`.
    Copy { bucket: Bucket, disk: Arc<dyn Disk>, root: PathBuf },
}

#[derive(Clone, Debug)]
struct Bucket {
    /// Its root is that of the bucket.
    objects: Arc<dyn ObjectStore>,
    url: BucketUrl,
    /// The prefix of the shard in it.
    shard: String,
    cache: Option<BlockCache>,
}

impl Bucket {
    /// The keys of the shard.
    fn shard_prefix(&self) -> String {
        let prefix = self.url.prefix.as_str();
        let slash = if prefix.is_empty() { "" } else { "/" };
        format!("{prefix}{slash}{}", self.shard)
    }

    /// The keys of a table.
    fn prefix(&self, table: &str) -> String {
        format!("{}/{DIRECTORY}/{table}", self.shard_prefix())
    }

    /// Everything of the shard.
    fn shard(&self) -> Arc<dyn ObjectStore> {
        let prefix = ObjectPath::from(self.shard_prefix());
        Arc::new(PrefixStore::new(Arc::clone(&self.objects), prefix))
    }

    fn name(&self, table: &str) -> String {
        format!("s3://{}/{}", self.url.bucket, self.prefix(table))
    }

    /// The files of a table.
    fn objects(&self, table: &str) -> Arc<dyn ObjectStore> {
        let prefix = ObjectPath::from(self.prefix(table));
        Arc::new(PrefixStore::new(Arc::clone(&self.objects), prefix))
    }
}

impl Tables {
    /// In the directory `tables` of a data directory.
    ///
    /// # Errors
    ///
    /// The current directory cannot be found out.
    pub fn of_data_dir(disk: Arc<dyn Disk>, data_dir: &Path) -> io::Result<Self> {
        Ok(Self::in_directory(disk, std::path::absolute(data_dir)?.join(DIRECTORY)))
    }

    /// In an absolute directory.
    pub fn in_directory(disk: Arc<dyn Disk>, root: PathBuf) -> Self {
        Self { place: TablesRoot::Directory { disk, root } }
    }

    /// Those of the shard with this prefix in a bucket, of which `objects` has all keys.
    pub fn in_bucket(objects: Arc<dyn ObjectStore>, url: BucketUrl, shard: String) -> Self {
        Self { place: TablesRoot::Bucket(Bucket { objects, url, shard, cache: None }) }
    }

    /// The same, with a cache of data files if they are in a bucket.
    #[must_use]
    pub fn with_cache(self, cache: Option<BlockCache>) -> Self {
        match self.place {
            TablesRoot::Bucket(bucket) => {
                Self { place: TablesRoot::Bucket(Bucket { cache, ..bucket }) }
            }
            place => Self { place },
        }
    }

    /// The same without changing anything: what is written to a bucket goes to the copy `data_dir` of a data
    /// directory instead.
    ///
    /// # Errors
    ///
    /// The current directory cannot be found out.
    pub fn copied(self, disk: Arc<dyn Disk>, data_dir: &Path) -> io::Result<Self> {
        match self.place {
            TablesRoot::Bucket(bucket) => {
                let root = std::path::absolute(data_dir)?.join(DIRECTORY);
                Ok(Self { place: TablesRoot::Copy { bucket, disk, root } })
            }
            place => Ok(Self { place }),
        }
    }

    /// Whether they are in a bucket that this process writes to.
    pub fn is_bucket(&self) -> bool {
        matches!(self.place, TablesRoot::Bucket(_))
    }

    /// Whether they are in the data directory.
    pub fn is_local(&self) -> bool {
        matches!(self.place, TablesRoot::Directory { .. })
    }

    /// The prefix of the bucket that this process writes to.
    pub fn bucket(&self) -> Option<Arc<dyn ObjectStore>> {
        match &self.place {
            TablesRoot::Bucket(bucket) => {
                let prefix = ObjectPath::from(bucket.url.prefix.as_str());
                Some(Arc::new(PrefixStore::new(Arc::clone(&bucket.objects), prefix)))
            }
            TablesRoot::Directory { .. } | TablesRoot::Copy { .. } => None,
        }
    }

    /// The prefix of the shard in a bucket, for what is in it beside tables; also if nothing is written there.
    pub fn shard(&self) -> Option<Arc<dyn ObjectStore>> {
        match &self.place {
            TablesRoot::Bucket(bucket) | TablesRoot::Copy { bucket, .. } => Some(bucket.shard()),
            TablesRoot::Directory { .. } => None,
        }
    }

    /// The cache of the bucket, if there is one.
    pub fn cache(&self) -> Option<&BlockCache> {
        match &self.place {
            TablesRoot::Bucket(bucket) => bucket.cache.as_ref(),
            TablesRoot::Directory { .. } | TablesRoot::Copy { .. } => None,
        }
    }

    /// The directory or URL of a table, for people and other programs.
    pub fn name(&self, table: &str) -> String {
        match &self.place {
            TablesRoot::Directory { root, .. } => root.join(table).display().to_string(),
            TablesRoot::Bucket(bucket) | TablesRoot::Copy { bucket, .. } => bucket.name(table),
        }
    }

    /// The same for messages about its files: relative to the data directory.
    pub fn place(&self, table: &str) -> String {
        match &self.place {
            TablesRoot::Directory { .. } => format!("{DIRECTORY}/{table}"),
            TablesRoot::Bucket(_) | TablesRoot::Copy { .. } => self.name(table),
        }
    }

    /// The files of a table for reading, beside a process that may write. Does no I/O.
    ///
    /// # Errors
    ///
    /// Its directory has no URL.
    pub fn reading(&self, table: &str) -> io::Result<TableFiles> {
        self.files(table, |_| Ok(()))
    }

    /// The files of a table, after `prepare` of what is in a directory.
    fn files(
        &self,
        table: &str,
        prepare: impl Fn(&DurableStore) -> io::Result<()>,
    ) -> io::Result<TableFiles> {
        let directory = |disk: &Arc<dyn Disk>, root: &Path| {
            let directory = DurableStore::new(Arc::clone(disk), root.join(table));
            prepare(&directory).map(|()| Arc::new(directory))
        };
        let objects: Arc<dyn ObjectStore> = match &self.place {
            TablesRoot::Directory { disk, root } => directory(disk, root)?,
            TablesRoot::Bucket(bucket) => bucket.objects(table),
            TablesRoot::Copy { bucket, disk, root } => {
                Arc::new(OverlayStore::new(bucket.objects(table), directory(disk, root)?))
            }
        };
        let location = match &self.place {
            TablesRoot::Directory { root, .. } => Url::from_directory_path(root.join(table))
                .map_err(|()| io::Error::other("the path has no URL"))?,
            TablesRoot::Bucket(bucket) | TablesRoot::Copy { bucket, .. } => {
                Url::parse(&format!("{}/", bucket.name(table))).map_err(io::Error::other)?
            }
        };
        Ok(TableFiles { objects, location, place: self.place(table), cache: self.cache().cloned() })
    }

    /// The files of a table for writing: creates a directory and removes what a crash left in it, see
    /// [`DurableStore::recover`]. Blocks.
    ///
    /// # Errors
    ///
    /// An I/O error of the disk, or as of [`Tables::reading`].
    pub fn writing(&self, table: &str) -> io::Result<TableFiles> {
        self.files(table, DurableStore::recover)
    }
}

/// The files of one table.
#[derive(Clone, Debug)]
pub struct TableFiles {
    objects: Arc<dyn ObjectStore>,
    location: Url,
    place: String,
    /// For data files that queries read.
    cache: Option<BlockCache>,
}

impl TableFiles {
    /// The files; the root is the table's.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// For queries: data files are verified when they are read, and cached if they are in a bucket.
    #[must_use]
    pub fn for_queries(self) -> Self {
        let objects = match &self.cache {
            Some(cache) => Arc::new(CachedStore::new(self.objects, cache.clone(), &self.place))
                as Arc<dyn ObjectStore>,
            None => self.objects,
        };
        Self { objects: Arc::new(CheckedStore::new(objects, &self.place)), ..self }
    }

    /// With another store of the same files.
    #[must_use]
    pub fn over(self, objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, ..self }
    }

    /// Opens the table, or creates it; see [`DeltaTable::open_or_create`].
    ///
    /// # Errors
    ///
    /// As of [`DeltaTable::open_or_create`].
    pub async fn open_or_create(
        self,
        spec: TableSpec,
        clock: Clock,
    ) -> Result<DeltaTable, TableError> {
        DeltaTable::open_or_create(self.objects, self.location, spec, clock).await
    }

    /// Opens the table for reading; `None` if there is none. See [`DeltaTable::open_existing`].
    ///
    /// # Errors
    ///
    /// As of [`DeltaTable::open_existing`].
    pub async fn open_existing(
        self,
        spec: TableSpec,
        clock: Clock,
    ) -> Result<Option<DeltaTable>, TableError> {
        DeltaTable::open_existing(self.objects, self.location, spec, clock).await
    }
}

#[cfg(test)]
mod tests;
