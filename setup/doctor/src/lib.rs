//! What an ELF file says about unwinding, source by source, as rows that can be compared, counted, and written as
//! SFrame.
//!
//! - [`Binary`]: the file, its text and where its unwind data lies;
//! - [`eh_frame::read`], [`sframe::read`]: a source as [`Piece`]s: from where to where which row holds;
//! - [`from_code::read`]: what the machine code says where no source does;
//! - [`compare()`]: where two sources disagree; [`coverage`]: how much of the text a source covers;
//! - [`padding`]: what of the text is no code;
//! - [`chosen`]: which source a walk takes, range by range;
//! - [`doctor::diagnose`]: all of that for one file;
//! - [`address::consult`]: what each source has for one address, and which one a walk takes there;
//! - [`write::section`]: pieces as an SFrame section; [`make`]: a copy of a file with such a section in it.
//!
//! Rows of all sources are given in SFrame's terms ([`uunwind_sframe::row::Unwind`]), registers by their DWARF numbers.

#![forbid(unsafe_code)]

pub mod address;
pub mod binary;
pub mod chosen;
pub mod compare;
pub mod doctor;
pub mod eh_frame;
mod expression;
pub mod from_code;
pub mod make;
pub mod padding;
#[cfg_attr(target_arch = "x86_64", path = "rule_words/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "rule_words/aarch64.rs")]
pub mod rule_words;
pub mod sframe;
pub mod unwind_row;
pub mod write;

pub use binary::Binary;
pub use compare::{compare, coverage, Disagreement};
pub use unwind_row::Piece;

/// Why something could not be done with a file; displayed, it names the file, what was found, and what can be done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);
