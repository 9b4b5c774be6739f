//! An ELF file as the Lua analyser sees it.

use crate::elf::Image;
use crate::ObjectFacts;
use object::elf::{PF_W, PF_X, PT_LOAD};
use uunwind_lua_analyse::{analyse, Elf, Finding, Function, Range, Segment, NAME};

/// What the Lua analyser found in an object. `refused` gets a line for a person, without the file's name.
pub fn facts(image: &Image, refused: &mut dyn FnMut(String)) -> Option<ObjectFacts> {
    match analyse(&View(image)) {
        Finding::NotLua => None,
        Finding::Facts(bytes) => Some(ObjectFacts { plugin: NAME, bytes }),
        Finding::Refused(why) => {
            refused(why);
            None
        }
    }
}

struct View<'a>(&'a Image);

impl Elf for View<'_> {
    fn symbol(&self, name: &str) -> Option<u64> {
        self.0.symbol(name).map(|(address, _)| address)
    }

    fn segments(&self) -> Vec<Segment> {
        let loaded = self.0.segments().iter().filter(|s| s.kind == PT_LOAD);
        let segment = |s: &crate::elf::Segment| Segment {
            range: Range { start: s.address, end: s.address.saturating_add(s.file_size) },
            executable: s.flags & PF_X != 0,
            writable: s.flags & PF_W != 0,
        };
        loaded.map(segment).collect()
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        self.0.read_address(address, out)
    }

    fn functions(&self) -> Vec<Function> {
        let functions = self.0.functions();
        let function = |f: crate::elf::Function| Function {
            range: Range { start: f.start, end: f.end },
            cfa_offset: f.cfa_offset,
        };
        functions.into_iter().map(function).collect()
    }
}
