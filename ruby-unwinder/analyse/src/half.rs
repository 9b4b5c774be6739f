//! Ruby's language, as reports see it, and its analyse half with the interface that all languages have.

use crate::analyse;
use uunwind_elf::Image;
use uunwind_language::{Finding, Half, Language, LineTable};

/// Functions of CRuby that only pass a call on (<https://github.com/ruby/ruby/blob/v3_1_2/vm_eval.c>, `vm.c` and
/// `eval.c` there). Functions that do a program's work, such as `rb_ary_each`, are not listed.
const GLUE: &[&str] = &[
    "rb_vm_exec",
    "rb_vm_call*",
    "rb_vm_invoke_proc*",
    "rb_vm_invoke_bmethod",
    "rb_call_super*",
    "rb_funcall*",
    "rb_check_funcall*",
    "rb_yield*",
    "rb_block_call*",
    "rb_proc_call*",
    "rb_method_call*",
    "rb_obj_call_init*",
    "rb_protect",
    "rb_rescue*",
    "rb_ensure",
    "rb_catch*",
    "rb_iterate",
    "rb_iseq_eval*",
    "ruby_exec_node",
    "ruby_run_node",
];

/// Ruby's half of the list of languages: CRuby, by the facts that its file gives.
pub struct Ruby;

impl Half for Ruby {
    fn language(&self) -> Language {
        let glue = GLUE.iter().map(|name| (*name).to_owned()).collect();
        Language { glue, ..Language::unknown("ruby") }
    }

    fn analyse(&self, image: &Image) -> Finding {
        analyse(image)
    }

    /// The positions that the signal half emits are lines.
    fn line(&self, _: &LineTable<'_>, _: u64) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_signal_halfs() {
        assert_eq!(crate::NAME.split(|b| *b == 0).next(), Some(Ruby.language().plugin.as_bytes()));
    }

    #[test]
    fn glue_goes_and_work_stays() {
        let ruby = Ruby.language();
        assert!(ruby.is_glue("rb_vm_exec") && ruby.is_glue("rb_funcallv") && ruby.is_glue("rb_yield_1"));
        assert!(!ruby.is_glue("rb_ary_each") && !ruby.is_glue("rb_str_concat"));
    }
}
