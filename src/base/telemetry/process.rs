//! Memory of this process, from Linux's `/proc`: [`memory`]; parser for lines of its files: [`kibibytes`].

use std::fs;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Size of the resident set.
    pub resident_bytes: u64,
    /// Memory limit: the smallest one of its control groups (version 2), or the memory of the machine.
    pub limit_bytes: u64,
}

/// The memory of this process; `None` where the system does not report it.
pub fn memory() -> Option<Memory> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let resident_bytes = kibibytes(&read("/proc/self/status")?, "VmRSS:")?;
    let machine = kibibytes(&read("/proc/meminfo")?, "MemTotal:")?;
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let group = group_limit(&groups, |group| read(&format!("/sys/fs/cgroup{group}/memory.max")));
    Some(Memory { resident_bytes, limit_bytes: group.unwrap_or(u64::MAX).min(machine) })
}

/// The smallest memory limit of the control group in the text of `/proc/self/cgroup` and of its ancestors; `read`
/// returns the text of a group's limit. A service of systemd has its limit in `/system.slice/weir.service`, a container
/// in the root that it sees.
fn group_limit(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let parents = own.match_indices('/').filter_map(|(end, _)| own.get(..end));
    let whole = parents.chain(Some(own.trim_end_matches('/')));
    // The text of a group without a limit is `max`.
    whole.filter_map(|group| read(group)?.trim().parse().ok()).min()
}

/// The bytes in the line of a text that begins with `name`, such as `VmRSS:     1024 kB`.
pub fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{group_limit, kibibytes, memory};

    #[test]
    fn lines_are_read_by_name() {
        let text = "VmHWM:\t  9 kB\nVmRSS:\t   1024 kB\nVmData: x kB\n";
        assert_eq!(kibibytes(text, "VmRSS:"), Some(1 << 20));
        for name in ["VmData:", "RSS:", "VmSwap:"] {
            assert_eq!(kibibytes(text, name), None, "{name}");
        }
        let status = "Name:\tweir\nVmHWM:\t  204800 kB\nVmRSS:\t 1 kB\n";
        assert_eq!(kibibytes(status, "VmHWM:"), Some(209_715_200));
        for status in ["", "VmRSS:\t 1 kB\n", "VmHWM:\t 1 MB\n"] {
            assert_eq!(kibibytes(status, "VmHWM:"), None, "{status}");
        }
    }

    #[test]
    fn the_narrowest_group_counts() {
        let limits = |group: &str| {
            let limit = match group {
                "" => "9000\n",
                "/system.slice" => "max\n",
                "/system.slice/weir.service" => "4096\n",
                "/tight/wide" => "8192\n",
                "/tight" => "1024\n",
                _ => return None,
            };
            Some(limit.to_owned())
        };
        for (groups, expected) in [
            ("0::/system.slice/weir.service\n", Some(4096)),
            ("1:cpu:/x\n0::/tight/wide\n", Some(1024)),
            ("0::/\n", Some(9000)),
            ("0::/unknown\n", Some(9000)),
            ("1:memory:/tight\n", None),
            ("", None),
        ] {
            assert_eq!(group_limit(groups, limits), expected, "{groups}");
        }
        assert_eq!(group_limit("0::/a\n", |_| None), None);
    }

    #[test]
    fn this_process_uses_memory() {
        let own = memory().unwrap();
        assert!(own.resident_bytes > 100_000 && own.resident_bytes < own.limit_bytes, "{own:?}");
    }
}
