//! Names as people wrote them. Only names that are marked as mangled are demangled: a C function `f` is not the type
//! `float`.

use cpp_demangle::DemangleOptions;

/// The demangled form of a symbol; the symbol itself if it is not mangled.
pub fn demangle(symbol: &str) -> String {
    // Rust's legacy mangling has C++'s prefix and ends in a hash, which only its own demangler leaves out.
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    let mangled = symbol.starts_with("_Z") || symbol.starts_with("__Z") || symbol.starts_with("_GLOBAL_");
    let cpp = mangled.then(|| cpp_demangle::Symbol::new(symbol).ok()).flatten();
    cpp.and_then(|name| name.demangle_with_options(&DemangleOptions::default()).ok())
        .unwrap_or_else(|| symbol.to_owned())
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn only_mangled_names_are_demangled() {
        for plain in ["f", "i", "main", "_start", "__libc_start_main", "Z", "v", "_", ""] {
            assert_eq!(demangle(plain), plain);
        }
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
    }
}
