//! Which native frames a reader need not see: the interpreter's own machinery between two of its semantic frames, and our
//! own objects. C code that does the program's work (list.sort, libffi, C libraries) stays.

use std::path::Path;

/// What to do with an interpreter's native frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NativeFrames {
    /// Hide those that only serve the interpreter.
    #[default]
    Hide,
    /// Show all.
    Show,
}

/// Functions of CPython that pass a call on, by the start of their names.
const PYTHON_GLUE: &[&str] = &[
    "_PyEval_",
    "PyEval_",
    "_PyFunction_",
    "_PyObject_Call",
    "_PyObject_FastCall",
    "_PyObject_MakeTpCall",
    "_PyObject_VectorcallTstate",
    "_PyObject_VectorcallDictTstate",
    "_PyVectorcall_",
    "PyObject_Call",
    "PyObject_Vectorcall",
    "PyVectorcall_",
    "_PyRun_",
    "PyRun_",
    "pyrun_",
    "pymain_",
    "cfunction_call",
    "cfunction_vectorcall",
    "gen_send_ex",
    "method_vectorcall",
    "slot_tp_",
    "vectorcall_m",
    "_call_with_exceptions_",
];

/// The same, by their whole names.
const PYTHON_GLUE_WHOLE: &[&str] = &[
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
    "method_call",
    "object_vacall",
    "pythread_wrapper",
    "run_eval_code_obj",
    "run_mod",
    "thread_run",
    "type_call",
    "type_vectorcall",
];

/// Functions of PUC Lua that pass a call on, by their whole names. What does work for a program, such as `luaH_resize`, stays.
const LUA_GLUE_WHOLE: &[&str] = &[
    "luaD_call",
    "luaD_callnoyield",
    "luaD_pcall",
    "luaD_precall",
    "luaD_rawrunprotected",
    "luaT_callTM",
    "luaT_callTMres",
    "luaV_execute",
    "lua_call",
    "lua_callk",
    "lua_pcall",
    "lua_pcallk",
    "lua_resume",
];

/// Whether a function is machinery of an interpreter, by its name. Ask only for functions of an object that was seen to
/// host an interpreter: other objects may use these names for anything.
pub fn is_glue(symbol: &str) -> bool {
    // Compilers append `.cold`, `.part.0`, `.constprop.0`, `.isra.0` and the like to parts and copies.
    let base = symbol.split('.').next().unwrap_or(symbol);
    PYTHON_GLUE_WHOLE.contains(&base)
        || LUA_GLUE_WHOLE.contains(&base)
        || PYTHON_GLUE.iter().any(|start| base.starts_with(start))
}

/// Whether an object is ours.
pub fn is_own(path: &[u8]) -> bool {
    let text = String::from_utf8_lossy(path);
    let path = Path::new(text.as_ref());
    let Some(file) = path.file_name().and_then(|f| f.to_str()) else { return false };
    let in_plugins = path.parent().is_some_and(|dir| dir.ends_with("uu/plugins"));
    file == "libuu-preload.so" || file.starts_with("libuu.so") || in_plugins
}

/// Whether an object is the preloaded one, whose frames are wrappers wherever they stand.
pub fn is_preload(path: &[u8]) -> bool {
    path.ends_with(b"/libuu-preload.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glue_goes_and_work_stays() {
        for glue in [
            "_PyEval_Vector",
            "_PyEval_EvalFrameDefault.cold",
            "PyEval_EvalCode",
            "run_mod",
            "pymain_run_file_obj",
            "lua_pcallk",
            "luaD_call.part.0",
        ] {
            assert!(is_glue(glue), "{glue}");
        }
        for work in [
            "list_sort_impl",
            "ffi_call",
            "builtin_sorted",
            "run_modest",
            "_ctypes_callproc",
            "main",
            "luaH_resize",
            "?",
        ] {
            assert!(!is_glue(work), "{work}");
        }
    }

    #[test]
    fn own_objects() {
        assert!(is_own(b"/opt/lib/uu/libuu-preload.so") && is_preload(b"/opt/lib/uu/libuu-preload.so"));
        assert!(is_own(b"/opt/lib/libuu.so.0") && is_own(b"/opt/lib/uu/plugins/libuu-python.so"));
        assert!(!is_own(b"/usr/lib/libuuid.so.1") && !is_own(b"") && !is_own(b"/usr/lib/libuud.so"));
    }
}
