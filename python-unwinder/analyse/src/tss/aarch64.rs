//! AArch64 ([A64 base
//! instructions](https://developer.arm.com/documentation/ddi0602/latest/Base-Instructions)).

use uunwind_elf::Elf;
use uunwind_python::facts::Facts;

/// What a register holds, as far as it is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// An address of the file.
    Address(u64),
    /// This distance from what the function was passed, or has loaded.
    From(u64),
}

/// Inner functions that add the distance are not followed: debug builds up to 3.11 are refused.
pub fn callee_adds(_: &dyn Elf, _: &[u8], _: u64, _: &Facts) -> bool {
    false
}

/// Does `code`, at `address`, refer to the key at `runtime + offset`, or to the second word of it? Followed are `adrp`,
/// additions of numbers, and the addresses of loads.
pub fn mentions(code: &[u8], address: u64, runtime: u64, offset: u32) -> bool {
    let mut registers = [Value::From(0); 32];
    let wanted = |value: Value| {
        [0, 4].into_iter().any(|half| {
            let distance = u64::from(offset).wrapping_add(half);
            value == Value::Address(runtime.wrapping_add(distance)) || value == Value::From(distance)
        })
    };
    let (instructions, _) = code.as_chunks::<4>();
    (0u64..).zip(instructions).any(|(index, bytes)| {
        let word = u32::from_le_bytes(*bytes);
        let (to, from) = ((word & 31) as usize, (word >> 5 & 31) as usize);
        let base = registers.get(from).copied().unwrap_or(Value::From(0));
        let immediate = u64::from(word >> 10 & 0xfff);
        let (value, is_address) = match word {
            // adrp
            _ if word & 0x9f00_0000 == 0x9000_0000 => {
                let pages = (i64::from(word as i32) << 40 >> 45 << 2) | i64::from(word >> 29 & 3);
                let page = address.wrapping_add(4 * index) & !0xfff;
                (Value::Address(page.wrapping_add_signed(pages << 12)), false)
            }
            // add, of 64 bits, a number that may be shifted by 12
            _ if word & 0xff80_0000 == 0x9100_0000 => (base.plus(immediate << (12 * (word >> 22 & 1))), true),
            // ldr, of 64 or 32 bits, with an unsigned number of words
            _ if word & 0xbfc0_0000 == 0xb940_0000 => {
                let place = base.plus(immediate << (word >> 30));
                if wanted(place) {
                    return true;
                }
                (Value::From(0), false)
            }
            _ => (Value::From(0), false),
        };
        if let Some(register) = registers.get_mut(to) {
            *register = value;
        }
        is_address && wanted(value)
    })
}

impl Value {
    fn plus(self, bytes: u64) -> Value {
        match self {
            Value::Address(at) => Value::Address(at.wrapping_add(bytes)),
            Value::From(distance) => Value::From(distance.wrapping_add(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Debian's executable of 3.11.2, as objdump shows it: adrp, add, ldr of the flag, cbz, ldr of the key.
    const EXECUTABLE: [u32; 5] = [0xb000_2e20, 0x9100_2000, 0xf941_2c01, 0xb400_0061, 0xb942_6400];

    #[test]
    fn the_key_is_found_and_no_other_place() {
        let code: Vec<u8> = EXECUTABLE.into_iter().flat_map(u32::to_le_bytes).collect();
        let (at, runtime) = (0x47_1314, 0xa3_6008);
        let found: Vec<u32> = (0..1024).filter(|offset| mentions(&code, at, runtime, *offset)).collect();
        // The structure's own address, the flag, and the key; each may be the second half of what is asked for.
        assert_eq!(found, [0, 596, 600, 608, 612]);
        assert!(!mentions(&code[..16], at, runtime, 608));
    }
}
