//! The DWARF sections of an ELF file, as they are there or decompressed. Any bytes may be passed: what is read and made
//! of all files together has a limit.

use super::kept::{self, Packed};
use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection, ReadCache, ReadRef, SectionFlags};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use typed_arena::Arena;
use uunwind_elf::private_folder::Drawer;
use uunwind_elf::{compressed, files, FileId};

/// Most bytes of sections that are used for one object, decompressed.
const LIMIT: u64 = 2 << 30;
/// Sections that no name, line or inlined function is read from.
const UNUSED: &[SectionId] = &[
    // What addr2line makes of it is in the units' entries, too; which units are read, it says elsewhere.
    SectionId::DebugAranges,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugNames,
    SectionId::DebugTypes,
];

/// A section's bytes, which a [`Store`] holds.
pub type Bytes<'s> = EndianSlice<'s, LittleEndian>;

/// What was read, as long as anything refers to it.
pub struct Store<'k> {
    bytes: Arena<Vec<u8>>,
    /// Where decompressed sections are kept.
    kept: Option<&'k Drawer>,
    /// Bytes that may still be read.
    left: Cell<u64>,
}

impl<'k> Store<'k> {
    /// An empty one. `kept`: where decompressed sections are kept, if anywhere.
    pub fn new(kept: Option<&'k Drawer>) -> Store<'k> {
        Store { bytes: Arena::new(), kept, left: Cell::new(LIMIT) }
    }

    /// Keeps these bytes.
    pub fn keep(&self, bytes: Vec<u8>) -> Bytes<'_> {
        self.left.set(self.left.get().saturating_sub(bytes.len() as u64));
        EndianSlice::new(self.bytes.alloc(bytes), LittleEndian)
    }
}

/// An ELF file that may be read.
#[derive(Clone, Debug)]
pub enum Source<'b> {
    /// It lies there.
    Path(PathBuf),
    /// Its bytes.
    Image(&'b [u8]),
}

impl Source<'_> {
    /// What people call it.
    pub fn name(&self) -> String {
        match self {
            Source::Path(path) => path.display().to_string(),
            Source::Image(_) => "an image in memory".to_owned(),
        }
    }
}

/// How a section's bytes are packed.
#[derive(Clone, Copy)]
enum Packing {
    None,
    /// `SHF_COMPRESSED`.
    Gabi,
    /// `.zdebug_*`.
    Old,
}

struct Section {
    name: String,
    offset: u64,
    size: u64,
    packing: Packing,
}

/// An open ELF file, and where its debug sections lie.
pub struct Sections<'b> {
    content: Content<'b>,
    listed: Listed,
}

enum Content<'b> {
    File(File),
    Image(&'b [u8]),
}

#[derive(Default)]
struct Listed {
    sections: Vec<Section>,
    /// `.gnu_debugaltlink`: file name and build-id of the supplementary file, which dwz(1) makes.
    supplement: Option<(Vec<u8>, Vec<u8>)>,
}

impl<'b> Sections<'b> {
    /// Lists the debug sections of a file. The error says why it cannot be read.
    pub fn open(source: &Source<'b>) -> Result<Sections<'b>, String> {
        let (content, listed) = match source {
            Source::Path(path) => {
                let file = open(path)?;
                let listed = list(&ReadCache::new(&file)).map_err(|error| error.to_string())?;
                (Content::File(file), listed)
            }
            Source::Image(bytes) => (Content::Image(bytes), list(*bytes).map_err(|error| error.to_string())?),
        };
        Ok(Sections { content, listed })
    }

    /// Whether there is a section of this name.
    pub fn has(&self, name: &str) -> bool {
        self.listed.sections.iter().any(|section| section.name == name)
    }

    /// File name and build-id of the supplementary file.
    pub fn supplement(&self) -> Option<(&[u8], &[u8])> {
        self.listed.supplement.as_ref().map(|(name, id)| (&**name, &**id))
    }

    /// The DWARF sections that are used, by the names that `name` gives them; the others are empty.
    pub fn dwarf<'s>(
        &self,
        store: &'s Store<'_>,
        name: fn(SectionId) -> Option<&'static str>,
    ) -> Result<Dwarf<Bytes<'s>>, String> {
        Dwarf::load(|id| self.of(store, name(id).filter(|_| !UNUSED.contains(&id))))
    }

    /// The sections of a name, one after the other: type units have some of their own in an object file. Empty if there
    /// are none.
    pub fn of<'s>(&self, store: &'s Store<'_>, name: Option<&str>) -> Result<Bytes<'s>, String> {
        let (mut all, mut left) = (Vec::new(), store.left.get());
        for section in self.listed.sections.iter().filter(|section| Some(&*section.name) == name) {
            let unread = |why: &str| format!("its debug information cannot be read: {}: {why}", section.name);
            let content = self.content(section, left, store.kept).map_err(|why| unread(&why))?;
            left = left.saturating_sub(content.len() as u64);
            if all.is_empty() {
                all = content;
            } else {
                all.extend(content);
            }
        }
        Ok(store.keep(all))
    }

    /// What a section holds, at most `left` bytes.
    fn content(&self, section: &Section, left: u64, folder: Option<&Drawer>) -> Result<Vec<u8>, String> {
        if section.size > left {
            return Err(format!("of an object's debug information, at most {LIMIT} bytes are read"));
        }
        let read = || self.content.read(section.offset, section.size).map_err(|error| error.to_string());
        let place = (section.offset, section.size);
        let packed = Packed { file: &|| self.content.identity(), name: &section.name, place, read: &read };
        match section.packing {
            Packing::None => read(),
            Packing::Gabi => kept::section(folder, &packed, left, |bytes| compressed::section(bytes, left)),
            Packing::Old => kept::section(folder, &packed, left, |bytes| compressed::old_section(bytes, left)),
        }
    }
}

impl Content<'_> {
    /// Which file it is, if its content may be kept.
    fn identity(&self) -> Option<FileId> {
        match self {
            Content::File(file) => FileId::settled(&file.metadata().ok()?),
            Content::Image(_) => None,
        }
    }

    /// Needs no more memory than there are bytes; too little memory is an error.
    fn read(&self, offset: u64, size: u64) -> std::io::Result<Vec<u8>> {
        let cut = || std::io::Error::other("the file ends before it does");
        let end = offset.checked_add(size).ok_or_else(cut)?;
        let mut bytes = Vec::new();
        match self {
            Content::File(file) => {
                if end > file.metadata()?.len() {
                    return Err(cut());
                }
                bytes.try_reserve_exact(size as usize).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
                bytes.resize(size as usize, 0);
                file.read_exact_at(&mut bytes, offset)?;
            }
            Content::Image(image) => {
                bytes.extend_from_slice(image.get(offset as usize..end as usize).ok_or_else(cut)?);
            }
        }
        Ok(bytes)
    }
}

/// Opens a file that has content: those of /proc and of tracefs, some of which reading changes, say that they have
/// none.
fn open(path: &Path) -> Result<File, String> {
    if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) {
        return Err("it is empty".to_owned());
    }
    files::open(path).map_err(|error| error.to_string())
}

fn list<'d, R: ReadRef<'d>>(data: R) -> object::Result<Listed> {
    let elf = object::File::parse(data)?;
    let mut listed = Listed::default();
    if !elf.is_little_endian() {
        return Ok(listed);
    }
    for section in elf.sections() {
        let (Ok(name), Some((offset, size))) = (section.name(), section.file_range()) else { continue };
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        let gabi = sh_flags & u64::from(object::elf::SHF_COMPRESSED) != 0;
        let (name, packing) = match name.strip_prefix(".zdebug_") {
            Some(rest) => (format!(".debug_{rest}"), Packing::Old),
            None if name.starts_with(".debug_") => (name.to_owned(), if gabi { Packing::Gabi } else { Packing::None }),
            None => continue,
        };
        listed.sections.push(Section { name, offset, size, packing });
    }
    listed.supplement = elf.gnu_debugaltlink().ok().flatten().map(|(name, id)| (name.to_vec(), id.to_vec()));
    Ok(listed)
}
