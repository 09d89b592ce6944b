//! Compiles the shim against the MLX build that `SUPERFLUID_MLX` names. Without one the crate has its readers only, and the
//! runtime says that it was built without MLX.

use std::path::{Path, PathBuf};

/// Instruction sets that the kernels are compiled for, by CPU: name and flags. The first one runs everywhere.
const X86_64: &[(&str, &[&str])] = &[
    ("plain", &[]),
    ("avx2", &["-mavx2", "-mfma", "-mf16c"]),
    ("avx512", &["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c"]),
];
const OTHERS: &[(&str, &[&str])] = &[("plain", &[])];

fn main() {
    println!("cargo:rerun-if-env-changed=SUPERFLUID_MLX");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rustc-check-cfg=cfg(sf_mlx)");
    let Some(prefix) = std::env::var_os("SUPERFLUID_MLX").filter(|prefix| !prefix.is_empty()) else { return };
    let prefix = PathBuf::from(prefix);
    let include = prefix.join("mlx/include");
    assert!(include.join("mlx/mlx.h").is_file(), "SUPERFLUID_MLX: {} has no MLX headers", include.display());
    compile(&include);
    link(&prefix);
    println!("cargo:rustc-cfg=sf_mlx");
}

fn compile(include: &Path) {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    for (name, flags) in if arch == "x86_64" { X86_64 } else { OTHERS } {
        let mut build = plain();
        build.file("shim/kernels.cpp").file("shim/linear.cpp").file("shim/encoder.cpp").opt_level(3);
        build.define("SF_VARIANT", *name).define("SF_VARIANT_NAME", format!("\"{name}\"").as_str());
        flags.iter().for_each(|flag| {
            build.flag(flag);
        });
        build.compile(&format!("sf_mlx_kernels_{name}"));
    }
    let mut build = plain();
    // As a system's header: its warnings are not ours.
    build.flag("-isystem").flag(include.to_str().expect("a path of UTF-8"));
    ["shim", "encode", "node", "builtin", "choose"].iter().for_each(|name| {
        build.file(format!("shim/{name}.cpp"));
    });
    build.opt_level(2).compile("sf_mlx_shim");
}

fn plain() -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++20").warnings(true).extra_warnings(true);
    build.flag_if_supported("-fvisibility=hidden").flag_if_supported("-fno-gnu-unique");
    // A sum is the same whoever asks for it: no other order, but multiply and add may be one step, everywhere.
    build.flag_if_supported("-ffp-contract=fast");
    build
}

/// The library finds MLX beside it. Tests and benchmarks find it through a link in the output directory, which cargo adds to
/// the loader's path.
fn link(prefix: &Path) {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let entries = std::fs::read_dir(prefix).unwrap_or_else(|error| panic!("{}: {error}", prefix.display()));
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let parts: Vec<String> = names.filter(|name| name == "mlx" || name.ends_with(".libs")).collect();
    for part in &parts {
        let (from, to) = (prefix.join(part), out.join(part));
        let _ = std::fs::remove_file(&to);
        std::os::unix::fs::symlink(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    }
    println!("cargo:rustc-link-search=native={}", out.join("mlx/lib").display());
    println!("cargo:rustc-link-lib=dylib=mlx");
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") => {
            for libs in parts.iter().filter(|part| part.ends_with(".libs")) {
                println!("cargo:rustc-link-arg=-Wl,-rpath-link,{}", out.join(libs).display());
            }
            // What a GPU's build loads besides is on the user's machine, not where this is linked.
            println!("cargo:rustc-link-arg-cdylib=-Wl,--allow-shlib-undefined");
            println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN/mlx/lib,-z,now");
        }
        _ => println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,@loader_path/mlx/lib"),
    }
}
