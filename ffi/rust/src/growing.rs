//! Code to which functions are added while it is registered.

use crate::window::{Entry, Order};
use crate::{library, sys, Error, Failed, Ticket, Window, WindowBuilder};
use std::sync::atomic::Ordering;

/// A window to which functions are added: for a JIT that fills a block of code from its beginning, or from its end.
///
/// ```
/// use uunwind::{Unwind, Window};
///
/// let code = vec![0xc3; 4096]; // (The code of a JIT lies in memory that is executable.)
/// let mut window = Window::of(code, Unwind::FramePointer).register_growing(100)?;
/// window.add(0, 48, "first")?; // its code has been written: walks that begin afterwards see it
/// window.add(48, 16, "second")?;
/// window.retire(0)?; // it is not called any more
/// let window = window.seal()?; // the block is full
/// drop(window);
/// # Ok::<(), uunwind::Error>(())
/// ```
#[derive(Debug)]
pub struct GrowingWindow<C: AsRef<[u8]> + 'static> {
    window: Window<C>,
    /// Functions in its table.
    count: usize,
    /// Distances in bytes between which the next function may lie.
    free: (u64, u64),
}

impl<C: AsRef<[u8]> + 'static> WindowBuilder<C> {
    /// As [`register`](WindowBuilder::register), with room for this number of functions that are added later, each
    /// after those that are there.
    ///
    /// # Errors
    /// As there; also [`Error::Os`] with `EINVAL`: there would be room for none, or for 2^32 functions; with
    /// `ENOMEM`: there is no memory for that number.
    pub fn register_growing(self, functions: usize) -> Result<GrowingWindow<C>, Box<Failed<WindowBuilder<C>>>> {
        self.register_in(functions, Order::Ascending)
    }

    /// As [`register_growing`](WindowBuilder::register_growing), but each function is added before those that are
    /// there: for a block that is filled from its end.
    ///
    /// ```
    /// use uunwind::{Unwind, Window};
    ///
    /// let code = vec![0xc3; 4096]; // (The code of a JIT lies in memory that is executable.)
    /// let mut window = Window::of(code, Unwind::FramePointer).register_growing_down(100)?;
    /// window.add(4048, 48, "first")?;
    /// window.add(4032, 16, "second")?;
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// As there.
    pub fn register_growing_down(self, functions: usize) -> Result<GrowingWindow<C>, Box<Failed<WindowBuilder<C>>>> {
        self.register_in(functions, Order::Descending)
    }

    fn register_in(self, functions: usize, order: Order) -> Result<GrowingWindow<C>, Box<Failed<WindowBuilder<C>>>> {
        if functions == 0 || u32::try_from(functions).is_err() {
            let error = Error::Os { call: "uu_register_window", errno: libc::EINVAL };
            return Err(Failed::with(self, error));
        }
        let prepared = self.prepared(functions, order)?;
        let count = prepared.parts.names.len();
        let present = || prepared.parts.table.get().iter().take(count);
        let lowest = present().map(|entry| u64::from(entry.0.start)).min();
        let end = present().map(|entry| u64::from(entry.0.start) + u64::from(entry.0.len)).max();
        let len = prepared.window.text_len as u64;
        let free = match order {
            Order::Ascending => (end.unwrap_or(0), len),
            Order::Descending => (0, lowest.unwrap_or(len)),
        };
        Ok(GrowingWindow { window: prepared.registered()?, count, free })
    }
}

impl<C: AsRef<[u8]> + 'static> GrowingWindow<C> {
    /// Adds a function after those that are there, or before them
    /// ([`register_growing_down`](WindowBuilder::register_growing_down)), whose code has been written: `start` and
    /// `len` in bytes, from the code's first byte.
    ///
    /// # Errors
    /// [`Error::Os`] with `EINVAL`: it is empty, does not lie after (before) all others, or reaches beyond the code;
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
        let order = self.window.order();
        let Some(parts) = &mut self.window.parts else { return failed(libc::ENOENT) };
        let (begin, end) = (u64::from(start), u64::from(start) + u64::from(len));
        if len == 0 || begin < self.free.0 || end > self.free.1 {
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
        match order {
            Order::Ascending => self.free.0 = end,
            Order::Descending => self.free.1 = begin,
        }
        parts.published.get().store(self.count as u64, Ordering::Release);
        Ok(())
    }

    /// Retires a function: see [`Window::retire`].
    ///
    /// # Errors
    /// As there.
    pub fn retire(&mut self, start: u32) -> Result<Ticket, Error> {
        self.window.retire(start)
    }

    /// Ends the growth: what walks did not find here, they need not look for again.
    ///
    /// # Errors
    /// [`Error::Os`] with `EDEADLK`: a walk of this thread is under way. The window comes back with the error.
    pub fn seal(self) -> Result<Window<C>, Box<Failed<GrowingWindow<C>>>> {
        // SAFETY: the key of a window.
        let sealed = library::get().map(|api| unsafe { (api.seal_window)(self.window.place.text.key()) });
        match sealed.and_then(|result| Error::check("uu_seal_window", result)) {
            Ok(()) => Ok(self.window),
            Err(error) => Err(Failed::with(self, error)),
        }
    }

    /// The code.
    pub fn code(&self) -> &[u8] {
        self.window.code()
    }
}
