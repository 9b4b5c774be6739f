//! What a frame is, in words, where nothing may be allocated.

use crate::sys::{FrameInfo, INFO_BY_CODE, INFO_CUT};
use crate::{library, Error};
use std::ffi::OsStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A frame in words, as a signal handler can have it (`struct uu_frame_info` of `uu.h`): 1.7 KiB, nothing else.
///
/// ```
/// use std::ops::ControlFlow;
/// uunwind::load()?;
/// uunwind::Walk::new().each(|frame| {
///     let here = frame.describe().expect("a frame of this process");
///     assert_eq!(here.file(), std::fs::read_link("/proc/self/exe").unwrap());
///     assert!(here.file_offset().is_some() && here.line().is_none());
///     ControlFlow::Break(())
/// })?;
/// # Ok::<(), uunwind::Error>(())
/// ```
pub struct Description(FrameInfo);

impl Description {
    pub(crate) fn of(words: &[u64]) -> Option<Description> {
        let api = library::found()?;
        let mut info = MaybeUninit::<FrameInfo>::zeroed();
        // SAFETY: zeros are a valid structure, of which only the size is set; the words are those of a whole frame.
        unsafe {
            (*info.as_mut_ptr()).size = size_of::<FrameInfo>() as u32;
            ((api.describe)(words.as_ptr(), info.as_mut_ptr()) > 0).then(|| Description(info.assume_init()))
        }
    }

    /// Frames of languages and of windows: the function. Empty: it has no name, or the frame is a native one.
    pub fn function(&self) -> &str {
        text(&self.0.function)
    }

    /// Frames of languages: the source file; native ones: the path by which the object was loaded. Empty: not
    /// available.
    pub fn file(&self) -> &Path {
        Path::new(OsStr::from_bytes(bytes(&self.0.file)))
    }

    /// Frames of languages: the name of the plugin.
    pub fn language(&self) -> &str {
        text(&self.0.language)
    }

    /// Frames of languages: the line that executes.
    pub fn line(&self) -> Option<u32> {
        (self.0.line != 0).then_some(self.0.line)
    }

    /// Frames of languages: the line on which the function begins.
    pub fn first_line(&self) -> Option<u32> {
        (self.0.first_line != 0).then_some(self.0.first_line)
    }

    /// Native frames: the address as the object's file has it in its symbol table.
    pub fn file_address(&self) -> Option<u64> {
        (self.0.file_address != 0).then_some(self.0.file_address)
    }

    /// Native frames: the offset in the object's file, in bytes.
    pub fn file_offset(&self) -> Option<u64> {
        (self.0.file_address != 0).then_some(self.0.file_offset)
    }

    /// Native frames: the object's GNU build-id, at most 32 bytes of it; empty: it has none.
    pub fn build_id(&self) -> &[u8] {
        self.0.build_id.get(..self.0.build_id_len as usize).unwrap_or(&self.0.build_id)
    }

    /// Whether nothing but the machine code describes the code here: the rule that leads to the caller was made from
    /// it.
    pub fn is_by_code(&self) -> bool {
        self.0.flags & INFO_BY_CODE != 0
    }

    /// Whether a text was cut.
    pub fn is_cut(&self) -> bool {
        self.0.flags & INFO_CUT != 0
    }
}

/// How often a frame stayed without a name because there was no room for it: 64 MiB of names, or what the kernel gives.
/// Such a frame has another try in each walk. Async-signal-safe once [`load`](crate::load) has succeeded.
///
/// ```
/// assert_eq!(uunwind::names_lost()?, 0);
/// # Ok::<(), uunwind::Error>(())
/// ```
///
/// # Errors
/// Those of [`load`](crate::load).
pub fn names_lost() -> Result<u64, Error> {
    // SAFETY: the function has no preconditions.
    Ok(unsafe { (library::get()?.names_lost)() })
}

/// What stands before the NUL.
fn bytes(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn text(text: &[u8]) -> &str {
    std::str::from_utf8(bytes(text)).unwrap_or_default()
}

impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (function, file, line) = (self.function(), self.file(), self.line());
        let address = self.file_address();
        f.debug_struct("Description")
            .field("function", &function)
            .field("file", &file)
            .field("line", &line)
            .field("file_address", &address)
            .finish_non_exhaustive()
    }
}
