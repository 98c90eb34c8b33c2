//! Removes old images: [`Images::prune`].

use std::collections::BTreeSet;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStore;
use object_store::path::Path;

use crate::images::Images;
use crate::images::error::ImagesError;

/// Age from which a file is removed that no image names. An image is put in less.
const ORPHAN_AGE: Duration = Duration::from_secs(60 * 60);

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Images.
    pub images: u64,
    /// Files that none of the kept ones names.
    pub files: u64,
}

impl Images {
    /// Removes all images but the newest `keep` whose manifests can be read, and those of `sequences`; and files that none
    /// of these names and that are older than an hour. The age is that before the newest object, by the clock of the
    /// store alone.
    ///
    /// # Errors
    ///
    /// The store fails. What is left is removed by the next call.
    pub async fn prune(
        &self,
        keep: usize,
        sequences: &BTreeSet<u64>,
    ) -> Result<Pruned, ImagesError> {
        self.prune_older(keep, sequences, ORPHAN_AGE).await
    }

    pub(super) async fn prune_older(
        &self,
        keep: usize,
        sequences: &BTreeSet<u64>,
        orphan_age: Duration,
    ) -> Result<Pruned, ImagesError> {
        // Before the images, so that every file of an image that is put meanwhile is either not among them or young.
        let (files, listed) = (self.files().await?, self.listed().await?);
        let times = files.values().map(|file| file.last_modified);
        let newest = times.chain(listed.iter().map(|(_, time)| *time)).max();
        let (mut named, mut kept, mut old) = (BTreeSet::new(), 0, Vec::new());
        let mut is_all_read = true;
        for (name, _) in listed {
            if kept >= keep && !sequences.contains(&name.sequence) {
                old.push(self.manifest_path(&name));
                continue;
            }
            match self.manifest(&name).await {
                Ok(manifest) => {
                    kept += 1;
                    named.extend(manifest.files.into_iter().map(|file| file.sha256));
                }
                // It does not count. It may be that of a later version of this program, whose files are to stay;
                // once there are enough newer ones, it is removed.
                Err(error) if error.is_unusable() => is_all_read = false,
                Err(error) => return Err(error),
            }
        }
        let images = self.delete(old).await?;
        let age = |time| newest.and_then(|newest| newest.signed_duration_since(time).to_std().ok());
        let orphans = files.into_iter().filter(|(hash, file)| {
            !named.contains(hash) && age(file.last_modified).is_some_and(|age| age >= orphan_age)
        });
        let orphans = orphans.map(|(_, file)| file.location).collect();
        let files = match is_all_read && kept > 0 {
            true => self.delete(orphans).await?,
            false => 0,
        };
        Ok(Pruned { images, files })
    }

    async fn delete(&self, paths: Vec<Path>) -> Result<u64, ImagesError> {
        let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
        let deleted = self.objects.delete_stream(paths).try_fold(0, async |count, _| Ok(count + 1));
        Ok(deleted.await?)
    }
}
