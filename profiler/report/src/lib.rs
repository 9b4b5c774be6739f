//! From a recording to what people read: names, merged stacks, output formats.
//!
//! * [`recording`]: the file format, both directions. The recorder appends sections; reading trusts no byte of them;
//! * [`objects`]: which object covered an address at a time;
//! * [`symbolize`]: names for addresses, from files whose build-id was checked;
//! * [`python_lines`]: positions in code objects to lines;
//! * [`resolve`]: names for the frames of a sample, as recorded;
//! * [`stacks`]: samples to merged stacks of lines, with the hide rules of [`hide`];
//! * [`formats`]: one file per output format.
//!
//! Parsers of foreign bytes, each safe to give anything, and thus where a fuzzer begins: [`Recording::parse`],
//! [`python_lines::entries`], [`symbolize::Elf::parse`], [`symbolize::functions::in_image`].
//!
//! This is a report room: it runs after a sample has left the process, and may allocate.

pub mod error;
pub mod formats;
pub mod hide;
pub mod objects;
pub mod python_lines;
pub mod recording;
pub mod resolve;
pub mod stacks;
pub mod symbolize;

pub use error::ReadError;
pub use recording::Recording;
