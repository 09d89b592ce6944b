//! What the machine says: memory and CPU time of processes, foreign load, where models lie.

use std::fs;
use std::path::PathBuf;

/// Folder of the fetched models.
pub(crate) fn model_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("SUPERFLUID_MODELS") {
        return dir.into();
    }
    cache_dir().join("models")
}

/// `~/.cache/superfluid`.
pub(crate) fn cache_dir() -> PathBuf {
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into());
    PathBuf::from(home).join(".cache/superfluid")
}

/// Resident bytes of a process and its children, shared pages counted once per process.
pub(crate) fn tree_rss_bytes(pid: u32) -> u64 {
    children(pid).into_iter().chain([pid]).map(|pid| status_kib(pid, "VmRSS:") * 1024).sum()
}

/// Threads of a process.
pub(crate) fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// CPU time of a process and its children in seconds.
pub(crate) fn tree_cpu_seconds(pid: u32) -> f64 {
    children(pid).into_iter().chain([pid]).map(cpu_seconds).sum()
}

/// CPU time of one process without its children, seconds. By the scheduler's nanoseconds of every living thread, where
/// the kernel keeps them; else in ticks of 10 ms.
pub(crate) fn process_cpu_seconds(pid: u32) -> f64 {
    let nanoseconds = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    match tasks.flatten().map(nanoseconds).sum::<Option<u64>>() {
        Some(sum) if sum > 0 => sum as f64 / 1e9,
        _ => cpu_seconds(pid),
    }
}

/// CPUs that this process may use.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Memory of the machine, MiB.
pub(crate) fn memory_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    kib_of(&text, "MemTotal:") / 1024
}

/// Release of the kernel.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// One-minute load average.
pub(crate) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Model name of the CPU.
pub(crate) fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    line.split(": ").nth(1).unwrap_or("unknown").to_owned()
}

/// Children of a process and their children.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task");
    let Ok(tasks) = fs::read_dir(path) else { return Vec::new() };
    let mut all = Vec::new();
    for task in tasks.flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in text.split_whitespace().filter_map(|text| text.parse().ok()) {
            all.push(child);
            all.extend(children(child));
        }
    }
    all
}

fn status_kib(pid: u32, key: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    kib_of(&text, key)
}

fn kib_of(text: &str, key: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn cpu_seconds(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command's name may hold spaces: fields are counted after its closing parenthesis.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // utime and stime are fields 14 and 15; Linux reports them in 1/100 s on every architecture we run on.
    (ticks(11) + ticks(12)) / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_work_shows_in_our_cpu_time() {
        let pid = std::process::id();
        let before = process_cpu_seconds(pid);
        let mut sum = 0u64;
        while process_cpu_seconds(pid) <= before {
            sum = std::hint::black_box(sum.wrapping_mul(31) + 1);
        }
        assert!(tree_rss_bytes(pid) > 1 << 20 && memory_mib() > 16 && cpus() > 0);
    }
}
