//! Static style sheets and scripts, embedded in the binary. The name of each contains a hash of its content, so that
//! browsers may cache it for ever. Gzip is computed once.

#![expect(
    clippy::disallowed_types,
    reason = "a pure function of files in the program, computed once: no state that a handle could differ in"
)]

use std::io::Write as _;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Path prefix of the assets.
pub const PREFIX: &str = "/assets/";

/// Digits of the content hash in a file name.
const HASH_DIGITS: usize = 12;

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Name, extension, media type, content.
const FILES: &[(&str, &str, &str, &[u8])] = &[
    ("weir", "css", CSS, include_bytes!("assets/weir.css")),
    ("charts", "css", CSS, include_bytes!("assets/charts.css")),
    ("page", "js", JAVASCRIPT, include_bytes!("assets/page.js")),
    ("live", "js", JAVASCRIPT, include_bytes!("assets/live.js")),
    ("swap", "js", JAVASCRIPT, include_bytes!("assets/swap.js")),
    ("hover", "js", JAVASCRIPT, include_bytes!("assets/hover.js")),
    ("sql", "js", JAVASCRIPT, include_bytes!("assets/sql.js")),
    ("icon", "svg", SVG, include_bytes!("assets/icon.svg")),
];

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| FILES.iter().map(Asset::of).collect());

/// One static file.
#[derive(Debug)]
pub struct Asset {
    source: String,
    /// The path, with the hash.
    pub path: String,
    /// The media type.
    pub media_type: &'static str,
    /// The content.
    pub bytes: &'static [u8],
    /// The content, compressed by gzip.
    pub gzip: Vec<u8>,
}

impl Asset {
    fn of(
        (stem, extension, media_type, bytes): &(&str, &str, &'static str, &'static [u8]),
    ) -> Self {
        let mut hash = hex::encode(Sha256::digest(bytes));
        hash.truncate(HASH_DIGITS);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to a vector does not fail.
        let gzip = encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default();
        let source = format!("{stem}.{extension}");
        let path = format!("{PREFIX}{stem}-{hash}.{extension}");
        Self { source, path, media_type, bytes, gzip }
    }
}

/// The path of the file that is named so in the source, such as `weir.css`.
pub fn path(source: &str) -> &'static str {
    ASSETS.iter().find(|asset| asset.source == source).map_or("", |asset| &asset.path)
}

/// The file of a path.
pub fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::{ASSETS, find, path};

    /// Sum of the compressed sizes of all style sheets and of all scripts.
    const STYLE_MAX_BYTES: usize = 8 << 10;
    const SCRIPTS_MAX_BYTES: usize = 12 << 10;

    #[test]
    fn files_are_found_by_their_path_only() {
        for asset in ASSETS.iter() {
            assert_eq!(path(&asset.source), asset.path);
            assert_eq!(find(&asset.path).map(|found| found.bytes), Some(asset.bytes));
            assert!(!asset.gzip.is_empty(), "{}", asset.path);
        }
        for path in ["", "/assets/", "/assets/weir.css", "/assets/../Cargo.toml"] {
            assert!(find(path).is_none(), "{path}");
        }
    }

    #[test]
    fn files_are_small_and_load_nothing() {
        let size = |extension: &str| -> usize {
            let own = ASSETS.iter().filter(|asset| asset.path.ends_with(extension));
            own.map(|asset| asset.gzip.len()).sum()
        };
        assert!(size(".css") < STYLE_MAX_BYTES, "{}", size(".css"));
        assert!(size(".js") < SCRIPTS_MAX_BYTES, "{}", size(".js"));
        for asset in ASSETS.iter() {
            let text = String::from_utf8_lossy(asset.bytes);
            for part in ["@import", "url(http", "eval(", "new Function", "document.write", "//cdn"]
            {
                assert!(!text.contains(part), "{}: {part}", asset.source);
            }
        }
    }
}
