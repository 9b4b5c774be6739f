//! Where a thread's isolate is (`g_current_isolate_`,
//! <https://github.com/v8/v8/blob/11.3.244/src/execution/isolate.cc>), and in it, its code range, which the public
//! function `v8::Isolate::GetCodeRange` reads.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use uunwind_elf::Image;

/// `PT_TLS`
const TLS: u32 = 7;
/// Number of instructions that are searched.
const SEARCHED: usize = 8;

/// The distance of the variable from the thread pointer, in a program: its block of thread-local storage lies below
/// that ("ELF Handling For Thread-Local Storage", variant II).
pub fn place(image: &Image) -> Option<i64> {
    let variable = image.any_symbol("_ZN2v88internal18g_current_isolate_E")?;
    let block = image.segment(TLS)?;
    // Only a program's block has a distance that is the same in each process.
    image.interpreter()?;
    let size = block.memory_size.checked_next_multiple_of(block.alignment.max(1))?;
    (variable.address < size).then(|| variable.address as i64 - size as i64)
}

/// The offset in an isolate of the address of its code range.
pub fn code_range(image: &Image) -> Option<u32> {
    let function = image.any_symbol("_ZN2v87Isolate12GetCodeRangeEPPvPm")?;
    let mut bytes = [0; 64];
    if !image.read_address(function.address, &mut bytes) {
        return None;
    }
    let decoder = Decoder::with_ip(64, &bytes, function.address, DecoderOptions::NONE);
    let load = decoder.into_iter().take(SEARCHED).find(|instruction| {
        instruction.mnemonic() == Mnemonic::Mov
            && instruction.memory_base() == Register::RDI
            && instruction.memory_size().size() == 8
    })?;
    u32::try_from(load.memory_displacement64()).ok()
}

/// The offset in an isolate of the address of the table through which functions are called: a builtin finds an entry by
/// a function's handle.
pub fn dispatch_table(image: &Image) -> Option<u32> {
    /// Bytes of the builtin that are searched.
    const CODE: usize = 256;
    /// `kRootRegisterBias`: r13 points that far into the isolate.
    const BIAS: u64 = 0x80;
    let function = image.any_symbol("Builtins_CallFunction_ReceiverIsNullOrUndefined")?;
    let mut bytes = vec![0; CODE];
    if !image.read_address(function.address, &mut bytes) {
        return None;
    }
    let instructions: Vec<Instruction> =
        Decoder::with_ip(64, &bytes, function.address, DecoderOptions::NONE).into_iter().collect();
    // mov n(%r13),%table; mov %handle,%entry; shr $8,%entry; shl $4,%entry; movzwl 8(%table,%entry),%parameters
    let shifts = |i: &Instruction, mnemonic, by| {
        i.mnemonic() == mnemonic && i.op1_kind() == OpKind::Immediate8 && i.immediate8() == by
    };
    let at = instructions.windows(3).position(|three| match three {
        [right, left, load] => {
            shifts(right, Mnemonic::Shr, 8) && shifts(left, Mnemonic::Shl, 4) && load.memory_displacement64() == 8
        }
        _ => false,
    })?;
    let table = instructions.get(at + 2)?.memory_base();
    let load = instructions.get(..at)?.iter().rev().take(SEARCHED).find(|i| i.op0_register() == table)?;
    let is_in_isolate = load.mnemonic() == Mnemonic::Mov && load.memory_base() == Register::R13;
    is_in_isolate.then(|| u32::try_from(load.memory_displacement64().checked_add(BIAS)?).ok())?
}
