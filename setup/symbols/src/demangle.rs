//! Names as people wrote them. Only names that are marked as mangled are demangled: a C function `f` is not the type
//! `float`. Templates have no return type in front, as other functions have none.

use cpp_demangle::DemangleOptions;

/// The demangled form of a symbol; the symbol itself if it is not mangled.
pub fn demangle(symbol: &str) -> String {
    // A version, or `plt`: no mangled name has the sign.
    if let Some((name, suffix)) = symbol.split_once('@').filter(|(name, _)| !name.is_empty()) {
        return format!("{}@{suffix}", demangle(name));
    }
    // Rust's legacy mangling has C++'s prefix and ends in a hash, which only its own demangler leaves out.
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    let mangled = symbol.starts_with("_Z") || symbol.starts_with("__Z") || symbol.starts_with("_GLOBAL_");
    let cpp = mangled.then(|| cpp_demangle::Symbol::new(symbol).ok()).flatten();
    cpp.and_then(|name| name.demangle_with_options(&DemangleOptions::new().no_return_type()).ok())
        .or_else(|| template(symbol))
        .unwrap_or_else(|| symbol.to_owned())
}

/// The name of a template whose arguments the demangler cannot read, such as conditions in expressions: they are left
/// out. Only of one in no scope but `std`, whose name ends before its arguments ([Itanium C++
/// ABI](https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangle.unscoped-name), "unscoped-name").
fn template(symbol: &str) -> Option<String> {
    let rest = symbol.strip_prefix("_Z")?;
    let (scope, rest) = rest.strip_prefix("St").map_or(("", rest), |rest| ("std::", rest));
    if let Some((name, _)) =
        OPERATORS.iter().find(|(_, code)| rest.strip_prefix(code).is_some_and(|r| r.starts_with('I')))
    {
        return Some(format!("{scope}operator{name}<…>(…)"));
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (length, rest) = rest.split_at_checked(digits)?;
    let (name, arguments) = rest.split_at_checked(length.parse().ok()?)?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.is_empty();
    (is_name && arguments.starts_with('I')).then(|| format!("{scope}{name}<…>(…)"))
}

/// Operators that are templates of their own, with their codes ([Itanium C++
/// ABI](https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling-operator)).
const OPERATORS: &[(&str, &str)] = &[
    ("==", "eq"),
    ("!=", "ne"),
    ("< ", "lt"),
    (">", "gt"),
    ("<=", "le"),
    (">=", "ge"),
    ("<=>", "ss"),
    ("+", "pl"),
    ("-", "mi"),
    ("*", "ml"),
    ("/", "dv"),
    ("%", "rm"),
    ("<<", "ls"),
    (">>", "rs"),
    ("&", "an"),
    ("|", "or"),
    ("^", "eo"),
];

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn only_mangled_names_are_demangled() {
        for plain in ["f", "i", "main", "_start", "__libc_start_main", "Z", "v", "_", ""] {
            assert_eq!(demangle(plain), plain);
        }
        assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangle("_ZN3foo3barEi@plt"), "foo::bar(int)@plt");
        assert_eq!(demangle("pthread_mutex_lock@@GLIBC_2.2.5"), "pthread_mutex_lock@@GLIBC_2.2.5");
        assert_eq!(demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
    }

    /// One spelling: with and without arguments that are templates; c++filt is the oracle, but for the return type.
    #[test]
    fn templates_are_spelled_as_other_functions_are() {
        let same =
            "_ZSt4swapIdENSt9enable_ifIXsrSt6__and_IJSt6__not_ISt15__is_tuple_likeIT_EESt21is_move_constructible\
                    IS3_ESt18is_move_assignableIS3_EEE5valueEvE4typeERS3_SC_";
        let equal =
            "_ZSteqIcEN9__gnu_cxx11__enable_ifIXsrSt9__is_charIT_E7__valueEbE6__typeERKNSt7__cxx1112basic_string\
                     IS3_St11char_traitsIS3_ESaIS3_EEESE_";
        for (symbol, name) in [
            ("_ZSt6__sortIPiN9__gnu_cxx5__ops15_Iter_less_iterEEvT_S4_T0_", "std::__sort<"),
            ("_ZNSt6vectorIdSaIdEE12emplace_backIJdEEERdDpOT_", "std::vector<"),
            ("_ZSt3maxIiERKT_S2_S2_", "std::max<"),
            ("_Z5twiceIiET_S0_", "twice<"),
            (same, "std::swap<"),
            (equal, "std::operator==<"),
        ] {
            let ours = demangle(symbol);
            assert!(ours.starts_with(name), "{ours}");
            let filtered = std::process::Command::new("c++filt").arg(symbol).output().expect("binutils").stdout;
            let filtered = String::from_utf8_lossy(&filtered).trim().replace(' ', "");
            let whole = ours.replace(' ', "");
            let folded = whole.strip_suffix("<…>(…)").is_some_and(|name| filtered.contains(&format!("{name}<")));
            assert!(filtered.ends_with(&whole) || folded, "{ours}: {filtered}");
        }
        for damaged in [
            "_ZSt",
            "_ZSt4",
            "_ZSt9swapI",
            "_ZSt99999999999999999999swapI",
            "_Z4swap",
            "_ZSt4sw pI",
            "_ZSt0I",
            "_ZSteq",
            "_ZSteqv",
        ] {
            assert!(!demangle(damaged).contains('…'), "{damaged}");
        }
    }
}
