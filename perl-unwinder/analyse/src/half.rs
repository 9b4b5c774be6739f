//! Perl's language, as reports see it, and its analyse half with the interface that all languages have.

use crate::analyse;
use uunwind_elf::Image;
use uunwind_language::{Finding, Half, Language, LineTable};

/// Functions of Perl that only pass a call on (<https://github.com/Perl/perl5/blob/v5.36.0/perl.c>, `run.c`, `pp_hot.c`
/// and `pp_ctl.c` there). Functions that do a program's work, such as `Perl_pp_sort`, are not listed.
const GLUE: &[&str] = &[
    "Perl_runops_standard",
    "Perl_pp_entersub",
    "Perl_pp_goto",
    "Perl_pp_entereval",
    "Perl_pp_entertry",
    "Perl_pp_entertrycatch",
    "Perl_pp_require",
    "Perl_call_sv",
    "Perl_call_pv",
    "Perl_call_argv",
    "Perl_call_method",
    "Perl_call_list",
    "Perl_eval_sv",
    "Perl_eval_pv",
    "Perl_amagic_call",
    "perl_run",
];

/// Perl's half of the list of languages, by the facts that its file gives.
pub struct Perl;

impl Half for Perl {
    fn language(&self) -> Language {
        let glue = GLUE.iter().map(|name| (*name).to_owned()).collect();
        Language { glue, title: "Perl".to_owned(), ..Language::unknown("perl") }
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
        assert_eq!(crate::NAME.split(|b| *b == 0).next(), Some(Perl.language().plugin.as_bytes()));
    }

    #[test]
    fn glue_goes_and_work_stays() {
        let perl = Perl.language();
        assert!(perl.is_glue("Perl_runops_standard") && perl.is_glue("Perl_call_sv"));
        assert!(!perl.is_glue("Perl_pp_sort") && !perl.is_glue("Perl_sv_setsv_flags"));
    }
}
