//! How much memory a run may take: sizes as people write them, and what there is.

use std::fs;
use std::path::Path;
use std::str::FromStr;

/// A number of bytes that a run's state may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemorySize(u64);

const MEBIBYTE: u64 = 1 << 20;

/// What is taken for the machine's memory where it does not tell.
const ASSUMED_BYTES: u64 = 4 << 30;

/// What a cgroup without a limit may still give as one is beyond any machine.
const NO_LIMIT: u64 = 1 << 60;

impl MemorySize {
    /// The least that a run gets along with at a decent pace: 16 MiB.
    pub const LEAST: Self = Self(16 * MEBIBYTE);

    /// So many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// A quarter of the memory that there is for this process: the machine's, or what its cgroup leaves of that.
    #[must_use]
    pub fn quarter_of_machine() -> Self {
        let all = memory_below(Path::new("/")).unwrap_or(ASSUMED_BYTES);
        Self(all / 4).max(Self::LEAST)
    }
}

impl FromStr for MemorySize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("'{text}' is not a size such as 512M, 2G, 1GiB or a number of bytes");
        let letters = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(letters);
        let unit: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(invalid()),
        };
        let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(invalid)?;
        match Self(size) {
            size if size < Self::LEAST => Err(format!("'{text}' is too little to work with: give at least 16M")),
            size => Ok(size),
        }
    }
}

/// The memory that there is, by what Linux tells below a root folder; `None` where it tells nothing.
fn memory_below(root: &Path) -> Option<u64> {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| total_of(&text));
    machine.into_iter().chain(cgroup_limits(root)).filter(|bytes| (1..NO_LIMIT).contains(bytes)).min()
}

/// `MemTotal:       24601816 kB`, in bytes.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Limits of this process's cgroup and of those around it, of either version (cgroups(7)). Inside a container the folders
/// of the outer ones may not be there.
fn cgroup_limits(root: &Path) -> Vec<u64> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut limits = Vec::new();
    for membership in memberships.lines() {
        let mut parts = membership.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (mount, files): (_, &[&str]) = if controllers.is_empty() {
            (root.join("sys/fs/cgroup"), &["memory.max", "memory.high"])
        } else if controllers.split(',').any(|controller| controller == "memory") {
            (root.join("sys/fs/cgroup/memory"), &["memory.limit_in_bytes"])
        } else {
            continue;
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let limit = |file| fs::read_to_string(mount.join(group).join(file)).ok()?.trim().parse::<u64>().ok();
            limits.extend(files.iter().filter_map(limit));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        let sizes = [
            ("512M", 512 << 20),
            ("512MiB", 512 << 20),
            ("2G", 2 << 30),
            ("1gib", 1 << 30),
            ("20000K", 20_000 << 10),
            ("1T", 1 << 40),
            ("100MB", 100_000_000),
            ("16777216", 16 << 20),
            ("16777216B", 16 << 20),
        ];
        for (text, bytes) in sizes {
            assert_eq!(text.parse(), Ok(MemorySize(bytes)), "{text}");
        }
        for text in ["", "M", "-1G", "1.5G", "1 G", "many", "1X", "1GG", "99999999999T", "１G"] {
            assert!(text.parse::<MemorySize>().unwrap_err().contains("is not a size"), "{text}");
        }
        for text in ["0", "1M", "16777215"] {
            assert!(text.parse::<MemorySize>().unwrap_err().contains("at least 16M"), "{text}");
        }
    }

    #[test]
    fn the_least_limit_of_machine_and_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = || memory_below(root.path());
        assert_eq!(found(), None);
        write("proc/meminfo", "MemTotal:       24601816 kB\nMemFree:        1 kB\n");
        assert_eq!(found(), Some(24_601_816 * 1024));
        // Version 1, where no limit is a huge one.
        write("proc/self/cgroup", "12:cpu,cpuacct:/a\n4:memory:/a/b\n");
        write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found(), Some(24_601_816 * 1024));
        write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4000000000\n");
        assert_eq!(found(), Some(4_000_000_000));
        // Version 2, from inside a container that does not see the folders of its path.
        write("proc/self/cgroup", "0::/system.slice/one.scope\n");
        write("sys/fs/cgroup/memory.max", "max\n");
        assert_eq!(found(), Some(24_601_816 * 1024));
        write("sys/fs/cgroup/memory.max", "2000000000\n");
        assert_eq!(found(), Some(2_000_000_000));
        write("sys/fs/cgroup/system.slice/one.scope/memory.high", "1000000000\n");
        assert_eq!(found(), Some(1_000_000_000));
    }

    #[test]
    fn there_is_always_enough_to_begin_with() {
        assert!(MemorySize::quarter_of_machine() >= MemorySize::LEAST);
    }
}
