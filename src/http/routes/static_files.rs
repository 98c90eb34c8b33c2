//! `/static/...`: the scripts of posthog-js, from the directory in `static-dir`. Weir contains no
//! copy: the scripts are released with the SDK, as the `dist` of its npm package.
//!
//! A path is one plain file name, or a version and a file name. Nothing else reaches the disk, so
//! there is no path traversal. Files are streamed in pieces, so memory does not depend on their
//! size.

use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures::TryStreamExt;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use crate::conditional;
use crate::conditional::Tag;
use crate::request::Request;
use crate::response::{Problem, Response};
use weir_app::App;
use weir_base::error::Kind;

/// Media type of scripts (RFC 9239).
pub const SCRIPT: HeaderValue = HeaderValue::from_static("text/javascript; charset=utf-8");
const SOURCE_MAP: HeaderValue = HeaderValue::from_static("application/json");

/// Largest file served. The largest of posthog-js, a source map, has about 3 MB.
const FILE_MAX_BYTES: u64 = 32 << 20;

/// Bytes per read.
const PIECE_BYTES: usize = 64 << 10;

/// `Cache-Control` of a file whose name stays when its contents change.
const CACHE: &str = "public, max-age=300";

/// `Cache-Control` of a file of one released version: it never changes.
const CACHE_FOR_GOOD: &str = "public, max-age=31536000, immutable";

/// Answers `/static/<path>`.
pub async fn file(app: &App, path: &str, request: &Request) -> Result<Response, Problem> {
    let Some(name) = Name::parse(path) else { return Err(Problem::not_found("Not found.")) };
    let directory = directory(app)?;
    let mut found = None;
    if let Some(version) = name.version {
        let opened = Script::open(&directory.join(version).join(name.file)).await?;
        found = opened.map(|script| (script, CACHE_FOR_GOOD));
    }
    if found.is_none() {
        found = Script::open(&directory.join(name.file)).await?.map(|script| (script, CACHE));
    }
    let (script, cache) = found.ok_or_else(|| missing(name.file))?;
    let tag = Tag::of_parts(&[script.modified_nanos, script.len]);
    Ok(conditional::respond(&request.headers, &tag, cache, || script.send(Bytes::new())))
}

/// The directory of the scripts.
///
/// # Errors
///
/// 404 if `static-dir` is not set.
pub fn directory(app: &App) -> Result<&Path, Problem> {
    app.node.config.http.static_dir.as_deref().ok_or_else(|| {
        Problem::not_found(
            "This server has no scripts of the SDK: set static-dir to the `dist` directory of the \
             npm package posthog-js.",
        )
    })
}

/// 404 for a file that does not exist.
pub fn missing(file: &str) -> Problem {
    Problem::not_found(format!("The directory of static-dir has no file {file}."))
}

/// A file of the directory, parsed from a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name<'p> {
    version: Option<&'p str>,
    file: &'p str,
}

impl<'p> Name<'p> {
    /// Parses `<file>` or `<version>/<file>`. Percent signs are refused like other characters: no
    /// file name of the SDK needs them.
    fn parse(path: &'p str) -> Option<Self> {
        let (version, file) = match path.split_once('/') {
            Some((version, file)) => (Some(version), file),
            None => (None, path),
        };
        let is_plain = |part: &str| {
            part.starts_with(|first: char| first.is_ascii_alphanumeric())
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let is_known = file.ends_with(".js") || file.ends_with(".map");
        (is_known && is_plain(file) && version.is_none_or(is_plain))
            .then_some(Self { version, file })
    }
}

/// An open script.
#[derive(Debug)]
pub struct Script {
    file: File,
    /// Length of the file.
    pub len: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified_nanos: u64,
    content_type: HeaderValue,
}

impl Script {
    /// Opens the file at `path`; `None` if it does not exist or is not a script.
    ///
    /// # Errors
    ///
    /// The file exists and cannot be read; an operator has to look at it.
    pub async fn open(path: &Path) -> Result<Option<Self>, Problem> {
        let failed = |error: io::Error| Problem::of(Kind::Internal, &error);
        let file = match File::open(path).await {
            Ok(file) => file,
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().await.map_err(failed)?;
        if !metadata.is_file() || metadata.len() > FILE_MAX_BYTES {
            return Ok(None);
        }
        let modified = metadata.modified().map_err(failed)?;
        let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_map = path.extension().is_some_and(|extension| extension == "map");
        Ok(Some(Self {
            file,
            len: metadata.len(),
            modified_nanos: u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX),
            content_type: if is_map { SOURCE_MAP } else { SCRIPT },
        }))
    }

    /// The response: `head`, then the file, as long as it was when it was opened.
    pub fn send(self, head: Bytes) -> Response {
        let length = self.len + u64::try_from(head.len()).unwrap_or(0);
        let head = futures::stream::iter((!head.is_empty()).then_some(Ok(head)));
        let pieces = ReaderStream::with_capacity(self.file.take(self.len), PIECE_BYTES);
        let body = futures::StreamExt::chain(head, pieces.err_into());
        Response::sized_stream(StatusCode::OK, self.content_type, length, body)
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn only_plain_names_of_scripts_reach_the_disk() {
        let name = |version, file| Some(Name { version, file });
        for (path, expected) in [
            ("array.js", name(None, "array.js")),
            ("array.full.no-external.js", name(None, "array.full.no-external.js")),
            ("web-vitals.js.map", name(None, "web-vitals.js.map")),
            ("1.449.2/recorder.js", name(Some("1.449.2"), "recorder.js")),
            ("1.449.2-beta.1/recorder.js", name(Some("1.449.2-beta.1"), "recorder.js")),
            ("", None),
            (".js", None),
            ("..", None),
            ("../secret.js", None),
            ("./array.js", None),
            ("1.2/../array.js", None),
            ("a/b/c.js", None),
            ("a//c.js", None),
            ("/etc/passwd.js", None),
            ("..%2fsecret.js", None),
            ("%2e%2e/secret.js", None),
            ("..\\secret.js", None),
            (".hidden.js", None),
            ("array.js\0", None),
            ("array.js/", None),
            ("array.js%00", None),
            ("package.json", None),
            ("module.d.ts", None),
            ("array", None),
            ("\u{fc}.js", None),
            ("a b.js", None),
        ] {
            assert_eq!(Name::parse(path), expected, "{path}");
        }
    }
}
