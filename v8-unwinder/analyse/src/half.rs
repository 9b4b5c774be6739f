//! What the rest of uu must know of JavaScript: the plugin's [`Half`].

use uunwind_elf::Image;
use uunwind_language::{Finding, Half, Language, LineTable};
use uunwind_v8::{Lines, TABLE_LATIN1, TABLE_UTF16};

/// The V8 plugin's half outside of signal handlers.
pub struct V8;

/// Native functions that only pass a call on from one JavaScript function to another, in V8 itself.
const GLUE: &[&str] = &[
    "v8::internal::Execution::*",
    "v8::internal::(anonymous namespace)::Invoke*",
    "v8::Function::Call*",
    "Builtins_JSEntry*",
    "Builtins_JSRunMicrotasksEntry",
    "Builtins_CEntry_*",
    "Builtins_Interpreter*",
    "Builtins_Call_*",
    "Builtins_Baseline*",
];

impl Half for V8 {
    fn language(&self) -> Language {
        let name = uunwind_v8::NAME.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
        Language {
            plugin: name,
            label: "javascript".to_owned(),
            title: "JavaScript".to_owned(),
            glue: GLUE.iter().map(|text| (*text).to_owned()).collect(),
            ..Language::default()
        }
    }

    fn analyse(&self, image: &Image) -> Finding {
        crate::analyse(image)
    }

    /// The table is the function's source; the position counts its characters from 1 on.
    fn line(&self, table: &LineTable<'_>, position: u64) -> Option<u32> {
        let width: u16 = match table.kind {
            TABLE_LATIN1 => 1,
            TABLE_UTF16 => 2,
            _ => return None,
        };
        let before = usize::try_from(position.checked_sub(1)?).ok()?.checked_mul(width.into())?;
        let mut lines = Lines::new(width);
        lines.feed(table.bytes.get(..before)?);
        (table.first_line != 0).then(|| table.first_line.saturating_add(lines.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_counted_in_the_function_s_source() {
        let text = "f(a) {\n  g();\r\n  h();\u{d}i(); }";
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (kind, bytes) in [(TABLE_LATIN1, text.as_bytes()), (TABLE_UTF16, &wide[..])] {
            let table = LineTable { kind, first_line: 7, bytes };
            let line = |what: &str| V8.line(&table, text.find(what).expect("in the text") as u64 + 1);
            assert_eq!((line("f("), line("g("), line("h("), line("i(")), (Some(7), Some(8), Some(9), Some(10)));
            assert_eq!((V8.line(&table, 0), V8.line(&table, 1000)), (None, None));
        }
    }
}
