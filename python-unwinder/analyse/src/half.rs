//! CPython's language, as reports see it, and its analyse half with the interface that all languages have.

use crate::{analyse, compiled, global_locks, recursive_lock, thread_names, Finding};
use uunwind_elf::Image;
use uunwind_language::{Compiled, Half, Holder, Language, LineTable, Memory, Origin, Place, Waiting};
use uunwind_python::facts::{Facts, Plain, TABLE_PYTHON_311};
use uunwind_python::lines;

/// Functions of CPython that only pass a call on
/// (<https://github.com/python/cpython/tree/v3.13.0/Python>, `Objects/call.c`). C code that does the program's work
/// (list.sort, libffi, C libraries) is not listed.
const GLUE: &[&str] = &[
    "_PyEval_*",
    // One function an instruction, in builds whose interpreter makes tail calls.
    "_TAIL_CALL_*",
    "PyEval_*",
    "_PyFunction_*",
    "_PyObject_Call*",
    "_PyObject_FastCall*",
    "_PyObject_MakeTpCall*",
    "_PyObject_VectorcallTstate*",
    "_PyObject_VectorcallDictTstate*",
    "_PyVectorcall_*",
    // What instructions of 3.15 call functions by, the references on the stack being theirs.
    "_Py_VectorCall*",
    "_Py_BuiltinCall*",
    "_Py_CallBuiltin*",
    "_PyCallMethodDescriptor*",
    "PyObject_Call*",
    "PyObject_Vectorcall*",
    "PyVectorcall_*",
    "_PyRun_*",
    "PyRun_*",
    "pyrun_*",
    "pymain_*",
    "PyImport_Import*",
    "builtin___import__*",
    "builtin_exec*",
    "cfunction_call*",
    "cfunction_vectorcall*",
    "gen_send_ex*",
    "method_vectorcall*",
    "slot_tp_*",
    "vectorcall_m*",
    "_call_with_exceptions_*",
    "Py_BytesMain",
    "Py_Main",
    "Py_RunMain",
    "call_maybe",
    "call_method",
    "call_unbound",
    "call_unbound_noarg",
    "function_code_fastcall",
    "gen_iternext",
    "gen_send",
    "import_find_and_load",
    "import_name",
    "method_call",
    "object_vacall",
    "pythread_wrapper",
    "run_eval_code_obj",
    "run_mod",
    "thread_run",
    "type_call",
    "type_vectorcall",
    // Bindings: ctypes and cffi are extension modules that do nothing else.
    "_ctypes.*!*",
    "_cffi_backend.*!*",
];

/// Functions compiled into modules of any name that pass calls on: they are glue, and starters, too.
const PASSING: &[&str] = &[
    // Of pybind11 and nanobind only what never has a user's function inlined.
    "*!pybind11::cpp_function::dispatcher*",
    "*!nanobind::detail::nb_func_vectorcall*",
    // Compilers: wrappers that pass the call on, and what functions are called through. A wrapper that contains the
    // function itself has that function's name.
    "*!__pyx_pw_*",
    "*!__pyx_pf_*",
    "*!__Pyx_CyFunction_*",
    "*!__Pyx_PyObject_Call*",
    "*!__Pyx_PyObject_FastCall*",
    "*!CPyPy_*",
    "*!Nuitka_Call*",
    "*!CALL_FUNCTION*",
];

/// Files of Python's import system, and its function that runs a module's code: those whose frames CPython removes from
/// tracebacks, too (`remove_importlib_frames` in
/// <https://github.com/python/cpython/blob/v3.13.0/Python/import.c>).
const LOADERS: &[&str] = &["<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"];
const STARTERS: &[&str] = &[
    "_call_with_frames_removed",
    // By libffi ctypes and cffi call C; wheels carry a copy of it with a hash in its name, or linked into cffi.
    "libffi.so*!*",
    "libffi-*!*",
    "_cffi_backend.*!ffi_call*",
];

/// CPython.
pub struct Python;

impl Half for Python {
    fn language(&self) -> Language {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Language {
            plugin: "python".to_owned(),
            label: "py".to_owned(),
            glue: texts(&[GLUE, PASSING].concat()),
            loaders: texts(LOADERS),
            starters: texts(&[STARTERS, PASSING].concat()),
            ..Language::default()
        }
    }

    fn machines(&self) -> &'static [u16] {
        &[crate::cpu::MACHINE]
    }

    fn analyse(&self, image: &Image) -> uunwind_language::Finding {
        match analyse(image) {
            Finding::NotPython => uunwind_language::Finding::Unclaimed,
            Finding::Facts(facts) => uunwind_language::Finding::Facts(facts.as_bytes().to_vec()),
            Finding::Refused(why) => uunwind_language::Finding::Refused(why),
        }
    }

    fn line(&self, table: &LineTable<'_>, position: u64) -> Option<u32> {
        lines::line(table.kind, table.bytes, table.first_line, position)
    }

    fn compiled(&self, object: &str, symbol: &str, has: &dyn Fn(&str) -> bool) -> Option<Compiled> {
        compiled::compiled(object, symbol, has)
    }

    fn origins(&self, generated: &str) -> Vec<Origin> {
        compiled::origins(generated)
    }

    fn thread_names(&self, facts: &[u8], bias: u64, memory: &dyn Memory, known: &mut Vec<u64>) -> Vec<(u32, String)> {
        Facts::read(facts).map(|facts| thread_names::of_process(facts, bias, memory, known)).unwrap_or_default()
    }

    fn global_locks(&self, facts: &[u8], bias: u64, memory: &dyn Memory) -> Option<usize> {
        global_locks::of_process(Facts::read(facts)?, bias, memory)
    }

    fn lock_holder(&self, facts: &[u8], waiting: &Waiting, memory: &dyn Memory) -> Option<Holder> {
        Facts::read(facts)?;
        recursive_lock::holder(waiting, memory)
    }

    fn place(&self, table: &LineTable<'_>, position: u64) -> Option<Place> {
        if table.kind != TABLE_PYTHON_311 {
            return None;
        }
        let found = lines::python_3_11::location(table.bytes, table.first_line, position)?;
        Some(Place {
            line: found.line?,
            end_line: found.end_line?,
            column: found.column?,
            end_column: found.end_column?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_language::Role;
    use uunwind_python::facts::TABLE_PYTHON_310;

    #[test]
    fn the_name_is_the_signal_halfs() {
        assert_eq!(crate::NAME.split(|b| *b == 0).next(), Some(Python.language().plugin.as_bytes()));
    }

    #[test]
    fn glue_goes_and_work_stays() {
        let python = Python.language();
        for glue in [
            "_PyEval_Vector",
            "_PyEval_EvalFrameDefault.cold",
            "PyEval_EvalCode",
            "run_mod",
            "pymain_run_file_obj",
            "_Py_VectorCallInstrumentation_StackRefSteal",
            "_PyCallMethodDescriptorFastWithKeywords_StackRef",
        ] {
            assert!(python.is_glue(glue), "{glue}");
        }
        for work in ["list_sort_impl", "ffi_call", "builtin_sorted", "run_modest", "_ctypes_callproc", "main", "?"] {
            assert!(!python.is_glue(work), "{work}");
        }
    }

    #[test]
    fn bindings_are_recognised() {
        let python = Python.language();
        let module = "_ctypes.cpython-311-x86_64-linux-gnu.so";
        for (object, function, converts, calls) in [
            (module, "", true, false),
            (module, "_ctypes_callproc", true, false),
            ("_cffi_backend.cpython-311-x86_64-linux-gnu.so", "cdata_call", true, false),
            ("libffi.so.8.1.2", "", false, true),
            ("libffi-af4ed708.so.6.0.1", "ffi_call", false, true),
            ("mine.so", "pybind11::cpp_function::dispatcher(_object*, _object*, _object*)", true, true),
            ("mine.so", "nanobind::detail::nb_func_vectorcall_simple_1", true, true),
            ("mine.so", "ffi_call", false, false),
            ("mine.so", "dispatcher", false, false),
            ("_ctypes_test.cpython-311-x86_64-linux-gnu.so", "", false, false),
        ] {
            let binding = python.binding(object, function);
            assert_eq!((binding.converts, binding.calls), (converts, calls), "{object} {function}");
        }
    }

    #[test]
    fn imports_are_recognised() {
        let python = Python.language();
        let (inner, outer) = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>");
        assert_eq!(python.role(inner, "_call_with_frames_removed"), Role::Starts);
        assert_eq!(python.role(inner, "_find_and_load"), Role::Loads);
        assert_eq!(python.role(outer, "SourceLoader.exec_module"), Role::Loads);
        assert_eq!(python.role("/usr/lib/m.py", "_call_with_frames_removed"), Role::Work);
    }

    #[test]
    fn only_its_own_kind_of_table_is_read() {
        // Two code units, one line further on.
        let table = LineTable { kind: TABLE_PYTHON_311, first_line: 7, bytes: &[0x80 | 11 << 3 | 1, 0, 0] };
        assert_eq!(Python.line(&table, 0), Some(8));
        assert_eq!(Python.line(&LineTable { kind: 9, ..table }, 0), None);
        let place = Place { line: 8, end_line: 8, column: 4, end_column: 9 };
        let table = LineTable { bytes: &[0x80 | 11 << 3 | 1, 4, 9], ..table };
        assert_eq!((Python.place(&table, 0), Python.place(&table, 4)), (Some(place), None));
        assert_eq!(Python.place(&LineTable { kind: TABLE_PYTHON_310, ..table }, 0), None);
    }
}
