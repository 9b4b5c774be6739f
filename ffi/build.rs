//! Links `libuu.so` as a signal object: nothing but libc, bound at load, its soname set by hand.
fn main() {
    // Never unloaded: walks in handlers, and other copies of the library, call into it.
    let args = [
        "-nostartfiles",
        "-Wl,-z,defs",
        "-Wl,-z,now",
        "-Wl,-z,nodelete",
        "-Wl,-soname,libuu.so.0",
        "-Wl,--as-needed",
        "-lc",
    ];
    for arg in args {
        println!("cargo:rustc-cdylib-link-arg={arg}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
