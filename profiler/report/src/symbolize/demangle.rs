//! Names as people wrote them. Only what is marked as mangled is taken for that: a C function `f` is not the type `float`.

use cpp_demangle::DemangleOptions;

/// The name behind a symbol.
pub fn demangle(symbol: &str) -> String {
    // Rust's older names have C++'s prefix and a hash at their end, which only its own demangler knows to leave out.
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
