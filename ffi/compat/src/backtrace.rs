//! [backtrace(3)](https://man7.org/linux/man-pages/man3/backtrace.3.html), and `unw_backtrace` of libunwind, which does
//! the same. Both write the return address of their own call first.

use crate::library::library;
use crate::next::Next;
use crate::part::Part;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use uunwind_core::caller::Caller;
use uunwind_core::entry_with_caller;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::stop_reason::StopReason;

static NEXT: Next = Next::of(c"backtrace");
static NEXT_OF_LIBUNWIND: Next = Next::of(c"unw_backtrace");
/// Where calls go on to, if not to the library; null: nowhere else.
static ELSEWHERE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// As [`ELSEWHERE`].
static ELSEWHERE_OF_LIBUNWIND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// To be called when it is clear whether there is a library.
pub fn begin(with_library: bool) {
    if !with_library {
        ELSEWHERE.store(NEXT.get().unwrap_or(core::ptr::null_mut()), Ordering::Release);
        ELSEWHERE_OF_LIBUNWIND.store(NEXT_OF_LIBUNWIND.get().unwrap_or(core::ptr::null_mut()), Ordering::Release);
    }
}

entry_with_caller! {
    /// See [backtrace(3)](https://man7.org/linux/man-pages/man3/backtrace.3.html).
    ///
    /// # Safety
    /// As there.
    #[cfg_attr(not(test), no_mangle)]
    backtrace(buffer: *mut u64, size: c_int) -> c_int = captured, ELSEWHERE
}

entry_with_caller! {
    /// See `unw_backtrace` of libunwind.
    ///
    /// # Safety
    /// As there.
    #[cfg_attr(not(test), no_mangle)]
    unw_backtrace(buffer: *mut u64, size: c_int) -> c_int = captured, ELSEWHERE_OF_LIBUNWIND
}

/// # Safety
/// `buffer` must have room for `size` addresses, `caller` be the entry's registers.
unsafe extern "C" fn captured(buffer: *mut u64, size: c_int, caller: *const Caller) -> c_int {
    let size = usize::try_from(size).unwrap_or(0);
    let Some(library) = library().filter(|_| size > 0 && !buffer.is_null() && buffer.is_aligned()) else { return 0 };
    let mut stop = 0;
    // SAFETY: the caller has room for `size` words, which are as large as addresses; the entry is active.
    let words = unsafe { (library.capture_for)(buffer, size, &raw mut stop, caller) };
    // SAFETY: as above.
    let room = unsafe { core::slice::from_raw_parts_mut(buffer, size) };
    let count = addresses(room, words);
    let is_cut = matches!(StopReason::from_number(stop), Some(StopReason::BufferFull | StopReason::TooManyFrames));
    // A frame in a window needs room for two words, and a capture has a limit of its own.
    if !is_cut || count == size {
        return count as c_int;
    }
    // SAFETY: the entry's registers.
    let mut part = Part::new(&unsafe { &*caller }.regs(), 0);
    let mut count = 0;
    let mut here = part.begin(library);
    for place in room {
        if here.is_err() {
            break;
        }
        *place = part.here().pc;
        count += 1;
        here = part.step(library);
    }
    count
}

/// Makes addresses of frame words, in their own place. Returns their number.
fn addresses(words: &mut [u64], len: usize) -> usize {
    let mut count = 0;
    let mut from = 0;
    while from < len {
        let Some(frame) = words.get(from..len).and_then(|rest| frames(rest).next()) else { break };
        from += match frame {
            Frame::Window { .. } | Frame::Semantic { .. } => 2,
            Frame::Native { .. } | Frame::Omitted { .. } => 1,
        };
        let (Frame::Native { address, .. } | Frame::Window { address, .. }) = frame else { continue };
        let Some(place) = words.get_mut(count) else { break };
        *place = address;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::frame::{native_word, window_identity, window_word, FLAG_EXACT};

    #[test]
    fn words_become_addresses_in_their_place() {
        let mut words =
            [native_word(0x10, FLAG_EXACT), window_word(0x20, 0), window_identity(7, 9), native_word(0x30, 0), 99];
        assert_eq!(addresses(&mut words, 4), 3);
        assert_eq!(words[..3], [0x10, 0x20, 0x30]);
    }
}
