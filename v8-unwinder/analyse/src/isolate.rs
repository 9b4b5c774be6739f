//! Where a thread's isolate is (`g_current_isolate_`,
//! <https://github.com/v8/v8/blob/11.3.244/src/execution/isolate.cc>), and in it, its code range, which the public
//! function `v8::Isolate::GetCodeRange` reads.

use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};
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
