//! What the machine has, where the system tells.

/// CPUs that this process may use, at most 512.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get().min(512)).expect("at most 512"))
}

/// Bytes of memory.
pub fn memory_total() -> Option<u64> {
    meminfo("MemTotal:")
}

/// Bytes that can be had without swapping.
pub fn memory_available() -> Option<u64> {
    meminfo("MemAvailable:")
}

fn meminfo(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
