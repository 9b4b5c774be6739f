//! x86-64.

use uunwind_core::regs::Regs;
use uunwind_ring::copy::Head;

/// The registers of a copy.
pub fn of(head: &Head) -> Option<Regs> {
    Some(Regs::full(head.pc, head.registers))
}
