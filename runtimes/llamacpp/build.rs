//! Compiles the page-releasing clear and puts it in front of ggml's own (see `src/pages.c`).

fn main() {
    println!("cargo:rerun-if-changed=src/pages.c");
    println!("cargo:rerun-if-changed=build.rs");
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let mut build = cc::Build::new();
    build.file("src/pages.c").warnings(true).flag_if_supported("-std=gnu11");
    if linux {
        build.define("SF_WRAP_CLEAR", None);
        // Calls from llama.cpp's objects to ggml_backend_buffer_clear go to __wrap_ggml_backend_buffer_clear.
        // Only where this crate's library is linked in: the library itself and the integration tests.
        for target in ["cdylib", "tests"] {
            println!("cargo:rustc-link-arg-{target}=-Wl,--wrap=ggml_backend_buffer_clear");
        }
    }
    build.compile("sf_llamacpp_pages");
}
