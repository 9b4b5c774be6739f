//! `uunwind-plugin-server PLUGIN`: what `uu plugin-server PLUGIN` does, for this crate's tests.

fn main() {
    let plugin = std::env::args_os().nth(1).unwrap_or_default();
    uunwind_loader::serve(plugin.as_ref(), &[]);
}
