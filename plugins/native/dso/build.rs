//! Links the plugin DSO: no start files, nothing undefined but what libc has, bound when it is loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for arg in ["-nostartfiles", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,--as-needed", "-lc"] {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
}
