//! HotSpot unwinder plugin, analyse half: decides whether an ELF file holds a HotSpot that the signal half can read,
//! and finds the facts that it needs.
//!
//! - `tables`: what HotSpot exports for debuggers;
//! - `stores`: the part of it that the object's initialisation fills in;
//! - `layout`: the structures, by these tables;
//! - `half`: what reports must know of Java.
#![forbid(unsafe_code)]

mod half;
mod layout;
mod stores;
mod tables;

pub use half::HotSpot;
pub use tables::Tables;
use uunwind_elf::Image;
/// The half that runs in handlers.
pub use uunwind_hotspot as signal;
use uunwind_hotspot::facts::Plain;
pub use uunwind_hotspot::NAME;
use uunwind_language::Finding;

/// The versions that messages name.
const SERVED: &str = "OpenJDK 8, 11, 17, 21, 25 and 27";

/// Analyses one ELF file.
pub fn analyse(image: &Image) -> Finding {
    match facts(image) {
        None => Finding::Unclaimed,
        Some(Ok(facts)) => Finding::Facts(facts),
        Some(Err(found)) => Finding::Refused(format!("no Java frames: {found}; served are {SERVED} on x86-64")),
    }
}

/// HotSpot's tables in a file; `None`: it has none, or they cannot be read.
pub fn tables_of(image: &Image) -> Option<Tables> {
    tables::of(image)?.ok()
}

fn facts(image: &Image) -> Option<Result<Vec<u8>, String>> {
    let tables = match tables::of(image)? {
        Ok(tables) => tables,
        Err(what) => return Some(Err(format!("this is HotSpot, {what}"))),
    };
    let jdk = layout::version(&tables, image).unwrap_or(0);
    let found = layout::of(&tables, image, jdk);
    Some(found.map(|facts| facts.as_bytes().to_vec()).map_err(|what| format!("this is HotSpot {jdk}, {what}")))
}
