//! What the machine says about processes: CPU time and memory of a server and its children, and who listens on a port.
//!
//! Read from `/proc`; where there is none, nothing is known.

use std::fs;
use std::time::Duration;

/// CPU time of a process and all its descendants that live; `None` when there is no such process.
pub fn tree_cpu(pid: u32) -> Option<Duration> {
    let own = cpu(pid)?;
    Some(descendants(pid).into_iter().filter_map(cpu).sum::<Duration>() + own)
}

/// Resident bytes of a process and its descendants; shared pages count once per process.
pub fn tree_rss(pid: u32) -> Option<u64> {
    let own = rss(pid)?;
    Some(descendants(pid).into_iter().filter_map(rss).sum::<u64>() + own)
}

/// The process that listens on this port of this machine, as far as we may look.
pub fn listener_pid(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines());
    let inodes = lines.filter_map(|line| listening_inode(line, port));
    let sockets: Vec<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?;
    processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
    })
}

/// The inode in a line of `/proc/net/tcp` if that socket listens on `port`.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace();
    let (local, state) = (fields.nth(1)?, fields.nth(1)?);
    let (_, hex) = local.rsplit_once(':')?;
    (state == LISTEN && u16::from_str_radix(hex, 16) == Ok(port)).then_some(())?;
    fields.nth(5)
}

fn descendants(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut all = Vec::new();
    for task in tasks {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in text.split_whitespace().filter_map(|text| text.parse().ok()) {
            all.push(child);
            all.extend(descendants(child));
        }
    }
    all
}

fn cpu(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    ticks(&text).map(|ticks| Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// User and system time in a line of `/proc/<pid>/stat`: fields 14 and 15.
fn ticks(stat: &str) -> Option<u64> {
    // The command's name may hold spaces and parentheses: fields are counted after its last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let (user, system) = (fields.nth(11)?, fields.next()?);
    Some(user.parse::<u64>().ok()? + system.parse::<u64>().ok()?)
}

fn rss(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_read() {
        let line = "  0: 0100007F:2105 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100";
        assert_eq!(listening_inode(line, 0x2105), Some("4711"));
        assert_eq!(listening_inode(line, 80), None);
        assert_eq!(listening_inode(&line.replace(" 0A ", " 01 "), 0x2105), None);
        assert_eq!(listening_inode("", 80), None);
        let stat = "12 (a (b) c) S 1 12 12 0 -1 4194560 2 0 0 0 30 12 7 5 20 0 1 0 99";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("12"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_figures_and_ports() {
        let pid = std::process::id();
        assert!(tree_cpu(pid).is_some() && tree_rss(pid).is_some_and(|bytes| bytes > 1 << 16));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listener_pid(listener.local_addr().unwrap().port()), Some(pid));
    }
}
