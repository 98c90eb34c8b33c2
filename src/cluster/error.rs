//! Why a node cannot be part of a cluster: [`ClusterError`].

/// Why a node cannot be part of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file of the settings cannot be used.
    #[error("cannot use {file}: {why}")]
    File {
        /// Its path.
        file: String,
        /// The reason.
        why: String,
    },
    /// A setting cannot be used.
    #[error("{setting}: {why}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// The reason.
        why: String,
    },
}
