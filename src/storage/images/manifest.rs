//! The manifest of an image: [`Manifest`], and its text.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The format that this version reads and writes.
const FORMAT: u32 = 1;

/// Most files of an image, and the longest path of one.
const FILES_MAX: usize = 100_000;
const PATH_MAX_BYTES: usize = 1_000;

/// Hexadecimal digits of a SHA-256.
const HASH_DIGITS: usize = 64;

/// The files of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    /// The last record of the log that is in it.
    pub sequence: u64,
    /// Its files.
    pub files: Vec<ManifestFile>,
}

/// A file of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Its path in the directory, with slashes.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its hash, by which the store has its contents.
    pub sha256: String,
}

/// Why a text is no manifest that can be used, as the end of a sentence about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It has a later format.
    #[error("was made by a newer Weir: it has format {0}, and this version reads {FORMAT}")]
    Newer(u32),
    /// It is none.
    #[error("{0}")]
    Malformed(String),
}

/// What every format has.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

impl Manifest {
    /// Of an image as of record `sequence`.
    pub fn new(sequence: u64, files: Vec<ManifestFile>) -> Self {
        Self { format: FORMAT, sequence, files }
    }

    /// Its text.
    ///
    /// # Errors
    ///
    /// None that a manifest can have; the text is that of the library.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    /// Reads a text. Paths lead nowhere but into the directory of the image.
    ///
    /// # Errors
    ///
    /// What is wrong, as the end of a sentence about the manifest.
    pub fn decode(text: &[u8]) -> Result<Self, Unread> {
        let wrong =
            |error: serde_json::Error| Unread::Malformed(format!("is no manifest: {error}"));
        let AnyFormat { format } = serde_json::from_slice(text).map_err(wrong)?;
        match format.cmp(&FORMAT) {
            Ordering::Greater => return Err(Unread::Newer(format)),
            Ordering::Less => return Err(Unread::Malformed(format!("has format {format}"))),
            Ordering::Equal => {}
        }
        let manifest: Self = serde_json::from_slice(text).map_err(wrong)?;
        if manifest.files.len() > FILES_MAX {
            return Err(Unread::Malformed(format!("names more than {FILES_MAX} files")));
        }
        let mut paths = BTreeSet::new();
        for ManifestFile { path, sha256, .. } in &manifest.files {
            if !is_path(path) || !paths.insert(path) {
                return Err(Unread::Malformed(format!("names the file {path:?}")));
            }
            if sha256.len() != HASH_DIGITS || !sha256.bytes().all(is_digit) {
                return Err(Unread::Malformed(format!("names the hash {sha256:?}")));
            }
        }
        Ok(manifest)
    }
}

fn is_path(path: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name != "." && name != ".." && !name.contains(['\\', '\0', ':'])
    };
    path.len() <= PATH_MAX_BYTES && path.split('/').all(is_name)
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::{Manifest, ManifestFile};

    #[test]
    fn manifests_are_read_and_nothing_else() {
        let hash = "0123456789abcdef".repeat(4);
        let file =
            |path: &str| ManifestFile { path: path.to_owned(), bytes: 5, sha256: hash.clone() };
        let good = Manifest::new(7, vec![file("a"), file("b/c/1.jnl")]);
        let text = String::from_utf8(good.encode().unwrap()).unwrap();
        assert_eq!(Manifest::decode(text.as_bytes()), Ok(good));
        let with = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        };
        let short = text[..text.len() - 1].to_owned();
        for (bad, said) in [
            (String::new(), "is no manifest"),
            (short, "is no manifest"),
            ("[]".to_owned(), "is no manifest"),
            (with("\"format\":1", "\"format\":2"), "was made by a newer Weir: it has format 2"),
            (with("\"format\":1", "\"format\":0"), "has format 0"),
            (with("\"sequence\":7", "\"sequence\":-7"), "is no manifest"),
            (with("b/c/1.jnl", "a"), "names the file \"a\""),
            (with("b/c/1.jnl", "../c"), "names the file"),
            (with("b/c/1.jnl", "/c"), "names the file"),
            (with("b/c/1.jnl", "b//c"), "names the file"),
            (with("b/c/1.jnl", "b/./c"), "names the file"),
            (with("b/c/1.jnl", ""), "names the file"),
            (with("b/c/1.jnl", &"x".repeat(2_000)), "names the file"),
            (with("abcdef\"", "abcde\""), "names the hash"),
            (with("abcdef\"", "abcdeF\""), "names the hash"),
            (with("abcdef\"", "abcde/\""), "names the hash"),
        ] {
            let problem = Manifest::decode(bad.as_bytes()).unwrap_err();
            assert!(problem.to_string().contains(said), "{bad}: {problem}");
        }
    }
}
