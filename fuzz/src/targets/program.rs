//! Programs as `uu record` examines them before it starts them: `#!` lines, traits, what they need. Interpreters and
//! libraries that the bytes name are looked up on this machine, so the result depends on it.

use super::elf_analyse::with_file;
use uunwind_analyse::{needed_closure, resolve_program};

pub fn run(data: &[u8]) -> bool {
    with_file(data, |path| {
        let resolved = resolve_program(path.as_os_str(), None);
        if data.starts_with(b"\x7fELF") {
            assert_eq!(needed_closure(path, None).first().map(|p| p.as_path()), Some(path), "the program comes first");
        }
        resolved.problem.is_none()
    })
}
