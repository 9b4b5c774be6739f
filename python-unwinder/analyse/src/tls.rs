//! The place of the thread-local variable that holds a thread's state (3.15: `_Py_tss_gilstate` in
//! <https://github.com/python/cpython/blob/v3.15.0/Python/pystate.c>), from the code that reads it.
//!
//! `PyGILState_GetThisThreadState` is a few instructions long. An executable reads the variable at a fixed distance
//! from the thread pointer (local-exec); a library asks `__tls_get_addr` for its block and reads the variable in it
//! (local-dynamic). Any other code is refused. The models are described in "ELF Handling For Thread-Local Storage"
//! (<https://www.akkadia.org/drepper/tls.pdf>), sections 4.3 and 4.4.

use crate::version::Version;
use uunwind_elf::Elf;
use uunwind_python::facts::{Facts, STATE_TLS, STATE_TLS_BLOCK};

/// Bytes of the function that are searched.
const CODE_BYTES: usize = 64;

/// Sets where the variable is. The error says why it cannot be found.
pub fn find(elf: &dyn Elf, version: Version, facts: &mut Facts) -> Result<(), String> {
    let Some(function) = elf.symbol("PyGILState_GetThisThreadState") else {
        return Err(format!("CPython {version} without PyGILState_GetThisThreadState"));
    };
    let mut code = [0u8; CODE_BYTES];
    let len = if function.size == 0 { CODE_BYTES } else { CODE_BYTES.min(function.size as usize) };
    let place = code
        .get_mut(..len)
        .and_then(|code| elf.read(function.address, code).then(|| place(code, function.address))?)
        .ok_or_else(|| format!("CPython {version} whose PyGILState_GetThisThreadState has an unexpected form"))?;
    (facts.state, facts.state_offset, facts.state_module) = match place {
        Place::FromThreadPointer(offset) => (STATE_TLS, offset, 0),
        Place::InBlock { module, offset } => (STATE_TLS_BLOCK, offset, module),
    };
    Ok(())
}

#[derive(PartialEq, Eq, Debug)]
enum Place {
    /// Distance from the thread pointer in bytes, modulo 2^64.
    FromThreadPointer(u64),
    /// File address of the word with the module's id, and the offset in its block.
    InBlock { module: u64, offset: u64 },
}

/// What a function that loads one thread-local word and returns it reads. `address`: of the first instruction.
fn place(code: &[u8], address: u64) -> Option<Place> {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const PUSH_RBP: &[u8] = &[0x55, 0x48, 0x89, 0xe5];
    const SUB_8: &[u8] = &[0x48, 0x83, 0xec, 0x08];
    const ADD_8: &[u8] = &[0x48, 0x83, 0xc4, 0x08];
    const POP_RBP: &[u8] = &[0x5d];
    /// `mov %fs:disp32,%rax`
    const LOAD: &[u8] = &[0x64, 0x48, 0x8b, 0x04, 0x25];
    /// `lea disp32(%rip),%rdi`
    const MODULE: &[u8] = &[0x48, 0x8d, 0x3d];
    /// `mov disp32(%rax),%rax`
    const MEMBER: &[u8] = &[0x48, 0x8b, 0x80];
    /// `mov disp8(%rax),%rax`
    const MEMBER_8: &[u8] = &[0x48, 0x8b, 0x40];
    const RET: u8 = 0xc3;

    let mut rest = code;
    let mut skip = |bytes: &[u8]| rest.strip_prefix(bytes).map(|after| rest = after).is_some();
    skip(ENDBR64);
    let framed = skip(PUSH_RBP);
    let aligned = !framed && skip(SUB_8);
    if skip(LOAD) {
        let (offset, rest) = signed(rest)?;
        let rest = if framed { rest.strip_prefix(POP_RBP)? } else { rest };
        return (!aligned && rest.first() == Some(&RET)).then_some(Place::FromThreadPointer(offset));
    }
    if !skip(MODULE) {
        return None;
    }
    let (module, rest) = signed(rest)?;
    let next = address.wrapping_add((code.len() - rest.len()) as u64);
    // `call rel32` through the PLT, or `call *disp32(%rip)` through the GOT; what is called cannot be another function.
    let rest = rest.strip_prefix(&[0xe8]).or_else(|| rest.strip_prefix(&[0xff, 0x15]))?.get(4..)?;
    let unframe = |rest| match (framed, aligned) {
        (true, _) => <[u8]>::strip_prefix(rest, POP_RBP),
        (_, true) => <[u8]>::strip_prefix(rest, ADD_8),
        _ => Some(rest),
    };
    let load = |rest: &[u8]| {
        if let Some(rest) = rest.strip_prefix(MEMBER) {
            let (offset, rest) = signed(rest)?;
            return Some((offset, rest.len()));
        }
        let (offset, rest) = rest.strip_prefix(MEMBER_8)?.split_first()?;
        Some((i64::from(*offset as i8) as u64, rest.len()))
    };
    // The frame is left before the load, or after it.
    let early = unframe(rest).and_then(|rest| Some((load(rest)?, false)));
    let ((offset, left), late) = early.or_else(|| Some((load(rest)?, true)))?;
    let end = code.get(code.len() - left..)?;
    let end = if late { unframe(end)? } else { end };
    (end.first() == Some(&RET)).then_some(Place::InBlock { module: next.wrapping_add(module), offset })
}

/// A sign-extended 32-bit operand, and what follows it.
fn signed(code: &[u8]) -> Option<(u64, &[u8])> {
    let (operand, rest) = code.split_first_chunk::<4>()?;
    Some((i64::from(i32::from_le_bytes(*operand)) as u64, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Debian's executable and library of 3.15.2 (GCC 16), as objdump shows them.
    const EXECUTABLE: &[u8] =
        &[0xf3, 0x0f, 0x1e, 0xfa, 0x64, 0x48, 0x8b, 0x04, 0x25, 0xd8, 0xff, 0xff, 0xff, 0xc3, 0x66];
    const LIBRARY: &[u8] = &[
        0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x3d, 0x61, 0xa6, 0x4a, 0x00, 0xe8, 0x5c, 0x9d,
        0xcf, 0xff, 0x5d, 0x48, 0x8b, 0x80, 0x28, 0x00, 0x00, 0x00, 0xc3,
    ];

    #[test]
    fn both_forms_are_read() {
        assert_eq!(place(EXECUTABLE, 0x42_fa7d), Some(Place::FromThreadPointer((-0x28i64) as u64)));
        let block = Place::InBlock { module: 0x87_9790, offset: 0x28 };
        assert_eq!(place(LIBRARY, 0x3c_f120), Some(block));
    }

    #[test]
    fn code_without_a_frame_or_with_a_late_pop_is_read() {
        let module = [0x48, 0x8d, 0x3d, 0x10, 0, 0, 0, 0xe8, 0, 0, 0, 0];
        let plain = [&[0x48, 0x83, 0xec, 0x08], &module[..], &[0x48, 0x8b, 0x40, 0x08, 0x48, 0x83, 0xc4, 0x08, 0xc3]];
        assert_eq!(place(&plain.concat(), 0), Some(Place::InBlock { module: 4 + 7 + 0x10, offset: 8 }));
    }

    #[test]
    fn other_code_is_refused() {
        for cut in 0..LIBRARY.len() {
            assert_eq!(place(&LIBRARY[..cut], 0), None, "{cut}");
        }
        let mut other = LIBRARY.to_vec();
        other[9] = 0x8b;
        assert_eq!(place(&other, 0), None);
        assert_eq!(place(&[0x90; 64], 0), None);
    }
}
