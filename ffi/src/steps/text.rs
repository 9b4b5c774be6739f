//! What a step that is no machine frame is, in words.

use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::Reader;
use uunwind_core::steps::{Step, MISSING_STACK, MISSING_WALK};
use uunwind_stacks::decimal::decimal;
use uunwind_stacks::describe::{describe, until_nul, FrameInfo};
use uunwind_stacks::names::whole_characters;
use uunwind_stacks::request::doubt_text;

/// A text of which as much is written as there is room for.
struct Text<'t> {
    room: &'t mut [u8],
    /// How long it is.
    len: usize,
}

impl Text<'_> {
    fn add(&mut self, bytes: &[u8]) -> &mut Self {
        for byte in bytes {
            if let Some(place) = self.room.get_mut(self.len) {
                *place = *byte;
            }
            self.len = self.len.saturating_add(1);
        }
        self
    }

    fn number(&mut self, number: u32) -> &mut Self {
        self.add(decimal(number.into(), &mut [0; 20]))
    }
}

/// See [`uunwind_core::library::Library::step_text`].
///
/// # Safety
/// `step` must be valid, `text` have room for `room` bytes.
pub unsafe extern "C" fn step_text(step: *const Step, text: *mut u8, room: usize) -> usize {
    // SAFETY: the caller's.
    let (step, room) = unsafe { (&*step, core::slice::from_raw_parts_mut(text, room)) };
    let mut text = Text { room, len: 0 };
    write(step, &mut text);
    if text.len > text.room.len() {
        let whole = whole_characters(text.room).len();
        text.room.get_mut(whole..).unwrap_or_default().fill(0);
    }
    text.len
}

fn write(step: &Step, text: &mut Text<'_>) {
    let words = [step.pc, step.sp];
    let frame = frames(&words).next();
    match frame {
        Some(Frame::Omitted { frames }) => {
            match step.sp as u32 {
                0 => text.add(b"[").number(frames).add(b" frames left out]"),
                missing => text.add(b"[").add(missing_text(missing).as_bytes()).add(b"]"),
            };
        }
        Some(Frame::Semantic { .. }) => {
            let mut info = FrameInfo::EMPTY;
            // Always probed, as for `uu_describe`.
            let _ = describe(&words, &mut info, &mut Reader::probed());
            let [function, file, language] = [&info.function[..], &info.file, &info.language].map(until_nul);
            if function.is_empty() {
                text.add(b"[").add(language).add(b", no room for its name]");
                return;
            }
            text.add(function);
            if !file.is_empty() {
                text.add(b" (").add(file);
                if info.line != 0 {
                    text.add(b":").number(info.line);
                }
                text.add(b")");
            }
        }
        _ => {}
    }
}

/// Why frames of languages may be missing.
fn missing_text(missing: u32) -> &'static str {
    if missing & MISSING_WALK != 0 {
        "frames of languages are missing: the thread is inside another walk, or there is no memory for one"
    } else if missing & MISSING_STACK != 0 {
        "frames of languages are missing: the stack may be another one than the thread's"
    } else {
        doubt_text(missing as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::frame::omitted_word;
    use uunwind_core::steps::{IN_WORDS, MISSING_BY_PLUGIN};

    fn text(step: &Step, room: usize) -> (String, usize) {
        let mut bytes = vec![0; room];
        // SAFETY: a step, and room for this number of bytes.
        let len = unsafe { step_text(step, bytes.as_mut_ptr(), room) };
        bytes.truncate(len);
        (String::from_utf8(bytes).expect("UTF-8"), len)
    }

    #[test]
    fn what_is_missing_is_said() {
        let step = |pc, sp: u32| Step { pc, sp: sp.into(), flags: IN_WORDS, ..Step::NONE };
        assert_eq!(text(&step(omitted_word(12_345), 0), 99).0, "[12345 frames left out]");
        assert_eq!(text(&step(omitted_word(12_345), 0), 5), ("[1234".to_owned(), 23));
        let doubt = text(&step(omitted_word(0), MISSING_BY_PLUGIN), 99).0;
        assert_eq!(doubt, "[frames of a language are missing or uncertain]");
        assert!(text(&step(omitted_word(0), MISSING_WALK), 200).0.contains("inside another walk"));
        assert_eq!(text(&step(0, 0), 9), (String::new(), 0));
    }
}
