//! Split DWARF ([DWARF 5, 7.3.2](https://dwarfstd.org/doc/DWARF5.pdf), and GCC's extension to version 4): what a file
//! has is a skeleton, and functions, inlined ones among them, are in `.dwo` sections of other files: `NAME.dwo`, the
//! object file itself (`-gsplit-dwarf=single`), or a package of them all (`.dwp`). They belong together by the unit's
//! id. Any bytes may be passed.

use super::sections::{Bytes, Sections, Source, Store};
use super::{nesting, Wanted};
use addr2line::SplitDwarfLoad;
use gimli::{DebugInfo, Dwarf, DwarfPackage, DwoId, EndianSlice, LittleEndian, Reader, Section, SectionId, UnitType};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The files with the split units of one file.
pub struct Split<'s, 'b, 'c> {
    store: &'s Store,
    companions: &'c dyn Fn(&Wanted<'_>) -> Vec<Source<'b>>,
    /// Opened when they are first asked for.
    packages: OnceCell<Vec<Package<'s>>>,
    /// Units that were not found, by their ids.
    lost: RefCell<BTreeMap<u64, Lost>>,
}

/// What people call a package, and its index, or why it cannot be used.
type Package<'s> = (String, Result<DwarfPackage<Bytes<'s>>, String>);

/// A unit that was not found.
struct Lost {
    /// The name of its file.
    name: String,
    /// Why it is not used, for people.
    why: String,
    /// An address was looked up that only it describes.
    is_missed: bool,
}

impl<'s, 'b, 'c> Split<'s, 'b, 'c> {
    /// `companions`: where such files may be, best first.
    pub fn new(store: &'s Store, companions: &'c dyn Fn(&Wanted<'_>) -> Vec<Source<'b>>) -> Split<'s, 'b, 'c> {
        Split { store, companions, packages: OnceCell::new(), lost: RefCell::default() }
    }

    /// The sections of a unit, of which it is the first.
    pub fn load(&self, wanted: &SplitDwarfLoad<Bytes<'s>>) -> Option<Arc<Dwarf<Bytes<'s>>>> {
        let mut why = None;
        for (name, package) in self.packages() {
            match package.as_ref().map_err(String::clone).and_then(|package| packed(package, wanted)) {
                Ok(dwarf) => return Some(Arc::new(dwarf)),
                Err(refused) => why = why.or(Some(format!("{name}: {refused}"))),
            }
        }
        let text = |bytes: &Option<Bytes<'s>>| bytes.as_ref().map_or(&[][..], EndianSlice::slice);
        let (folder, name) = (text(&wanted.comp_dir), text(&wanted.path));
        for source in (self.companions)(&Wanted::Split { folder, name }) {
            match self.object(&source, wanted) {
                Ok(dwarf) => return Some(Arc::new(dwarf)),
                Err(refused) => why = Some(format!("{}: {refused}", source.name())),
            }
        }
        let why = why.unwrap_or_else(|| "there is no such file".to_owned());
        let name = String::from_utf8_lossy(name).into_owned();
        self.lost.borrow_mut().insert(wanted.dwo_id.0, Lost { name, why, is_missed: false });
        None
    }

    /// Notes that an address has no line, because this unit was not found.
    pub fn miss(&self, unit: DwoId) {
        if let Some(lost) = self.lost.borrow_mut().get_mut(&unit.0) {
            lost.is_missed = true;
        }
    }

    /// For people: what was not found. `None`: nothing is missing.
    pub fn remark(&self) -> Option<String> {
        let lost = self.lost.borrow();
        let missed: Vec<&Lost> = lost.values().filter(|lost| lost.is_missed).collect();
        let Lost { name, why, .. } = missed.iter().min_by_key(|lost| &lost.name)?;
        Some(format!(
            "split debug information is missing, of {} source files ({name}: {why}): their functions have names, but no \
             lines and no inlined functions. Keep the .dwo files where they were made or beside it, or a package of \
             them (llvm-dwp or dwp), named as it is with .dwp appended",
            missed.len()
        ))
    }

    fn packages(&self) -> &[Package<'s>] {
        self.packages.get_or_init(|| {
            let sources = (self.companions)(&Wanted::Package);
            sources.iter().map(|source| (source.name(), self.package(source))).collect()
        })
    }

    fn package(&self, source: &Source<'b>) -> Result<DwarfPackage<Bytes<'s>>, String> {
        let file = Sections::open(source)?;
        if !file.has(".debug_cu_index") {
            return Err("it is no package of split debug information".to_owned());
        }
        let empty = EndianSlice::new(&[][..], LittleEndian);
        let mut unread = None;
        // All of them: the index has ranges of each.
        let load = |id: SectionId| {
            file.of(self.store, id.dwo_name()).map_err(|why| {
                unread = Some(why);
                gimli::Error::Io
            })
        };
        let loaded = DwarfPackage::load(load, empty);
        loaded.map_err(|error| unread.unwrap_or_else(|| format!("it is damaged: {error}")))
    }

    /// The unit in a file of its own, or in an object file.
    fn object(&self, source: &Source<'b>, wanted: &SplitDwarfLoad<Bytes<'s>>) -> Result<Dwarf<Bytes<'s>>, String> {
        let file = Sections::open(source)?;
        if !file.has(".debug_info.dwo") {
            return Err("it has no split debug information".to_owned());
        }
        let dwarf = file.dwarf(self.store, SectionId::dwo_name)?;
        first(dwarf, wanted)
    }
}

/// A unit in a package.
fn packed<'s>(
    package: &DwarfPackage<Bytes<'s>>,
    wanted: &SplitDwarfLoad<Bytes<'s>>,
) -> Result<Dwarf<Bytes<'s>>, String> {
    let found = package.find_cu(wanted.dwo_id, &wanted.parent).map_err(|error| format!("it is damaged: {error}"))?;
    let dwarf = found.ok_or("it is of another build")?;
    first(dwarf, wanted)
}

/// Sections whose first unit is the one with the id that is wanted: type units may precede it, and link-time
/// optimization places several beside each other.
fn first<'s>(mut dwarf: Dwarf<Bytes<'s>>, wanted: &SplitDwarfLoad<Bytes<'s>>) -> Result<Dwarf<Bytes<'s>>, String> {
    let damaged = |error: gimli::Error| format!("it is damaged: {error}");
    dwarf.make_dwo(&wanted.parent);
    let mut units = dwarf.units();
    while let Some(header) = units.next().map_err(damaged)? {
        let is_type = matches!(header.type_(), UnitType::Type { .. } | UnitType::SplitType { .. });
        let Some(at) = header.debug_info_offset().filter(|_| !is_type) else { continue };
        let unit = dwarf.unit(header).map_err(damaged)?;
        if unit.dwo_id != Some(wanted.dwo_id) {
            continue;
        }
        nesting::check_unit(unit.unit_ref(&dwarf))?;
        let mut info = *dwarf.debug_info.reader();
        info.skip(at.0).map_err(damaged)?;
        dwarf.debug_info = DebugInfo::from(info);
        return Ok(dwarf);
    }
    Err("it is of another build".to_owned())
}
