//! By how much a trace has moved its base since a snapshot. A trace moves it when it returns to a frame below the one
//! that it began in (`asm_retf` in <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_asm_x86.h>), and when it continues
//! as the trace of a function that it has called. At both places it adds to a register and stores that as `jit_base`.
//! The machine code from there to the next snapshot still belongs to a snapshot that counts from the old base.

use super::Vm;

/// Limit of bytes of machine code that are searched: more than a trace needs to store all slots of a frame.
const REACH: u64 = 8192;
/// Number of bytes that are read at once.
const CHUNK: usize = 64;
/// Size in bytes of the store, `mov [r14+distance], register`. The addition before it is not larger.
const STORE: usize = 7;

/// By how many bytes, modulo 2^64, the machine code in `from..to` (process addresses) has moved the base. `None`: the
/// code is unreadable or not recognised.
#[inline(never)]
pub fn moved(vm: &Vm<'_>, from: u64, to: u64) -> Option<u64> {
    let distance = vm.facts.jit_base.wrapping_sub(vm.facts.dispatch).to_le_bytes();
    let (mut at, mut sum) = (from, 0u64);
    let mut left = to.wrapping_sub(from);
    if left > REACH {
        return None;
    }
    while left >= STORE as u64 {
        let mut code = [0u8; CHUNK];
        let code = code.get_mut(..left.min(CHUNK as u64) as usize)?;
        if !vm.bytes(at, code) {
            return None;
        }
        for (index, window) in code.windows(STORE).enumerate() {
            if let Some(register) = stored(window, distance) {
                sum = sum.wrapping_add(added(vm, at.wrapping_add(index as u64), register)?);
            }
        }
        // The next store may begin in the last bytes of these.
        let step = (code.len() as u64).wrapping_sub(STORE as u64 - 1);
        (at, left) = (at.wrapping_add(step), left.wrapping_sub(step));
    }
    Some(sum)
}

/// The number of the register that is stored as `jit_base`, if `code` is that store.
fn stored(code: &[u8], distance: [u8; 4]) -> Option<u8> {
    match code {
        [rex @ (0x49 | 0x4d), 0x89, mode, rest @ ..] if mode & 0xc7 == 0x86 && rest == distance => {
            Some((rex & 4) << 1 | mode >> 3 & 7)
        }
        _ => None,
    }
}

/// The operand of `add register, number`, of 8 or 32 bits, if that instruction ends at `end`.
fn added(vm: &Vm<'_>, end: u64, register: u8) -> Option<u64> {
    let mut code = [0u8; STORE];
    if !vm.bytes(end.wrapping_sub(STORE as u64), &mut code) {
        return None;
    }
    let (rex, mode) = (0x48 | register >> 3, 0xc0 | register & 7);
    match code {
        [.., r, 0x83, m, number] if (r, m) == (rex, mode) => Some(i64::from(number as i8) as u64),
        [r, 0x81, m, a, b, c, d] if (r, m) == (rex, mode) => Some(i64::from(i32::from_le_bytes([a, b, c, d])) as u64),
        _ => None,
    }
}
