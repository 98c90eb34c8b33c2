//! `weir inspect --verify`: verifies the checksums of a data directory, prints one line per finding, and
//! fails if there is damage.

use std::io::Write;
use std::path::Path;

use anyhow::{anyhow, bail};

use crate::cli::failure::explain;
use crate::cli::inspect::tables::tables_of;
use crate::cli::runtime::small_runtime;
use weir_app::copy::{CopyError, Source};
use weir_app::verify::{Directory, Line, Use, verify};
use weir_base::clock::Clock;
use weir_base::config::metadata::MetadataConfig;

/// Verifies the directory and prints the findings.
///
/// # Errors
///
/// There is damage, a newer version made the directory, or it cannot be read.
pub(super) fn run(data_dir: &Path, metadata: &MetadataConfig, clock: &Clock) -> anyhow::Result<()> {
    let source = match Source::find(data_dir) {
        // A server is starting or ending.
        Err(CopyError::Busy(_)) => None,
        found => Some(found?),
    };
    // The engines write to the directory they open, so they open the copy.
    let copy = match &source {
        Some(Source::Copy(copy)) => Some(copy),
        Some(Source::Server(_)) | None => None,
    };
    let (root, directory_use) = match copy {
        Some(copy) => (copy.path(), Use::Idle),
        None => (data_dir, Use::Served),
    };
    let named = |text: String| match copy {
        Some(copy) => copy.named(&text),
        None => text,
    };
    let runtime = small_runtime()?;
    let mut out = std::io::stdout().lock();
    let (mut findings, mut newer) = (0_u64, 0_u64);
    let tables = runtime.block_on(tables_of(root, clock));
    let tables = tables.map_err(|error| anyhow!(named(explain(&error))))?;
    let directory = Directory { path: root, tables: &tables, directory_use, metadata };
    let verified = verify(&directory, runtime.handle(), clock, &mut |line| match line {
        Line::Checked(text) => writeln!(out, "checked   {}", named(text)),
        Line::Skipped(text) => writeln!(out, "skipped   {}", named(text)),
        Line::Finding(text) => {
            findings += 1;
            writeln!(out, "DAMAGED   {}", named(text))
        }
        Line::Newer(text) => {
            newer += 1;
            writeln!(out, "newer     {}", named(text))
        }
    });
    verified.map_err(|error| anyhow!(named(explain(&error.into()))))?;
    if findings > 0 {
        bail!("{findings} findings of damage in {}", data_dir.display());
    }
    if newer > 0 {
        bail!("{} was made by a newer Weir; verify it with that version", data_dir.display());
    }
    writeln!(out, "no damage found")?;
    Ok(())
}
