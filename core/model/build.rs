//! The protocol's file gets the checker's atomics instead of the processor's.
fn main() {
    println!("cargo:rustc-cfg=uu_model");
    println!("cargo:rerun-if-changed=build.rs");
}
