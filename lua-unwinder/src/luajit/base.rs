//! Where a trace moves its base: when it returns to a frame below the one that it began in, and when it goes on as the trace of a
//! function that it has called. At both places it adds to a register and stores that as the base of the thread that runs. What lies
//! behind, up to the next snapshot, still has a snapshot that counts from the base as it was.

use super::Vm;

/// Most bytes of machine code that are looked through: more than a trace takes to store all slots of a frame.
const REACH: u64 = 8192;
/// Bytes that are read at a time.
const CHUNK: usize = 64;
/// Bytes of `mov [r14+distance], register`: the store. The addition before it has no more.
const STORE: usize = 7;

/// By how many bytes, modulo 2^64, the machine code in `from..to` has moved the base. `None`: that cannot be told.
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

/// The number of the register that is stored as the base, if this is the store.
fn stored(code: &[u8], distance: [u8; 4]) -> Option<u8> {
    match code {
        [rex @ (0x49 | 0x4d), 0x89, mode, rest @ ..] if mode & 0xc7 == 0x86 && rest == distance => {
            Some((rex & 4) << 1 | mode >> 3 & 7)
        }
        _ => None,
    }
}

/// What the instruction that ends at `end` adds to the register: `add register, number`, of 8 or 32 bits.
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
