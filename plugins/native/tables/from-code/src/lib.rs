//! Unwind rows made from machine code, for functions that no other source describes.
//!
//! For each function: its instructions are followed from the first one on, on all ways, with what is proved of the
//! registers and of the stack ([`state`]): how far the stack pointer is from the CFA, where the caller's registers are
//! saved, which register holds a copy of the stack pointer. Where ways meet, only what they agree on is kept. The rule
//! of an instruction is made of the facts before it ([`row`]).
//!
//! Nothing is guessed. A function of which an indirect jump is not understood, that returns with another stack pointer
//! than it was called with, or whose instructions run out of the code, has no rows at all; and of code that nothing but
//! its place suggests to be a function, rows are made only if it returns properly: what a return instruction takes is
//! the return address, so that all distances before it follow. What is assumed:
//!
//! - a function leaves what others have saved on the stack, but for words that it can be seen to write;
//! - a table of jumps that no comparison limits ends where the next thing begins that code or data has the address of;
//! - calls return with the stack pointer that they were made with, and rbx, rbp, r12 to r15 as they were;
//! - what follows the call of a function that never returns (by its name, [`noreturn`], or since none of its own ways
//!   return) is not run after it.
//!
//! ```
//! use uunwind_core::regs::RSP;
//! use uunwind_core::rule::Rule;
//! use uunwind_from_code::{analyse, Budget, Code, Part};
//!
//! // push %rbx; mov %edi,%ebx; pop %rbx; ret
//! let bytes = [0x53, 0x89, 0xfb, 0x5b, 0xc3];
//! let code = Code { text: vec![Part { start: 0x1000, bytes: &bytes }], entries: vec![0x1000], ..Code::default() };
//! let rows = analyse(&code, Budget { steps: 1000 }).rows();
//!
//! assert_eq!(rows.len(), 3);
//! assert_eq!(rows[0].rule, Some(Rule::simple(RSP, 8)));
//! // After the push: CFA = rsp + 16, and rbx lies two words below it.
//! let mut pushed = Rule::simple(RSP, 16);
//! pushed.slots[0] = -2;
//! assert_eq!((rows[1].span.start, rows[1].rule), (0x1001, Some(pushed)));
//! ```
#![forbid(unsafe_code)]

mod code;
mod covered;
mod function;
mod intern;
pub mod noreturn;
mod padding;
mod program;
mod quick;
#[cfg_attr(target_arch = "x86_64", path = "row/x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "row/none.rs")]
pub mod row;
pub mod state;
mod step;

pub use code::{Code, Part};
pub use function::Fault;
pub use program::{analyse, Analysed, Budget, Claim, Found, Row};
