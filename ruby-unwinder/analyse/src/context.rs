//! Where the thread-local variable with a thread's execution context is (`ruby_current_ec`), from the first access to
//! thread-local storage in `rb_profile_frames`, which begins with it
//! (<https://github.com/ruby/ruby/blob/v3_1_2/vm_backtrace.c>). The models are described in "ELF Handling For
//! Thread-Local Storage" (<https://www.akkadia.org/drepper/tls.pdf>).

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use uunwind_elf::Elf;
use uunwind_language::machine_code;
use uunwind_ruby::facts::{CONTEXT_AT, CONTEXT_BY_WORD, CONTEXT_IN_BLOCK, CONTEXT_IN_BLOCK_AT};

/// Number of instructions that are searched.
const SEARCHED: usize = 64;

/// Where the variable is: see the `CONTEXT_*` numbers.
#[derive(PartialEq, Eq, Debug)]
pub struct Place {
    /// One of the `CONTEXT_*` numbers.
    pub kind: u32,
    /// File address of the words about the block, or of the word with the distance; 0: not used.
    pub module: u64,
    /// Offset in bytes, modulo 2^64.
    pub offset: u64,
}

/// Finds the variable. `None`: the code has an unexpected form.
pub fn find(elf: &dyn Elf) -> Option<Place> {
    let start = elf.symbol("rb_profile_frames")?.address;
    place(&machine_code::instructions(elf, machine_code::function(elf, start)?))
}

fn place(code: &[Instruction]) -> Option<Place> {
    // A prefix of the general dynamic model's first instruction, which distinguishes it from the local dynamic one's.
    const PADDED: usize = 8;
    for (at, instruction) in code.iter().take(SEARCHED).enumerate() {
        let next = || code.get(at.checked_add(1)?);
        let is_rip = instruction.memory_base() == Register::RIP;
        if instruction.mnemonic() == Mnemonic::Lea && instruction.op0_register() == Register::RDI && is_rip {
            let call = next().filter(|call| call.mnemonic() == Mnemonic::Call);
            if call.is_none() {
                continue;
            }
            // What is called cannot be another function.
            let load = code.get(at.checked_add(2)?)?;
            let loads = load.mnemonic() == Mnemonic::Mov && load.memory_base() == Register::RAX;
            let offset = load.memory_displacement64();
            let module = instruction.memory_displacement64();
            let padded = instruction.len() == PADDED;
            let place = match padded {
                true => Place { kind: CONTEXT_IN_BLOCK, module, offset: 0 },
                false => Place { kind: CONTEXT_IN_BLOCK_AT, module, offset },
            };
            return (loads && (offset == 0 || !padded)).then_some(place);
        }
        if instruction.segment_prefix() == Register::FS && instruction.code() == Code::Mov_r64_rm64 {
            /// The stack protector's value.
            const GUARD: u64 = 0x28;
            let offset = instruction.memory_displacement64();
            if instruction.memory_base() == Register::None && offset != GUARD && offset != 0 {
                return Some(Place { kind: CONTEXT_AT, module: 0, offset });
            }
            // The distance was loaded into the base register.
            let base = instruction.memory_base();
            let loaded = code.get(..at)?.iter().rev().find(|before| before.op0_register() == base);
            let loaded = loaded.filter(|load| {
                load.mnemonic() == Mnemonic::Mov
                    && load.op1_kind() == OpKind::Memory
                    && load.memory_base() == Register::RIP
            });
            if let Some(load) = loaded.filter(|_| base != Register::None && offset == 0) {
                return Some(Place { kind: CONTEXT_BY_WORD, module: load.memory_displacement64(), offset: 0 });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn of(code: &[u8]) -> Option<Place> {
        place(&Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).into_iter().collect::<Vec<_>>())
    }

    /// The general dynamic form is that of Debian's libruby-3.1, as objdump shows it; the others are as GCC 12 makes
    /// them of the same access.
    #[test]
    fn each_model_is_read() {
        let general = [
            0x48, 0x89, 0x14, 0x24, 0x66, 0x48, 0x8d, 0x3d, 0xd3, 0xbb, 0x14, 0x00, 0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0,
            0x48, 0x8b, 0x00,
        ];
        let module = 0x1004 + 8 + 0x14_bbd3;
        assert_eq!(of(&general), Some(Place { kind: CONTEXT_IN_BLOCK, module, offset: 0 }));
        let local = [0x48, 0x8d, 0x3d, 0x10, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x80, 0x10, 0, 0, 0];
        assert_eq!(of(&local), Some(Place { kind: CONTEXT_IN_BLOCK_AT, module: 0x1017, offset: 0x10 }));
        let exec = [0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff];
        assert_eq!(of(&exec), Some(Place { kind: CONTEXT_AT, module: 0, offset: (-8i64) as u64 }));
        let initial = [0x48, 0x8b, 0x05, 0x20, 0, 0, 0, 0x64, 0x48, 0x8b, 0x00];
        assert_eq!(of(&initial), Some(Place { kind: CONTEXT_BY_WORD, module: 0x1027, offset: 0 }));
    }

    #[test]
    fn other_code_is_refused() {
        assert_eq!(of(&[0x90; 80]), None);
        let guard = [0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0];
        assert_eq!(of(&guard), None);
    }
}
