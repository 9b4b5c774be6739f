//! Rule tables: an object's unwind information, all of it, turned into a table by pc, once.
//!
//! - [`of_image`]: the table of an ELF file, from `.eh_frame` and, for what that does not cover, `.debug_frame`;
//! - [`build`]: the same from sections' bytes;
//! - [`Cache`]: tables on disk, by what they are built of.
//!
//! The rules come from the very code that interprets unwind information in a target (`uunwind-eh-frame`), so the two
//! can only differ by where they look. (Go's are checked against its code first, since they are not always true.) What
//! depends on more than that (PLT stubs) is left out of the table, for the interpreter; in `.debug_frame`, which no
//! process maps, it is run for each pc (`each_pc`). And some code that is known by name gets other rules than its
//! unwind information has (`special`). Functions that nothing describes get rows from their machine code
//! (`undescribed`).

mod builder;
mod cache;
mod each_pc;
#[cfg_attr(target_arch = "x86_64", path = "go/x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "go/none.rs")]
mod go;
mod layout;
mod rule_set;
mod sections;
mod special;
mod undescribed;

pub use builder::{build, NoTable, Source};
pub use cache::{user_folder, Cache, Cached, Name};
pub use sections::{debug_frame, of_image};
pub use uunwind_elf::compressed::Unread;
pub use uunwind_elf::private_folder;
