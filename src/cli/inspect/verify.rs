//! `weir inspect --verify`: prints what a check of the data directory says, and fails if it finds damage.

use std::io::Write;
use std::path::Path;

use anyhow::bail;

use crate::app::lock::DirectoryLock;
use crate::app::lock::Holder;
use crate::app::verify::Line;
use crate::app::verify::Use;
use crate::app::verify::verify;
use crate::cli::small_runtime;
use crate::clock::Clock;

/// Checks and prints.
///
/// # Errors
///
/// There is damage, or the directory cannot be read.
pub(super) fn run(data_dir: &Path, clock: &Clock) -> anyhow::Result<()> {
    // Held until the end: nobody begins to write meanwhile.
    let holder = DirectoryLock::take(data_dir)?;
    let directory_use = match &holder {
        Holder::Nobody(_) => Use::Idle,
        Holder::Server(_) | Holder::Unknown => Use::Served,
    };
    let runtime = small_runtime()?;
    let mut out = std::io::stdout().lock();
    let mut findings = 0_u64;
    verify(data_dir, directory_use, (runtime.handle(), clock), &mut |line| match line {
        Line::Checked(text) => writeln!(out, "checked   {text}"),
        Line::Skipped(text) => writeln!(out, "skipped   {text}"),
        Line::Finding(text) => {
            findings += 1;
            writeln!(out, "DAMAGED   {text}")
        }
    })?;
    drop(holder);
    if findings > 0 {
        bail!("{findings} findings of damage in {}", data_dir.display());
    }
    writeln!(out, "no damage found")?;
    Ok(())
}
