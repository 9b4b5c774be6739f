//! How the functions are called that stand after ours.

/// Declares how the real function is called.
macro_rules! real {
    ($real:ident, $symbol:literal, fn($($arg:ident: $type:ty),*) -> $result:ty, $missing:expr) => {
        unsafe fn $real($($arg: $type),*) -> $result {
            static REAL: uunwind_preload::events::Real = uunwind_preload::events::Real::new($symbol);
            let real = REAL.get();
            if real.is_null() {
                return $missing;
            }
            // SAFETY: the function of this name has this type; the caller vouches for the arguments.
            unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(real)($($arg),*) }
        }
    };
}
pub(crate) use real;
