//! PHP's language, as reports see it, and its analyse half with the interface that all languages have.

use crate::analyse;
use uunwind_elf::Image;
use uunwind_language::{Finding, Half, Language, LineTable};

/// Functions of PHP that only pass a call on (<https://github.com/php/php-src/blob/PHP-8.2/Zend/zend_execute_API.c>,
/// `zend_interfaces.c`, `zend_generators.c` and `zend.c` there, and `main/main.c`). Functions that do a program's work,
/// such as `zif_array_map`, are not listed.
const GLUE: &[&str] = &[
    "execute_ex",
    "zend_execute",
    "zend_execute_scripts",
    "zend_call_function",
    "zend_call_known_*",
    "zend_call_method*",
    "_call_user_function_impl",
    "zend_eval_string*",
    "zend_generator_resume",
    "zend_std_call_*",
    "php_execute_script",
    "php_execute_scripts",
];

/// PHP's half of the list of languages, by the facts that its file gives.
pub struct Php;

impl Half for Php {
    fn language(&self) -> Language {
        let glue = GLUE.iter().map(|name| (*name).to_owned()).collect();
        Language { glue, title: "PHP".to_owned(), ..Language::unknown("php") }
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
        assert_eq!(crate::NAME.split(|b| *b == 0).next(), Some(Php.language().plugin.as_bytes()));
    }

    #[test]
    fn glue_goes_and_work_stays() {
        let php = Php.language();
        assert!(php.is_glue("execute_ex") && php.is_glue("zend_call_function"));
        assert!(!php.is_glue("zif_array_map") && !php.is_glue("zend_hash_sort"));
    }
}
