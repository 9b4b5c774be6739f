//! Links `libuu-preload.so` as a signal object: nothing but libc, bound at load, its soname set by hand.
fn main() {
    for arg in ["-nostartfiles", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,-soname,libuu-preload.so", "-Wl,--as-needed", "-lc"]
    {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
