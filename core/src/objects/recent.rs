//! Objects by the pages that were looked up in them, so that the loader need not be asked again.

use super::Object;
use core::sync::atomic::{AtomicU64, Ordering};

/// Four entries of a page's number and the object there, an address. Nothing that is read here is believed: the
/// object's own range is.
#[repr(C, align(64))]
pub(super) struct Recent([[AtomicU64; 2]; 4]);

impl Recent {
    pub(super) const fn new() -> Recent {
        Recent([const { [const { AtomicU64::new(0) }; 2] }; 4])
    }

    /// The object that was met on this page. Objects stay for ever, as entries of the table.
    #[inline]
    pub(super) fn get<'a>(&self, page: u64) -> Option<&'a Object> {
        let [_, object] = self.0.iter().find(|[key, _]| key.load(Ordering::Relaxed) == page)?;
        // SAFETY: only objects of the table are stored there, which stay for ever.
        unsafe { (object.load(Ordering::Acquire) as *const Object).as_ref() }
    }

    pub(super) fn put(&self, page: u64, object: &Object) {
        let place = |wanted: u64| self.0.iter().find(|[key, _]| key.load(Ordering::Relaxed) == wanted);
        let Some([key, to]) = place(page).or_else(|| place(0)).or_else(|| self.0.get((page >> 9 & 3) as usize)) else {
            return;
        };
        to.store(core::ptr::from_ref(object) as u64, Ordering::Release);
        key.store(page, Ordering::Release);
    }
}
