//! mypyc: names of its C functions, and the lines in its calls that make tracebacks
//! (<https://github.com/python/mypy/blob/v1.13.0/mypyc/namegen.py>, `exported_name` and `private_name`).
//!
//! ```text
//! CPyPy_demo___Cls___meth    wrapper of demo.Cls.meth: a dot is three underscores, three underscores are `___3_`
//! CPyDef_demo___Cls___meth   its code
//! CPyDef_func                a module that was compiled alone is left out
//! ```

use uunwind_language::{Compiled, Origin};

const WRAPPER: &str = "CPyPy_";
const CODE: &str = "CPyDef_";
/// Modules that were compiled together lie in an object whose name ends with this, and are named in symbols.
const GROUP: &str = "__mypyc";
/// Statements that mypyc puts between an operation and the test whether it failed: what they begin with.
const BETWEEN: [&str; 6] =
    ["if (", "CPy_DECREF", "CPy_XDECREF", "CPyTagged_DECREF", "CPyTagged_XDECREF", "CPy_DECREF_NO_IMM"];
/// Limit of such statements.
const NEAR: usize = 16;

/// The function that a symbol is of, in an object of this file name.
pub fn function(object: &str, symbol: &str) -> Option<Compiled> {
    let (name, rank) = match symbol.strip_prefix(CODE) {
        Some(name) => (name, 0),
        None => (symbol.strip_prefix(WRAPPER)?, 1),
    };
    // Functions that set up classes.
    if name.starts_with("__mypyc__") {
        return None;
    }
    let mut name = decoded(name)?;
    let module = object.split('.').next().unwrap_or_default();
    if !module.is_empty() && !module.ends_with(GROUP) {
        name = format!("{module}.{name}");
    }
    let name = match name.strip_suffix("__top_level__") {
        Some(module) => format!("{module}<module>"),
        None => name,
    };
    Some(Compiled { name, rank })
}

/// A name with its dots.
fn decoded(name: &str) -> Option<String> {
    let (mut out, mut rest) = (String::new(), name);
    while let Some((before, after)) = rest.split_once("___").filter(|(before, _)| !before.is_empty()) {
        out.push_str(before);
        rest = match after.strip_prefix("3_") {
            Some(after) => {
                out.push_str("___");
                after
            }
            None => {
                out.push('.');
                after
            }
        };
    }
    out.push_str(rest);
    (!out.is_empty()).then_some(out)
}

/// The lines that tracebacks say: `CPy_AddTraceback("demo.py", "func", 12, CPyStatic_globals);` stands after each
/// operation that can fail.
pub fn origins(text: &str) -> Vec<Origin> {
    let mut origins: Vec<Origin> = Vec::new();
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((file, line)) = traceback(line) else { continue };
        let before = lines.get(..at).unwrap_or_default();
        let between = |line: &&&str| BETWEEN.iter().any(|start| line.starts_with(start));
        let between = before.iter().rev().take(NEAR).take_while(between).count();
        // The operation itself comes first. Elsewhere tracebacks follow a label, where no operation ends.
        let operation = usize::from(between > 0 && between < at);
        let free = origins.last().map_or(1, |last| last.generated.1 + 1);
        let [first, last] = [at - between - operation, at].map(|index| u32::try_from(index + 1).unwrap_or(u32::MAX));
        origins.push(Origin { generated: (first.max(free), last), file: file.to_owned(), line });
    }
    origins
}

/// File and line of a call that makes a traceback.
fn traceback(line: &str) -> Option<(&str, u32)> {
    let (file, rest) = line.strip_prefix("CPy_AddTraceback(\"")?.split_once("\", \"")?;
    let (_, rest) = rest.split_once("\", ")?;
    let (line, _) = rest.split_once(',')?;
    Some((file, line.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(object: &str, symbol: &str) -> Option<(String, u8)> {
        function(object, symbol).map(|compiled| (compiled.name, compiled.rank))
    }

    #[test]
    fn names_are_taken_apart() {
        let (alone, group) = ("demo.cpython-313-x86_64-linux-gnu.so", "0123__mypyc.cpython-313-x86_64-linux-gnu.so");
        for (object, symbol, expected, rank) in [
            (alone, "CPyDef_func", "demo.func", 0),
            (alone, "CPyPy_func", "demo.func", 1),
            (alone, "CPyDef_Cls_____init__", "demo.Cls.__init__", 0),
            (alone, "CPyDef___top_level__", "demo.<module>", 0),
            (group, "CPyDef_demo___Cls___meth", "demo.Cls.meth", 0),
            (group, "CPyPy_pkg___demo___a___3_b", "pkg.demo.a___b", 1),
            (group, "CPyDef_demo_____top_level__", "demo.<module>", 0),
        ] {
            assert_eq!(name(object, symbol), Some((expected.to_owned(), rank)), "{symbol}");
        }
        for symbol in ["CPyDef_", "CPyDef___mypyc__Cls_setup", "CPyTagged_Add", "main"] {
            assert_eq!(name(alone, symbol), None, "{symbol}");
        }
    }

    #[test]
    fn tracebacks_say_lines_of_the_operation_before() {
        let text =
            "int f() {\n    r0 = unrelated();\n    r1 = g();\n    CPy_DECREF(r0);\n    if (unlikely(r1 == NULL)) {\n\
            \x20       CPy_AddTraceback(\"demo.py\", \"f\", 12, CPyStatic_globals);\n        goto L;\nfail: ;\n\
            \x20   CPy_AddTraceback(\"demo.py\", \"f\", 11, CPyStatic_globals);\n";
        let origin = |from, to, line| Origin { generated: (from, to), file: "demo.py".to_owned(), line };
        assert_eq!(origins(text), [origin(3, 6, 12), origin(9, 9, 11)]);
        assert_eq!(
            origins("CPy_AddTraceback(\"a\", \"f\", 1, x);"),
            [Origin { file: "a".to_owned(), ..origin(1, 1, 1) }]
        );
        assert_eq!(origins("CPy_AddTraceback(\"a\", \"f\", x, 1);\nCPy_AddTraceback(\""), []);
    }
}
