//! `uunwind-plugin-server PLUGIN`: what `uu plugin-server PLUGIN` does, for this crate's tests.

fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    uunwind_loader::serve(&arguments, &[]);
}
