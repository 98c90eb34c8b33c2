//! Memory of this process, from Linux's `/proc`: [`memory`].

use std::fs;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Its resident set.
    pub resident_bytes: u64,
    /// What it may use: the limit of its control group, or the memory of the machine.
    pub limit_bytes: u64,
}

/// The memory of this process; `None` where the system does not tell.
pub fn memory() -> Option<Memory> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let resident_bytes = kibibytes(&read("/proc/self/status")?, "VmRSS:")?;
    let machine = kibibytes(&read("/proc/meminfo")?, "MemTotal:")?;
    // A group without a limit says `max`.
    let group = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    Some(Memory { resident_bytes, limit_bytes: group.unwrap_or(u64::MAX).min(machine) })
}

/// The bytes of a line such as `VmRSS:     1024 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::kibibytes;
    use super::memory;

    #[test]
    fn lines_are_read_by_name() {
        let text = "VmHWM:\t  9 kB\nVmRSS:\t   1024 kB\nVmData: x kB\n";
        assert_eq!(kibibytes(text, "VmRSS:"), Some(1 << 20));
        for name in ["VmData:", "RSS:", "VmSwap:"] {
            assert_eq!(kibibytes(text, name), None, "{name}");
        }
    }

    #[test]
    fn this_process_uses_memory() {
        let own = memory().unwrap();
        assert!(own.resident_bytes > 100_000 && own.resident_bytes < own.limit_bytes, "{own:?}");
    }
}
