//! An installation of uu with objects that do nothing, and functions to run it.
#![allow(dead_code, reason = "each test program that shares this module uses a part of it")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A fresh folder with an installation in it; removed at the end.
pub struct Installation {
    /// The folder.
    pub folder: PathBuf,
}

impl Installation {
    /// Installs uu for one test, in a folder of this name.
    pub fn new(test: &str) -> Installation {
        let folder = std::env::temp_dir().join(format!("uu-cli-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("bin")).expect("folder");
        std::fs::create_dir_all(folder.join("lib/uu/plugins")).expect("folder");
        // Copied by another process: otherwise a child of another test could hold the file open for writing until its
        // exec, and running it would fail with "Text file busy".
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_uu")).arg(folder.join("bin/uu")).status().expect("cp");
        assert!(copied.success());
        let installation = Installation { folder };
        let library = installation.build("libuunwind.so.0", "int uu_nothing;", &["-shared", "-fPIC"]);
        std::fs::rename(&library, installation.folder.join("lib/libuunwind.so.0")).expect("moved");
        let preload = installation.build("libuunwind-preload.so", "int uu_nothing;", &["-shared", "-fPIC"]);
        std::fs::rename(&preload, installation.folder.join("lib/uu/libuunwind-preload.so")).expect("moved");
        installation
    }

    /// Compiles C.
    pub fn build(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let (c, object) = (self.folder.join(format!("{name}.c")), self.folder.join(name));
        std::fs::write(&c, source).expect("source");
        let status = Command::new("cc").args(options).arg("-o").arg(&object).arg(&c).status().expect("cc");
        assert!(status.success());
        std::fs::remove_file(c).expect("removed");
        object
    }

    /// A command that runs `uu` with these arguments in the folder.
    pub fn uu<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(self.folder.join("bin/uu"));
        command.args(arguments).current_dir(&self.folder).env_remove("UU_PLUGINS");
        command.env("XDG_CONFIG_HOME", self.folder.join("config"));
        command
    }

    /// Runs `uu` with these arguments in the folder.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.uu(arguments).output().expect("uu runs")
    }

    /// Names of files in the folder that end with `end`.
    pub fn files(&self, end: &str) -> Vec<String> {
        let names = std::fs::read_dir(&self.folder).expect("folder").map(|e| e.expect("entry").file_name());
        names.map(|n| n.to_string_lossy().into_owned()).filter(|n| n.ends_with(end)).collect()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Exit code and standard error.
pub fn outcome(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Whether a file exists.
pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
