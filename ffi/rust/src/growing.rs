//! Code to which functions are added while it is registered.

use crate::window::Entry;
use crate::{library, sys, Error, Window, WindowBuilder};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// A window to which functions are added: for a JIT that fills a block of code from its beginning.
///
/// ```
/// use uunwind::{Unwind, Window};
///
/// let code = vec![0xc3; 4096]; // (The code of a JIT lies in memory that is executable.)
/// let mut window = Window::of(code, Unwind::FramePointer).register_growing(100)?;
/// window.add(0, 48, "first")?; // its code has been written: walks that begin afterwards see it
/// window.add(48, 16, "second")?;
/// let window = window.seal().map_err(|failed| failed.1)?; // the block is full
/// drop(window);
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Debug)]
pub struct GrowingWindow<C: AsRef<[u8]> + 'static> {
    window: Window<C>,
    /// Functions in its table.
    count: usize,
    /// Distance in bytes of the first byte after the last function.
    end: u64,
}

impl<C: AsRef<[u8]> + 'static> WindowBuilder<C> {
    /// As [`register`](WindowBuilder::register), with room for this number of functions that are added later.
    ///
    /// # Errors
    /// As there; also [`Error::Os`] with `EINVAL`: there would be room for none, or for 2^32 functions; with
    /// `ENOMEM`: there is no memory for that number.
    pub fn register_growing(self, functions: usize) -> Result<GrowingWindow<C>, Error> {
        if functions == 0 || u32::try_from(functions).is_err() {
            return Err(Error::Os { call: "uu_register_window", errno: libc::EINVAL });
        }
        let prepared = self.prepared(functions)?;
        let present = prepared.parts.table.get().iter().take(prepared.parts.names.len());
        let end = present.map(|entry| u64::from(entry.0.start) + u64::from(entry.0.len)).max().unwrap_or(0);
        let count = prepared.parts.names.len();
        Ok(GrowingWindow { window: prepared.registered()?, count, end })
    }
}

impl<C: AsRef<[u8]> + 'static> GrowingWindow<C> {
    /// Adds a function after those that are there, whose code has been written: `start` and `len` in bytes, from the
    /// code's first byte.
    ///
    /// # Errors
    /// [`Error::Os`] with `EINVAL`: it is empty, begins before the last function's end, or ends beyond the code;
    /// `ENOSPC`: there is no room for another one.
    pub fn add(&mut self, start: u32, len: u32, name: &str) -> Result<(), Error> {
        self.add_at(start, len, name, sys::NO_UNWIND)
    }

    /// As [`add`](Self::add), with the distance in bytes of its FDE from the beginning of
    /// [`Unwind::EhFrame`](crate::Unwind::EhFrame)'s list.
    ///
    /// # Errors
    /// As there.
    pub fn add_with_fde(&mut self, start: u32, len: u32, name: &str, fde: u32) -> Result<(), Error> {
        self.add_at(start, len, name, fde)
    }

    fn add_at(&mut self, start: u32, len: u32, name: &str, unwind: u32) -> Result<(), Error> {
        let failed = |errno| Err(Error::Os { call: "uu_publish", errno });
        let size = self.code().len() as u64;
        let Some(parts) = &mut self.window.parts else { return failed(libc::ENOENT) };
        let end = u64::from(start) + u64::from(len);
        if len == 0 || u64::from(start) < self.end || end > size {
            return failed(libc::EINVAL);
        }
        if self.count >= parts.table.get().len() {
            return failed(libc::ENOSPC);
        }
        let name = name.to_owned();
        let entry = Entry::of(start, len, unwind, &name);
        // SAFETY: an entry of the table, which this thread alone writes, and which walks do not read before it is
        // published.
        unsafe { parts.table.address().cast::<Entry>().add(self.count).write(entry) };
        parts.names.push(name);
        self.count += 1;
        self.end = end;
        parts.published.get().store(self.count as u64, Ordering::Release);
        Ok(())
    }

    /// Ends the growth: what walks did not find here, they need not look for again.
    ///
    /// # Errors
    /// [`Error::Os`] with `EDEADLK`: a walk of this thread is under way. The window comes back with the error.
    pub fn seal(self) -> Result<Window<C>, Box<(GrowingWindow<C>, Error)>> {
        let text = self.window.place.text as *const c_void;
        // SAFETY: the key of a window.
        let sealed = library::get().map(|api| unsafe { (api.seal_window)(text) });
        match sealed.and_then(|result| Error::check("uu_seal_window", result)) {
            Ok(()) => Ok(self.window),
            Err(error) => Err(Box::new((self, error))),
        }
    }

    /// The code.
    pub fn code(&self) -> &[u8] {
        self.window.code()
    }
}
