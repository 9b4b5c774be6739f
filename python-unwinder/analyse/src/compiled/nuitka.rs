//! Nuitka: names of its C functions
//! (<https://github.com/Nuitka/Nuitka/blob/2.4/nuitka/nodes/FunctionNodes.py>, `getCodeName`).
//!
//! ```text
//! impl_demo$$$function__1_func                        demo.func
//! impl_demo$$$function__2_outer$$$function__1_inner   demo.outer.inner
//! modulecode_demo                                     the module's own code
//! ```

use super::{is_identifier, number, PARTS};
use uunwind_language::Compiled;

/// The function that a symbol is of.
pub fn function(symbol: &str) -> Option<Compiled> {
    if let Some(module) = symbol.strip_prefix("modulecode_") {
        return Some(Compiled { name: format!("{}.<module>", module_name(module)?), rank: 0 });
    }
    let mut parts = symbol.strip_prefix("impl_")?.split("$$$");
    let mut name = module_name(parts.next()?)?;
    let mut functions = 0;
    for part in parts.take(PARTS) {
        let (kind, rest) = part.split_once("__")?;
        let (_, function) = number(rest)?;
        let function = match (kind, function.strip_prefix('_')?) {
            (_, "lambda") => "<lambda>",
            ("genexpr", _) => "<genexpr>",
            ("listcontraction", _) => "<listcomp>",
            (_, function) => function,
        };
        name.push('.');
        name.push_str(function);
        functions += 1;
    }
    (functions > 0).then_some(Compiled { name, rank: 0 })
}

/// A module's name; in symbols, its dots are dollars.
fn module_name(text: &str) -> Option<String> {
    text.split('$').all(is_identifier).then(|| text.replace('$', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        for (symbol, expected) in [
            ("impl_demo$$$function__1_func", Some("demo.func")),
            ("impl_pkg$demo$$$function__2_outer$$$function__1_inner", Some("pkg.demo.outer.inner")),
            ("impl_demo$$$function__3_lambda", Some("demo.<lambda>")),
            ("modulecode_demo", Some("demo.<module>")),
            ("impl_demo", None),
            ("impl_demo$$$", None),
            ("impl_demo$$$function__", None),
            ("impl_$$$function__1_f", None),
            ("impl_a-b$$$function__1_f", None),
            ("main", None),
        ] {
            let found = function(symbol).map(|compiled| (compiled.name, compiled.rank));
            assert_eq!(found, expected.map(|name| (name.to_owned(), 0)), "{symbol}");
        }
    }
}
