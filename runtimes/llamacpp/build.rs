//! Compiles what stands in front of ggml's own functions: the page-releasing clear and attention over shared cells.

use std::path::{Path, PathBuf};

fn main() {
    for file in ["src/pages.c", "src/attention.cpp", "build.rs"] {
        println!("cargo:rerun-if-changed={file}");
    }
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let mut pages = cc::Build::new();
    pages.file("src/pages.c").warnings(true).flag_if_supported("-std=gnu11");
    if linux {
        pages.define("SF_WRAP_CLEAR", None);
        wrap("ggml_backend_buffer_clear");
    }
    pages.compile("sf_llamacpp_pages");
    println!("cargo:rustc-check-cfg=cfg(sf_attention)");
    match Engine::find().filter(|_| linux) {
        Some(engine) => engine.compile_attention(),
        None if linux => {
            println!("cargo:warning=ggml's headers were not found: attention is llama.cpp's own");
        }
        None => {}
    }
}

/// Calls from llama.cpp's objects to `name` go to `__wrap_name`. Only where this crate's library is linked in: the
/// library itself, its integration tests and benchmarks.
fn wrap(name: &str) {
    for target in ["cdylib", "tests", "benches"] {
        println!("cargo:rustc-link-arg-{target}=-Wl,--wrap={name}");
    }
}

/// Where the engine's crate has its sources, and how it compiled the part that we stand in front of.
struct Engine {
    sources: PathBuf,
    flags: Vec<String>,
}

impl Engine {
    fn find() -> Option<Engine> {
        let lib = PathBuf::from(std::env::var_os("DEP_LLAMA_GGML_CMAKE_DIR")?);
        let build =
            lib.ancestors().map(|dir| dir.join("build")).find(|dir| dir.join("CMakeCache.txt").exists())?;
        let sources = value(&build.join("CMakeCache.txt"), "CMAKE_HOME_DIRECTORY:INTERNAL=")?;
        let sources = Path::new(&sources).join("ggml");
        let flags = value(&build.join("ggml/src/CMakeFiles/ggml-cpu.dir/flags.make"), "CXX_FLAGS = ")?;
        let flags =
            flags.split_whitespace().filter(|flag| !flag.starts_with("-W")).map(str::to_owned).collect();
        sources.join("src/ggml-cpu/simd-gemm.h").exists().then_some(Engine { sources, flags })
    }

    fn compile_attention(&self) {
        let mut build = cc::Build::new();
        // The C++ library is the engine's: linked once, statically.
        build.cpp(true).cpp_link_stdlib(None).file("src/attention.cpp").warnings(false);
        for folder in ["include", "src", "src/ggml-cpu"] {
            build.include(self.sources.join(folder));
        }
        self.flags.iter().for_each(|flag| {
            build.flag(flag);
        });
        build.define("_GNU_SOURCE", None).compile("sf_llamacpp_attention");
        println!("cargo:rustc-cfg=sf_attention");
        wrap("ggml_compute_forward_flash_attn_ext");
    }
}

/// What stands behind `key` on its line.
fn value(file: &Path, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned)
}
