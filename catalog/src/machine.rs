//! What this machine is, as far as runtimes may require it: system, architecture, CPU features, kernel.

use std::collections::BTreeSet;

/// This machine, or one that a test makes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// As in `std::env::consts::OS`.
    pub os: String,
    /// As in `std::env::consts::ARCH`.
    pub arch: String,
    /// CPU features by their `/proc/cpuinfo` names.
    pub cpu: BTreeSet<String>,
    /// Kernel release; a probe's answer is not believed under another one.
    pub kernel: String,
    /// Variables that change which devices a runtime sees, and their values.
    pub visibility: Vec<(String, String)>,
}

/// Variables that hide devices from a runtime.
pub(crate) const VISIBILITY: &[&str] =
    &["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

impl Machine {
    /// The machine we run on.
    pub fn here() -> Self {
        Machine {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            cpu: cpu_features(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            visibility: Vec::new(),
        }
    }
}

/// Linux lists the features of the first CPU under `flags` (x86) or `Features` (ARM).
#[cfg(any(target_os = "linux", target_os = "android"))]
fn cpu_features() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name.trim(), "flags" | "Features").then_some(value)
    });
    line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Elsewhere the compiler's own detection stands in, for the features that engines ask for.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn cpu_features() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    #[cfg(target_arch = "x86_64")]
    {
        let known = [
            ("sse4_2", std::is_x86_feature_detected!("sse4.2")),
            ("avx", std::is_x86_feature_detected!("avx")),
            ("avx2", std::is_x86_feature_detected!("avx2")),
            ("fma", std::is_x86_feature_detected!("fma")),
            ("f16c", std::is_x86_feature_detected!("f16c")),
            ("bmi2", std::is_x86_feature_detected!("bmi2")),
            ("avx512f", std::is_x86_feature_detected!("avx512f")),
        ];
        found.extend(known.into_iter().filter(|(_, has)| *has).map(|(name, _)| name.to_owned()));
    }
    #[cfg(target_arch = "aarch64")]
    found.extend(["asimd", "fp"].map(str::to_owned));
    found
}

/// Whether this process has more rights than the user who started it, so that the environment must not be believed.
pub fn elevated() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    at_secure() || getuid() != geteuid() || getgid() != getegid()
}

/// The kernel's own word on it, from the auxiliary vector: pairs of words, 23 = `AT_SECURE`.
#[cfg(target_os = "linux")]
fn at_secure() -> bool {
    const AT_SECURE: usize = 23;
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| usize::from_ne_bytes(bytes.try_into().expect("chunks of a word"));
    let Ok(vector) = std::fs::read("/proc/self/auxv") else { return false };
    let mut pairs = vector.chunks_exact(2 * WORD);
    pairs.any(|pair| word(&pair[..WORD]) == AT_SECURE && word(&pair[WORD..]) != 0)
}

#[cfg(not(target_os = "linux"))]
fn at_secure() -> bool {
    false
}
