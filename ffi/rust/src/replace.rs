//! One set of windows instead of another, at once.

use crate::window::{Order, Prepared};
use crate::{library, Error, Failed, Window, WindowBuilder};
use std::ffi::c_void;

/// The old windows, which are out of the table, and the new ones, which are in it.
type Replaced<C, D> = (Vec<Window<C>>, Vec<Window<D>>);
/// The old windows, which are in the table as before, and the new ones, which are not; and why.
type Refused<C, D> = Box<Failed<(Vec<Window<C>>, Vec<WindowBuilder<D>>)>>;

impl<C: AsRef<[u8]> + 'static> Window<C> {
    /// Unregisters the old windows and registers the new ones, at once: a walk sees all of the old ones and none of the
    /// new, or the other way round. New windows may lie where old ones did. Returns the old ones, and the new ones: new
    /// walks do not see the old ones; dropping them, or [`unregister`](Window::unregister), which gives their code
    /// back, waits for walks that still read them.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use uunwind::{Unwind, Window};
    ///
    /// // (The code of a JIT lies in memory that is executable.)
    /// let code: Arc<[u8]> = Arc::from([0xc3; 32]);
    /// let old = Window::of(Arc::clone(&code), Unwind::Opaque).function(0, 32, "stub").register()?;
    /// // The same memory has other functions from now on.
    /// let new = Window::of(code, Unwind::FramePointer).function(0, 16, "first").function(16, 16, "second");
    /// let (old, new) = Window::replace(vec![old], vec![new])?;
    /// drop(old); // no walk reads the names from before any more
    /// assert_eq!(new.len(), 1);
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`load`](crate::load); those of [`register`](WindowBuilder::register); [`Error::Os`] with `ENOENT`: an
    /// old window is out of the table already, since an earlier [`unregister`](Window::unregister) failed, or it has
    /// been replaced. Nothing has changed then: the old windows and the new ones come back with the error.
    pub fn replace<D: AsRef<[u8]> + 'static>(
        mut old: Vec<Window<C>>,
        new: Vec<WindowBuilder<D>>,
    ) -> Result<Replaced<C, D>, Refused<C, D>> {
        let call = "uu_replace_windows";
        let api = match library::get() {
            Ok(api) => api,
            Err(error) => return Err(Failed::with((old, new), error)),
        };
        // Another window may have its key by now.
        if old.iter().any(|window| window.place.ticket.is_some()) {
            return Err(Failed::with((old, new), Error::Os { call, errno: libc::ENOENT }));
        }
        let texts: Vec<*const c_void> = old.iter().map(|window| window.place.text.key()).collect();
        let mut prepared = Vec::with_capacity(new.len());
        let mut new = new.into_iter();
        while let Some(builder) = new.next() {
            match builder.prepared(0, Order::Ascending) {
                Ok(window) => prepared.push(window),
                Err(failed) => {
                    let builders = builders(prepared).chain([failed.value]).chain(new).collect();
                    return Err(Failed::with((old, builders), failed.error));
                }
            }
        }
        let windows: Vec<_> = prepared.iter().map(|new| new.window).collect();
        let mut ticket = 0;
        // SAFETY: that number of keys and of windows, and a place for the ticket. What a window points to is owned by
        // `prepared`, as in `Prepared::registered`.
        let result = unsafe {
            (api.replace_windows)(texts.as_ptr(), texts.len(), windows.as_ptr(), windows.len(), &raw mut ticket)
        };
        if let Err(error) = Error::check(call, result) {
            return Err(Failed::with((old, builders(prepared).collect()), error));
        }
        for window in &mut old {
            window.place.ticket = Some(ticket);
        }
        Ok((old, prepared.into_iter().map(Prepared::into_window).collect()))
    }
}

fn builders<D: AsRef<[u8]> + 'static>(prepared: Vec<Prepared<D>>) -> impl Iterator<Item = WindowBuilder<D>> {
    prepared.into_iter().map(Prepared::into_builder)
}
