//! Builds the llama.cpp runtime once per kind of machine and places it beside our binaries.
//!
//! The build lies in a cache directory outside the clone, named by everything that the compiled engine depends on:
//! another clone, branch or `cargo clean` finds it there and compiles our thin layer only.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};
use serde_json::value::RawValue;
use sf_abi::descriptor::{LibraryEntry, Manifest};

use crate::error::TaskError;
use crate::tree::{self, Tree};
use crate::{hash, mlx, shell};

const PACKAGE: &str = "sf-runtime-llamacpp";
const SYS_CRATE: &str = "llama-cpp-sys-2";
const ID: &str = "llamacpp";

/// Our crates in the runtime, and where they lie.
const OWN_CRATES: &[(&str, &str)] =
    &[(PACKAGE, "runtimes/llamacpp"), ("sf-abi", "abi"), ("sf-abi-sdk", "abi/sdk")];

/// Variables that the engine's build script passes on to its own build: another value is another engine.
const FORWARDED: &[&str] = &["GGML_", "LLAMA_", "CMAKE_", "CC", "CXX", "CFLAGS", "CXXFLAGS"];

/// llama.cpp's own default optimisation, which its users measure against: without it our profile's debug information
/// makes its build script choose -O2, and decoding is a third slower.
const LIB_PROFILE: (&str, &str) = ("LLAMA_LIB_PROFILE", "Release");

/// At -O3 gcc 12 drops stores of the AMX tile configuration as dead (`_tile_loadconfig` tells it of eight bytes only),
/// and the engine dies of SIGILL on CPUs that have AMX.
const AMX_FLAG: &str = "-fno-dse";

/// Which engine to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    LlamaCpp,
    Mlx,
    Basert,
}

/// What to build and where to put it.
pub(crate) struct Options {
    pub(crate) which: Which,
    /// For any machine of this architecture instead of for this very one.
    pub(crate) portable: bool,
    /// With the MLX that uses NVIDIA's GPUs.
    pub(crate) cuda: bool,
    /// `debug`, `release`: which of our target directories get the runtime.
    pub(crate) profiles: Vec<&'static str>,
    /// Only say where the engine is built.
    pub(crate) only_where: bool,
}

impl Options {
    /// Reads the arguments of `cargo xtask engine`.
    pub(crate) fn parse(args: &[&str]) -> Result<Self, TaskError> {
        let profiles = vec!["debug", "release"];
        let which = Which::LlamaCpp;
        let mut options = Self { which, portable: false, cuda: false, profiles, only_where: false };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match *arg {
                "llamacpp" => options.which = Which::LlamaCpp,
                "mlx" => options.which = Which::Mlx,
                "basert" => options.which = Which::Basert,
                "--portable" => options.portable = true,
                "--cuda" => options.cuda = true,
                "--where" => options.only_where = true,
                "--profile" => {
                    options.profiles = match args.next() {
                        Some(&"debug" | &"dev") => vec!["debug"],
                        Some(&"release") => vec!["release"],
                        other => {
                            let given = other.copied().unwrap_or("nothing");
                            return Err(TaskError::Usage(format!(
                                "--profile takes debug or release, not {given}"
                            )));
                        }
                    }
                }
                other => return Err(TaskError::Usage(format!("engine takes no argument {other}"))),
            }
        }
        if options.which != Which::LlamaCpp && options.portable {
            let words = "this runtime chooses its kernels when it is loaded: it is portable as it is";
            return Err(TaskError::Usage(words.into()));
        }
        if options.which != Which::Mlx && options.cuda {
            let words = "this runtime is built for the CPU so far: --cuda is for engine mlx";
            return Err(TaskError::Usage(words.into()));
        }
        Ok(options)
    }

    /// For this machine, beside the binaries of one profile.
    pub(crate) fn native(which: Which, profile: &'static str) -> Self {
        Self { which, portable: false, cuda: false, profiles: vec![profile], only_where: false }
    }
}

/// Builds (or finds built) and places the runtime.
pub(crate) fn run(tree: &Tree, options: &Options) -> Result<(), TaskError> {
    match options.which {
        Which::LlamaCpp => llamacpp(tree, options),
        Which::Mlx => mlx::engine(tree, options),
        Which::Basert => basert(tree, options),
    }
}

/// Our own engine is a crate like any other. It is built with optimisation for both profiles: half of it is kernels.
fn basert(tree: &Tree, options: &Options) -> Result<(), TaskError> {
    let name = format!("{}superfluid_basert{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let library = tree.target().join("release").join(name);
    if options.only_where {
        println!("{}", library.display());
        return Ok(());
    }
    shell::run(shell::cargo(tree.root()).args([
        "build",
        "--release",
        "--locked",
        "--lib",
        "-p",
        "sf-runtime-basert",
    ]))?;
    let folders = options.profiles.iter().map(|profile| tree.target().join(profile).join("runtimes/basert"));
    folders.into_iter().try_for_each(|folder| place(&library, &folder))
}

fn llamacpp(tree: &Tree, options: &Options) -> Result<(), TaskError> {
    let engine = Engine::find(tree, options.portable)?;
    if options.only_where {
        println!("{}", engine.dir.display());
        return Ok(());
    }
    eprintln!("engine directory: {}", engine.dir.display());
    engine.distrust_another_clone(tree)?;
    // Tests compare the server's answers with the engine's own, which this example prints.
    let reference: &[&str] =
        if options.profiles.contains(&"debug") { &["--example", "reference"] } else { &[] };
    let build = ["build", "--release", "--locked", "--lib", "-p", PACKAGE];
    shell::run(engine.cargo(tree).args(build).args(reference))?;
    for profile in &options.profiles {
        let target = tree.target().join(profile);
        place(&engine.library(), &target.join("runtimes").join(ID))?;
        if *profile == "debug" {
            let from = engine.dir.join("release/examples/reference");
            fs::copy(&from, target.join("llamacpp-reference")).map_err(TaskError::io(&from))?;
        }
    }
    Ok(())
}

/// Runs the runtime's own benchmark. Plain `cargo bench` would build llama.cpp for any machine, at half the speed.
pub(crate) fn throughput(tree: &Tree, args: &[&str]) -> Result<(), TaskError> {
    if args.is_empty() {
        return Err(TaskError::Usage("throughput takes a model, and key=number as its source says".into()));
    }
    let engine = Engine::find(tree, false)?;
    engine.distrust_another_clone(tree)?;
    let bench = ["bench", "--profile", "release", "--locked", "-p", PACKAGE, "--bench", "throughput", "--"];
    shell::run(engine.cargo(tree).args(bench).args(args))
}

/// A keyed directory in which one kind of engine is built.
pub(crate) struct Engine {
    dir: PathBuf,
    portable: bool,
}

impl Engine {
    /// The directory for this machine, or for any.
    pub(crate) fn find(tree: &Tree, portable: bool) -> Result<Self, TaskError> {
        let parent = match std::env::var("SUPERFLUID_ENGINE_CACHE") {
            Ok(off) if off == "off" => tree.target().join("engines"),
            _ => tree::cache("SUPERFLUID_ENGINE_CACHE", "engines")?,
        };
        Ok(Self { dir: parent.join(key(&ingredients(tree, portable)?)), portable })
    }

    /// Cargo with the engine's own target directory and instruction set.
    pub(crate) fn cargo(&self, tree: &Tree) -> Command {
        let mut cargo = shell::cargo(tree.root());
        cargo.env("CARGO_TARGET_DIR", &self.dir).env_remove("CARGO_ENCODED_RUSTFLAGS");
        cargo.env("RUSTFLAGS", if self.portable { "" } else { "-C target-cpu=native" });
        cargo.env(LIB_PROFILE.0, LIB_PROFILE.1);
        if cfg!(target_arch = "x86_64") {
            let flags = std::env::var("CXXFLAGS").unwrap_or_default();
            cargo.env("CXXFLAGS", format!("{flags} {AMX_FLAG}").trim_start());
        }
        cargo
    }

    /// Cargo tells our own crates apart by paths relative to the workspace and by file times, so that another clone
    /// with other sources and older files would be given this one's build. What the directory holds is remembered;
    /// when it came from elsewhere and differs, our crates (never the engine's sources) are built again.
    fn distrust_another_clone(&self, tree: &Tree) -> Result<(), TaskError> {
        let stamp = self.dir.join("built-from");
        let sources = format!("{}\n{}\n", tree.root().display(), own_sources(tree)?);
        let before = fs::read_to_string(&stamp).unwrap_or_default();
        if !same_build(&before, &sources) && self.dir.join("release").exists() {
            let packages = OWN_CRATES.iter().flat_map(|(package, _)| ["-p", *package]);
            shell::run(self.cargo(tree).args(["clean", "--release"]).args(packages))?;
        }
        fs::create_dir_all(&self.dir).map_err(TaskError::io(&self.dir))?;
        fs::write(&stamp, sources).map_err(TaskError::io(&stamp))
    }

    fn library(&self) -> PathBuf {
        let name =
            format!("{}superfluid_llamacpp{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        self.dir.join("release").join(name)
    }
}

/// Whether cargo's file times can be trusted: the same clone, or the same sources.
fn same_build(before: &str, now: &str) -> bool {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    before.len() == now.len() && before.iter().zip(&now).any(|(before, now)| before == now)
}

/// One hash over every file of our crates that the runtime is built from.
fn own_sources(tree: &Tree) -> Result<String, TaskError> {
    let mut all = String::new();
    for path in
        tree.files()?.iter().filter(|path| OWN_CRATES.iter().any(|(_, folder)| path.starts_with(folder)))
    {
        all += &format!("{} {}\n", path.display(), hash::file(&tree.root().join(path), |_| {})?);
    }
    Ok(hash::bytes(all.as_bytes()))
}

/// Everything that changes the compiled engine, as lines.
fn ingredients(tree: &Tree, portable: bool) -> Result<Vec<String>, TaskError> {
    let lock_path = tree.root().join("Cargo.lock");
    let lock = fs::read_to_string(&lock_path).map_err(TaskError::io(&lock_path))?;
    let manifest_path = tree.root().join("Cargo.toml");
    let manifest = fs::read_to_string(&manifest_path).map_err(TaskError::io(&manifest_path))?;
    let cpu = if portable { "portable".to_owned() } else { format!("native {}", cpu_flags()) };
    let mut lines = vec![locked(&lock)?, profile(&manifest)?, features(tree)?, cpu];
    lines.push(format!("{LIB_PROFILE:?} {AMX_FLAG}"));
    lines.push(shell::output(Command::new("rustc").arg("-vV"))?);
    lines.push(shell::output(Command::new("c++").arg("--version"))?);
    let mut forwarded: Vec<String> = std::env::vars()
        .filter(|(name, _)| FORWARDED.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    forwarded.sort();
    lines.extend(forwarded);
    Ok(lines)
}

fn key(ingredients: &[String]) -> String {
    format!("{ID}-{}", &hash::bytes(ingredients.join("\n").as_bytes())[..16])
}

/// Version and checksum of the engine's sources.
fn locked(lock: &str) -> Result<String, TaskError> {
    let broken = |what: &str| TaskError::Broken(format!("Cargo.lock: {what}"));
    let lock: toml::Table = lock.parse().map_err(|error| broken(&format!("{error}")))?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).ok_or_else(|| broken("no packages"))?;
    let text =
        |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let found = packages.iter().find(|package| text(package, "name").as_deref() == Some(SYS_CRATE));
    let found = found.ok_or_else(|| broken("the engine's crate is not in it"))?;
    let version = text(found, "version").unwrap_or_default();
    Ok(format!("{SYS_CRATE} {version} {}", text(found, "checksum").unwrap_or_default()))
}

/// The release profile decides on optimisation and debug information of the C++ side too.
fn profile(manifest: &str) -> Result<String, TaskError> {
    let broken = |error| TaskError::Broken(format!("Cargo.toml: {error}"));
    let manifest: toml::Table = manifest.parse().map_err(broken)?;
    Ok(manifest
        .get("profile")
        .and_then(|profile| profile.get("release"))
        .map_or_else(String::new, toml::Value::to_string))
}

fn features(tree: &Tree) -> Result<String, TaskError> {
    let crate_id = tree.metadata.packages.iter().find(|package| package.name.as_str() == SYS_CRATE);
    let crate_id = crate_id.ok_or_else(|| TaskError::Broken(format!("nothing depends on {SYS_CRATE}")))?;
    let nodes = tree.metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let node = nodes.into_iter().find(|node| node.id == crate_id.id);
    let mut features: Vec<String> =
        node.iter().flat_map(|node| &node.features).map(ToString::to_string).collect();
    features.sort();
    Ok(features.join(","))
}

/// What `-march=native` looks at, near enough. Model names alone do not tell what a hypervisor masks.
fn cpu_flags() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| info.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    match line("flags") {
        flags if !flags.is_empty() => format!("{} {flags}", line("model name")),
        _ => shell::output(Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]))
            .unwrap_or_else(|_| format!("{} {}", line("CPU part"), line("Features"))),
    }
}

/// Copies the library into the runtime's folder and writes its manifest; nobody but the owner may write to either.
pub(crate) fn place(library: &Path, folder: &Path) -> Result<(), TaskError> {
    fs::create_dir_all(folder).map_err(TaskError::io(folder))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(TaskError::io(folder))?;
    let placed = folder.join(library.file_name().expect("a library is a file"));
    let bytes = fs::read(stripped(library)?).map_err(TaskError::io(library))?;
    write_private(&placed, &bytes)?;
    write_manifest(&placed)?;
    eprintln!("{} ({} MiB)", placed.display(), bytes.len() >> 20);
    Ok(())
}

/// A copy without debug information, which is ten times the code and would be hashed at every discovery.
fn stripped(library: &Path) -> Result<PathBuf, TaskError> {
    let out = library.with_extension("stripped");
    let flag = if cfg!(target_os = "macos") { "-S" } else { "--strip-debug" };
    shell::output(Command::new("strip").arg(flag).arg("-o").arg(&out).arg(library))?;
    Ok(out)
}

/// Writes `runtime.json` beside a library.
pub(crate) fn write_manifest(library: &Path) -> Result<(), TaskError> {
    let bytes = fs::read(library).map_err(TaskError::io(library))?;
    let manifest = Manifest {
        manifest_version: 1,
        libraries: vec![LibraryEntry {
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            path: library.file_name().expect("a library is a file").to_string_lossy().into_owned(),
            sha256: hash::bytes(&bytes),
            size: bytes.len() as u64,
        }],
        descriptor: descriptor(library, &bytes)?,
    };
    let json = serde_json::to_string(&manifest).expect("a manifest is plain data");
    write_private(&library.with_file_name("runtime.json"), json.as_bytes())
}

/// By rename: a server that has the old library mapped keeps its pages.
fn write_private(path: &Path, bytes: &[u8]) -> Result<(), TaskError> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, bytes).map_err(TaskError::io(&fresh))?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o644)).map_err(TaskError::io(&fresh))?;
    fs::rename(&fresh, path).map_err(TaskError::io(path))
}

/// The descriptor's bytes as they stand in the library: the manifest must carry the very same.
fn descriptor(library: &Path, bytes: &[u8]) -> Result<Box<RawValue>, TaskError> {
    let broken = |what: String| TaskError::Broken(format!("{}: {what}", library.display()));
    let file = object::File::parse(bytes).map_err(|error| broken(error.to_string()))?;
    let section = file.section_by_name(sf_abi::SFR_DESCRIPTOR_SECTION_ELF);
    let section = section.or_else(|| file.section_by_name("__sfr_desc"));
    let section = section.ok_or_else(|| broken("it has no descriptor section".into()))?;
    let data = section.data().map_err(|error| broken(error.to_string()))?;
    let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let text = String::from_utf8(data[..end].to_vec()).map_err(|error| broken(error.to_string()))?;
    RawValue::from_string(text).map_err(|error| broken(format!("its descriptor is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"llama-cpp-sys-2\"\nversion = \"0.1.1\"\nchecksum = \"ab\"\n";

    #[test]
    fn the_key_changes_with_each_ingredient() {
        let base = vec![locked(LOCK).unwrap(), profile("[profile.release]\nlto = \"thin\"\n").unwrap()];
        let other_sources = locked(&LOCK.replace("ab", "cd")).unwrap();
        let other_profile = profile("[profile.release]\nlto = \"fat\"\n").unwrap();
        assert_eq!(key(&base), key(&base.clone()));
        assert_ne!(key(&base), key(&[other_sources, base[1].clone()]));
        assert_ne!(key(&base), key(&[base[0].clone(), other_profile]));
    }

    #[test]
    fn only_the_same_clone_or_the_same_sources_are_trusted() {
        for (before, now, trusted) in [
            ("/a\nhash1\n", "/a\nhash2\n", true),
            ("/a\nhash1\n", "/b\nhash1\n", true),
            ("/a\nhash1\n", "/b\nhash2\n", false),
            ("", "/b\nhash2\n", false),
        ] {
            assert_eq!(same_build(before, now), trusted, "{before:?} {now:?}");
        }
    }

    #[test]
    fn a_lock_file_without_the_engine_is_named() {
        assert!(locked("[[package]]\nname = \"x\"\nversion = \"1\"\n").is_err());
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let read = |args: &[&str]| Options::parse(args).map(|o| (o.which, o.portable, o.profiles));
        assert_eq!(read(&[]).unwrap(), (Which::LlamaCpp, false, vec!["debug", "release"]));
        assert_eq!(
            read(&["llamacpp", "--portable", "--profile", "release"]).unwrap(),
            (Which::LlamaCpp, true, vec!["release"])
        );
        assert_eq!(read(&["mlx", "--profile", "dev"]).unwrap(), (Which::Mlx, false, vec!["debug"]));
        for wrong in
            [&["--fast"][..], &["--profile"], &["--profile", "bench"], &["basert", "--portable"], &["--cuda"]]
        {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
