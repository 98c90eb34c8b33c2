//! An object store over a disk, that syncs.
