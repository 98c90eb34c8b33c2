//! CPU time and peak memory of another process, from Linux's `/proc`. Fails on other systems.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use weir_base::telemetry::process::kibibytes;

/// Length of a tick of `/proc/<pid>/stat`: `USER_HZ` is 100 on every architecture that Weir supports,
/// whatever the kernel's own `HZ` (`proc_pid_stat(5)`, `include/asm-generic/param.h`).
const TICK: Duration = Duration::from_millis(10);

/// CPU time and memory of a process since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// User and system time of all threads, those that ended included.
    pub(super) cpu: Duration,
    /// Largest resident set so far, in bytes.
    pub(super) peak_rss_bytes: u64,
}

/// CPU time and memory of a process during a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Used {
    /// CPU seconds, user and system, resolution 0.01.
    pub(super) cpu_seconds: f64,
    /// Largest resident set since the start of the process, in bytes.
    pub(super) peak_rss_bytes: u64,
}

impl Usage {
    /// Reads the usage of process `pid`.
    ///
    /// # Errors
    ///
    /// There is no process with this id, its files may not be read, or the system is not Linux.
    pub(super) fn read(pid: u32) -> anyhow::Result<Self> {
        let directory = PathBuf::from(format!("/proc/{pid}"));
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let (stat, status) = (read("stat")?, read("status")?);
        Ok(Self {
            cpu: cpu(&stat).context("find the times in /proc/<pid>/stat")?,
            peak_rss_bytes: kibibytes(&status, "VmHWM:")
                .context("find VmHWM in /proc/<pid>/status")?,
        })
    }

    pub(super) fn since(&self, before: &Self) -> Used {
        let cpu_seconds = self.cpu.saturating_sub(before.cpu).as_secs_f64();
        Used { cpu_seconds, peak_rss_bytes: self.peak_rss_bytes }
    }
}

/// Fields 14 and 15, `utime` and `stime`. Field 2 is the name in parentheses, which may itself
/// hold blanks and parentheses: count from its end.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    TICK.checked_mul(user.checked_add(system)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Usage, cpu};

    /// The line is the example of `proc_pid_stat(5)` in layout: 52 fields, `utime` 250, `stime` 30.
    #[test]
    fn reads_times_behind_any_name() {
        for name in ["weir", "we ir", "w) 9 9 (x"] {
            let stat = format!(
                "77 ({name}) S 1 77 77 0 -1 4194560 1000 0 0 0 250 30 7 8 20 0 9 0 5000 1 2"
            );
            assert_eq!(cpu(&stat), Some(Duration::from_millis(2_800)), "{name}");
        }
        for stat in ["", "77 (weir", "77 (weir) S 1 77", "77 (weir) S 1 2 3 4 5 6 7 8 9 10 x 1"] {
            assert_eq!(cpu(stat), None, "{stat}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn reads_this_process() {
        let usage = Usage::read(std::process::id()).unwrap();
        assert!(usage.peak_rss_bytes > 100_000);
        assert!(Usage::read(u32::MAX).is_err());
    }
}
