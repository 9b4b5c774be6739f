//! Links `uu` with an older glibc, where ci/build has set its folder: see packages/older_glibc.py.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=UU_OLDER_GLIBC");
    if let Ok(folder) = std::env::var("UU_OLDER_GLIBC") {
        for argument in [format!("-L{folder}"), format!("{folder}/functions.o"), "-Wl,--allow-shlib-undefined".into()] {
            println!("cargo:rustc-link-arg-bins={argument}");
        }
    }
}
