//! Sets the soname of `libuunwind-setup.so`.
//!
//! Cargo passes the linker arguments of a dependency's build script on to every cdylib above it. The analysers depend
//! on the plugins' crates, so without a soname of its own this object would carry a plugin's.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libuunwind-setup.so");
    println!("cargo:rerun-if-changed=build.rs");
}
