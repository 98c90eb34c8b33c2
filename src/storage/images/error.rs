//! Why an image cannot be put or restored: [`ImagesError`].

use std::io;
use std::path::PathBuf;

use object_store::path::Path;

use crate::images::manifest::Unread;
use weir_base::error::Kind;

/// Why an image cannot be put or restored.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The object store failed.
    #[error("the object store fails")]
    Store(#[from] object_store::Error),
    /// The disk failed.
    #[error("cannot use {}", path.display())]
    Local {
        /// The file or directory.
        path: PathBuf,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// A local file is another than it was while the image was made.
    #[error("{} changes while it is sent", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// An object of an image is not in the store.
    #[error("{path} is not in the object store any more")]
    Lost {
        /// The object.
        path: Path,
    },
    /// An object of an image has other contents than were put.
    #[error("{path} is damaged: it has other contents than its name says")]
    Differs {
        /// The object.
        path: Path,
    },
    /// A manifest is of a later version of this program.
    #[error("{path} {problem}")]
    Newer {
        /// The manifest.
        path: Path,
        /// Its format.
        problem: Unread,
    },
    /// A manifest is none.
    #[error("{path} is damaged: it {problem}")]
    Malformed {
        /// The manifest.
        path: Path,
        /// What is wrong with it.
        problem: String,
    },
}

impl ImagesError {
    /// Whether the image is lost, as opposed to the access to it failing: the one before it may be whole.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Differs { .. } | Self::Malformed { .. })
    }

    /// Whether this version cannot use the image, now or later: it is lost, or a newer version made it.
    pub fn is_unusable(&self) -> bool {
        self.is_damage() || matches!(self, Self::Newer { .. })
    }

    /// What the receiver can do about it.
    pub fn kind(&self) -> Kind {
        Kind::Unavailable
    }
}

/// What a failed read of an object of an image means.
pub(super) fn lost(path: &Path) -> impl FnOnce(object_store::Error) -> ImagesError {
    let path = path.clone();
    move |error| match error {
        object_store::Error::NotFound { .. } => ImagesError::Lost { path },
        error => ImagesError::Store(error),
    }
}
