//! One set of windows instead of another, at once.

use crate::window::Prepared;
use crate::{library, Error, Window, WindowBuilder};
use std::ffi::c_void;

/// The old windows, which are out of the table, and the new ones, which are in it.
type Replaced<C, D> = (Vec<Window<C>>, Vec<Window<D>>);
/// The old windows, which are in the table as before, and why.
type Refused<C> = Box<(Vec<Window<C>>, Error)>;

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
    /// let (old, new) = Window::replace(vec![old], vec![new]).map_err(|failed| failed.1)?;
    /// drop(old); // no walk reads the names from before any more
    /// assert_eq!(new.len(), 1);
    /// # Ok::<(), uunwind::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`load`](crate::load); those of [`register`](WindowBuilder::register); [`Error::Os`] with `ENOENT`: an
    /// old window is out of the table already, since an earlier [`unregister`](Window::unregister) failed, or it has
    /// been replaced. Nothing has changed then: the old windows come back with the error, and the new ones are dropped.
    pub fn replace<D: AsRef<[u8]> + 'static>(
        mut old: Vec<Window<C>>,
        new: Vec<WindowBuilder<D>>,
    ) -> Result<Replaced<C, D>, Refused<C>> {
        let call = "uu_replace_windows";
        let api = match library::get() {
            Ok(api) => api,
            Err(error) => return Err(Box::new((old, error))),
        };
        // Another window may have its key by now.
        if old.iter().any(|window| window.place.ticket.is_some()) {
            return Err(Box::new((old, Error::Os { call, errno: libc::ENOENT })));
        }
        let texts: Vec<*const c_void> = old.iter().map(|window| window.place.text as *const c_void).collect();
        let prepared: Result<Vec<_>, Error> = new.into_iter().map(|window| window.prepared(0)).collect();
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err(Box::new((old, error))),
        };
        let (windows, parts): (Vec<_>, Vec<_>) = prepared.into_iter().map(|new| (new.window, new.parts)).unzip();
        let mut ticket = 0;
        // SAFETY: that number of keys and of windows, and a place for the ticket. What a window points to is owned by
        // `parts`, as in `Prepared::registered`.
        let result = unsafe {
            (api.replace_windows)(texts.as_ptr(), texts.len(), windows.as_ptr(), windows.len(), &raw mut ticket)
        };
        if let Err(error) = Error::check(call, result) {
            return Err(Box::new((old, error)));
        }
        for window in &mut old {
            window.place.ticket = Some(ticket);
        }
        let new = windows.into_iter().zip(parts).map(|(window, parts)| Prepared { window, parts }.into_window());
        Ok((old, new.collect()))
    }
}
