//! A temporary folder with a C compiler in it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Workshop {
    pub folder: PathBuf,
}

impl Workshop {
    pub fn new(name: &str) -> Workshop {
        let folder = std::env::temp_dir().join(format!("uu-analyse-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Workshop { folder: folder.canonicalize().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Compiles C without the C library, so that only what the test says is in the object.
    pub fn compile(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let out = self.path(name);
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        let c = self.file(&format!("{name}.c"), source.as_bytes(), 0o644);
        let status = Command::new("cc").arg("-O1").arg("-nostdlib").arg("-o").arg(&out).arg(&c).args(options).status();
        assert!(status.expect("a C compiler").success(), "cc {options:?}");
        out
    }

    /// A shared object that needs others in the folder.
    pub fn library(&self, name: &str, needs: &[&Path], options: &[&str]) -> PathBuf {
        let soname = format!("-Wl,-soname,{}", Path::new(name).file_name().unwrap().to_str().unwrap());
        let mut all = vec!["-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", &soname];
        all.extend(needs.iter().map(|path| path.to_str().unwrap()));
        all.extend(options);
        self.compile(name, "int nothing;", &all)
    }

    /// A program that needs objects in the folder.
    pub fn program(&self, name: &str, needs: &[&Path], options: &[&str]) -> PathBuf {
        let mut all = vec!["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"];
        all.extend(needs.iter().map(|path| path.to_str().unwrap()));
        all.extend(options);
        self.compile(name, "void _start(void) { for (;;) {} }", &all)
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// C source of an object with the symbols of a CPython 3.11.7.
pub const FAKE_PYTHON: &str = r#"
    const unsigned long Py_Version = 0x030b07f0;
    char _PyRuntime[2048];
    char PyCode_Type[408] = {1};
    int _PyEval_EvalFrameDefault(void) { return 1; }
    void *PyThread_tss_get(void *);
    void *PyGILState_GetThisThreadState(void) { return PyThread_tss_get(_PyRuntime + 592); }
"#;
