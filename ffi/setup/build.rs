//! Sets the soname of `libuunwind-setup.so`, and links it with an older glibc.
//!
//! Cargo passes the linker arguments of a dependency's build script on to every cdylib above it. The analysers depend
//! on the plugins' crates, so without a soname of its own this object would carry a plugin's.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuunwind-setup.so");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=UU_OLDER_GLIBC");
    // Set by ci/build: see packages/older_glibc.py.
    if let Ok(folder) = std::env::var("UU_OLDER_GLIBC") {
        for argument in [format!("-L{folder}"), format!("{folder}/functions.o"), "-Wl,--allow-shlib-undefined".into()] {
            println!("cargo:rustc-cdylib-link-arg={argument}");
        }
    }
}
