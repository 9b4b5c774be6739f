//! Functions that never return, or not always, by their names in libraries. What follows their calls is not what runs
//! after them.

/// Of the C library and of the runtimes of compilers.
const NAMES: [&str; 59] = [
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "thrd_exit",
    "pthread_exit",
    "longjmp",
    "_longjmp",
    "__longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "__libc_siglongjmp",
    "__libc_longjmp",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "__assert_fail_base",
    "__stack_chk_fail",
    "__stack_chk_fail_local",
    "__chk_fail",
    "__fortify_fail",
    "__libc_fatal",
    "__libc_start_main",
    "err",
    "errx",
    "verr",
    "verrx",
    "_Unwind_Resume",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_pure_virtual",
    "__cxa_deleted_virtual",
    "__cxa_call_unexpected",
    "__cxa_call_terminate",
    "__cxa_throw_bad_array_new_length",
    "__cxa_throw_bad_array_length",
    "__clang_call_terminate",
    "_ZSt9terminatev",
    "_ZSt10unexpectedv",
    "_ZN9__gnu_cxx27__verbose_terminate_handlerEv",
    "_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE",
    "__rust_start_panic_abort",
    "rust_begin_unwind",
    "rust_panic",
    "_gfortran_stop_numeric",
    "_gfortran_stop_string",
    "_gfortran_error_stop_numeric",
    "_gfortran_error_stop_string",
    "_gfortran_runtime_error",
    "_gfortran_runtime_error_at",
    "_gfortran_os_error",
    "_gfortran_os_error_at",
    "g_assertion_message",
    "g_assertion_message_expr",
    "g_abort",
    "__ubsan_handle_builtin_unreachable",
];

/// What the names begin with of families of them.
const FAMILIES: [&str; 4] = [
    "_ZN4core9panicking",
    "_ZN3std9panicking11begin_panic",
    "_ZN4core6option13unwrap_failed",
    "_ZN5boost15throw_exception",
];

/// Of the C library: they return only if their first argument is zero, which the compiler knows where it is a constant.
const SOMETIMES: [&str; 2] = ["error", "error_at_line"];

/// Whether the function with this name returns, or not, as its arguments say.
pub fn is_sometimes(name: &str) -> bool {
    SOMETIMES.contains(&name)
}

/// Whether the function with this name never returns.
pub fn is_one(name: &str) -> bool {
    // `std::__throw_length_error(char const*)` and its like.
    let throws = name.strip_prefix("_ZSt").is_some_and(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.starts_with("__throw_") || rest.starts_with("__glibcxx_assert_fail")
    });
    throws || NAMES.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}
