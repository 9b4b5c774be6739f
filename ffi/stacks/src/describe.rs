//! What a frame is, in words: where it is in which object, or function, file and line of an interpreted one.

use crate::decimal::decimal;
use crate::names::{self, Name};
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::Reader;
use uunwind_core::objects::{Lookup, Memo, Object, Source, BUILD_ID_LIMIT};
use uunwind_core::plugin::{Position, LINE_IN_HANDLERS, TABLE_NONE};
use uunwind_core::syscall::{self, nr};
use uunwind_core::walk::EMBEDDER;
use uunwind_live::state::{OBJECTS, PLUGINS};
use uunwind_live::tables;

/// Room for a function's name, and for a file's.
pub const FUNCTION: usize = 512;
/// See [`FUNCTION`].
pub const FILE: usize = 1024;

/// `struct uu_frame_info` of `uu.h`. Texts are UTF-8 and end with a NUL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FrameInfo {
    /// Size of the structure.
    pub size: u32,
    /// Kind of the frame (`uunwind_core::frame::KIND_*`).
    pub kind: u32,
    /// A sum of [`EXACT`], [`BY_FRAME_POINTER`], [`INTERPRETER`], [`CUT`] and
    /// [`BY_CODE`].
    pub flags: u32,
    /// Line that executes; 0: not available.
    pub line: u32,
    /// Line on which the function begins; 0: not available.
    pub first_line: u32,
    /// Frames that were left out here, of that kind of frame; else 0.
    pub omitted: u32,
    /// Process address of the machine instruction, or return address; 0 for other frames.
    pub address: u64,
    /// The same as an address in its object's file, as in its symbol table; 0 without an object.
    pub file_address: u64,
    /// The same as an offset in that file.
    pub file_offset: u64,
    /// Semantic frames: the position, in the plugin's own unit.
    pub position: u64,
    /// Bytes of the build-id.
    pub build_id_len: u32,
    /// For later versions; zero.
    pub reserved: u32,
    /// The object's build-id.
    pub build_id: [u8; BUILD_ID_LIMIT],
    /// Name of the plugin that emitted the frame.
    pub language: [u8; 16],
    /// Function, if it is known here.
    pub function: [u8; FUNCTION],
    /// Source file of a semantic frame; path of a native one's object.
    pub file: [u8; FILE],
}

/// [`FrameInfo::flags`]: `address` is the interrupted instruction itself, not a return address.
pub const EXACT: u32 = 1;
/// [`FrameInfo::flags`]: found by following a frame pointer.
pub const BY_FRAME_POINTER: u32 = 2;
/// [`FrameInfo::flags`]: an interpreter's own frame.
pub const INTERPRETER: u32 = 4;
/// [`FrameInfo::flags`]: a text had no room.
pub const CUT: u32 = 8;
/// [`FrameInfo::flags`]: the rule that leads from here to the caller was made from the machine code.
pub const BY_CODE: u32 = 16;

impl FrameInfo {
    /// What no frame has filled in: of no kind, all texts empty.
    pub const EMPTY: FrameInfo = FrameInfo {
        size: size_of::<FrameInfo>() as u32,
        kind: 0,
        flags: 0,
        line: 0,
        first_line: 0,
        omitted: 0,
        address: 0,
        file_address: 0,
        file_offset: 0,
        position: 0,
        build_id_len: 0,
        reserved: 0,
        build_id: [0; BUILD_ID_LIMIT],
        language: [0; 16],
        function: [0; FUNCTION],
        file: [0; FILE],
    };

    /// Forgets everything but the size. The texts become empty.
    fn clear(&mut self) {
        (self.kind, self.flags, self.line, self.first_line, self.omitted) = (0, 0, 0, 0, 0);
        (self.address, self.file_address, self.file_offset, self.position) = (0, 0, 0, 0);
        (self.build_id_len, self.build_id, self.language) = (0, [0; BUILD_ID_LIMIT], [0; 16]);
        for first in [self.function.first_mut(), self.file.first_mut()].into_iter().flatten() {
            *first = 0;
        }
    }

    fn describe_native(&mut self, address: u64, flags: [bool; 4]) {
        self.address = address;
        for (is_set, flag) in flags.into_iter().zip([EXACT, BY_FRAME_POINTER, INTERPRETER, BY_CODE]) {
            self.flags |= if is_set { flag } else { 0 };
        }
    }

    /// The object under the frame. `exact`: `address` is no return address, which may lie after the object's end.
    fn describe_object(&mut self, address: u64, exact: bool, reader: &mut Reader<'_>) {
        let lookup = address.wrapping_sub(u64::from(!exact));
        let made;
        let object = match OBJECTS.find(lookup, &mut Memo::default(), reader) {
            Lookup::Object(loaded) => loaded.object,
            Lookup::Nothing => return,
            Lookup::Full => {
                let Some(object) = OBJECTS.make(lookup, reader) else { return };
                made = object;
                &made
            }
        };
        self.file_address = address.wrapping_sub(object.bias);
        let before = object.file_offset(lookup, reader);
        self.file_offset = before.map_or(0, |offset| offset.wrapping_add(address.wrapping_sub(lookup)));
        let id = object.build_id.as_bytes();
        self.build_id_len = id.len() as u32;
        for (to, from) in self.build_id.iter_mut().zip(id) {
            *to = *from;
        }
        self.path_of(object, reader);
        // Walks do not look which source a rule has: the table of the object that is there now knows.
        let table = tables::of(object, Source::Process, None);
        let by_code = table.is_some_and(|table| table.is_by_code(lookup.wrapping_sub(object.bias)));
        self.flags |= if by_code { BY_CODE } else { 0 };
    }

    /// The loader's name of an object; that of the program is empty, and asked from the kernel.
    fn path_of(&mut self, object: &Object, reader: &mut Reader<'_>) {
        // `l_name` is the second word of a link map (https://man7.org/linux/man-pages/man3/dlinfo.3.html).
        let name = reader.word(object.link_map.wrapping_add(8)).filter(|name| *name != 0);
        let mut len = 0;
        if let Some(name) = name {
            for byte in &mut self.file {
                let Some(read) = reader.u8(name.wrapping_add(len as u64)).filter(|read| *read != 0) else { break };
                *byte = read;
                len += 1;
            }
        }
        if len == 0 {
            const AT_FDCWD: usize = -100isize as usize;
            // Of the thread: the first one may have ended.
            let path = c"/proc/thread-self/exe".as_ptr() as usize;
            // SAFETY: readlinkat writes at most FILE bytes (https://man7.org/linux/man-pages/man2/readlink.2.html).
            let got =
                unsafe { syscall::call(nr::READLINKAT, [AT_FDCWD, path, self.file.as_mut_ptr() as usize, FILE, 0, 0]) };
            len = usize::try_from(got).unwrap_or(0);
        }
        // A text that fills the room has none for its NUL, and is longer for all that is known.
        self.flags |= if len >= FILE { CUT } else { 0 };
        if let Some(end) = self.file.get_mut(len.min(FILE - 1)) {
            *end = 0;
        }
    }

    fn describe_name(&mut self, name: &Name<'_>) {
        self.first_line = name.first_line;
        for (text, room) in [(name.function, &mut self.function[..]), (name.file, &mut self.file[..])] {
            let last = room.len().saturating_sub(1);
            let (len, whole) = text.write(room.get_mut(..last).unwrap_or(&mut []));
            if let Some(end) = room.get_mut(len) {
                *end = 0;
            }
            self.flags |= if whole { 0 } else { CUT };
        }
    }

    fn describe_semantic(&mut self, plugin: u8, name: u32, position: u64) {
        self.position = position;
        if plugin == EMBEDDER {
            self.language = *b"embedder\0\0\0\0\0\0\0\0";
        } else if let Some(plugin) = PLUGINS.get_any(plugin) {
            self.language = plugin.name;
        }
        let Some(name) = names::get(name) else { return };
        self.describe_name(&name);
        if name.function.bytes.is_empty() {
            self.name_by_place();
        }
        self.line = line(plugin, &name, position);
    }

    /// A function that its runtime gives no name is named by where it begins, as in reports (`function_of` in
    /// `profiler/report/src/resolve.rs`): `function <FILE:LINE>`.
    fn name_by_place(&mut self) {
        const BEFORE: &[u8] = b"function <";
        /// Bytes for the file: the rest is the text around it, the line's ten digits, and the NUL.
        const ROOM: usize = FUNCTION - BEFORE.len() - 13;
        let file = until_nul(&self.file);
        // In brackets, runtimes name code that is in no file, some by its text, which may contain any characters.
        let file = match file.first() {
            Some(b'[' | b'<') => file,
            _ => file.rsplit(|byte| *byte == b'/').next().unwrap_or(file),
        };
        let mut kept = file.len().min(ROOM);
        while file.get(kept).is_some_and(|byte| byte & 0xc0 == 0x80) {
            kept = kept.saturating_sub(1);
        }
        self.flags |= if kept < file.len() { CUT } else { 0 };
        let mut digits = [0; 20];
        let digits = decimal(self.first_line.into(), &mut digits);
        let texts = [BEFORE, file.get(..kept).unwrap_or(&[]), b":", digits, b">\0"];
        for (to, from) in self.function.iter_mut().zip(texts.into_iter().flatten()) {
            *to = *from;
        }
    }
}

/// The line of a position; 0: not available. Where the plugin's decoder is no signal code, the line stays unknown.
fn line(plugin: u8, name: &Name<'_>, position: u64) -> u32 {
    if name.table_kind == TABLE_NONE {
        return u32::try_from(position).unwrap_or(0);
    }
    let decoder = PLUGINS.get_any(plugin).filter(|plugin| plugin.flags & LINE_IN_HANDLERS != 0);
    let Some(decode) = decoder.and_then(|plugin| plugin.line) else { return 0 };
    let position = Position {
        size: size_of::<Position>() as u32,
        table_kind: name.table_kind,
        first_line: name.first_line,
        reserved: 0,
        table: name.table.as_ptr(),
        table_len: name.table.len(),
        position,
    };
    // SAFETY: the plugin's function, which says of itself that it may be called here.
    unsafe { decode(&raw const position) }
}

/// A text up to its NUL.
pub fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or(&[])
}

/// Describes the frame that begins with the first of these words. Returns how many words it has; `None`: they are no
/// frame's. Async-signal-safe.
pub fn describe(words: &[u64], info: &mut FrameInfo, reader: &mut Reader<'_>) -> Option<usize> {
    info.clear();
    let frame = frames(words).next()?;
    info.kind = u32::from(frame.kind());
    match frame {
        Frame::Native { address, exact, by_frame_pointer, interpreter, by_code } => {
            info.describe_native(address, [exact, by_frame_pointer, interpreter, by_code]);
            info.describe_object(address, exact, reader);
            Some(1)
        }
        Frame::Window { address, exact, by_frame_pointer, interpreter, by_code, name, .. } => {
            info.describe_native(address, [exact, by_frame_pointer, interpreter, by_code]);
            if let Some(name) = names::get(name) {
                info.describe_name(&name);
            }
            Some(2)
        }
        Frame::Semantic { plugin, name, position, .. } => {
            info.describe_semantic(plugin, name, position);
            Some(2)
        }
        Frame::Omitted { frames } => {
            info.omitted = frames;
            Some(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_named(file: &str, first_line: u32, function: &str, flags: u32) {
        let mut info = FrameInfo { first_line, ..FrameInfo::EMPTY };
        info.file[..file.len()].copy_from_slice(file.as_bytes());
        info.name_by_place();
        let named = info.function.split(|byte| *byte == 0).next().unwrap();
        assert_eq!((std::str::from_utf8(named), info.flags), (Ok(function), flags));
    }

    #[test]
    fn a_function_without_a_name_is_named_by_its_place() {
        is_named("/a/b/c.lua", 23, "function <c.lua:23>", 0);
        is_named("[string \"a/b\"]", 0, "function <[string \"a/b\"]:0>", 0);
        is_named("", u32::MAX, "function <:4294967295>", 0);
        // 489 bytes have room, half a character does not.
        let long = "\u{e4}".repeat(300);
        is_named(&long, u32::MAX, &format!("function <{}:4294967295>", &long[..488]), CUT);
    }
}
