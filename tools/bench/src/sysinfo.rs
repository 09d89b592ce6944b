//! What the machine says: memory of a process tree, foreign load, where models lie.

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

/// CPU time of a process and its children in seconds.
pub(crate) fn tree_cpu_seconds(pid: u32) -> f64 {
    children(pid).into_iter().chain([pid]).map(cpu_seconds).sum()
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

fn children(pid: u32) -> Vec<u32> {
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
