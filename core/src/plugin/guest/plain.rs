//! Types that are nothing but their bytes: facts, scratch memory, structures of an interpreter.

use core::mem::{align_of, size_of};

/// A type of plain numbers: any bytes are a value of it, and it has no padding. [`plain!`](crate::plain) implements it.
///
/// # Safety
/// Any bytes must be a valid value of the type, and it must have no padding and no interior mutability.
pub unsafe trait Plain: Copy {
    /// The value's bytes.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the trait's promise: every byte is initialized. They are borrowed as long as the value is.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast::<u8>(), size_of::<Self>()) }
    }

    /// The value that the first bytes are, at any alignment; `None` if there are too few.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..size_of::<Self>())?;
        // SAFETY: there are that many bytes, any bytes are a value, and the read may be unaligned.
        Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }

    /// The value that the first bytes are, in place; `None` if there are too few, or they are not aligned for it.
    fn view(bytes: &[u8]) -> Option<&Self> {
        let fits = bytes.len() >= size_of::<Self>() && (bytes.as_ptr() as usize).is_multiple_of(align_of::<Self>());
        // SAFETY: there are enough aligned bytes, any bytes are a value, and they are borrowed for the view's life.
        fits.then(|| unsafe { &*bytes.as_ptr().cast::<Self>() })
    }
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        // SAFETY: an integer: any bytes are a value, and there is no padding.
        unsafe impl Plain for $number {}
    )* };
}
numbers!(u8, u16, u32, u64, i8, i16, i32, i64);

// SAFETY: elements follow each other without padding, and each is plain.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Defines a structure that is [`Plain`](crate::plugin::guest::Plain): `repr(C)`, `Copy`, with plain fields only and
/// without padding, all of which is checked when it is compiled.
///
/// ```
/// use uunwind_core::plugin::guest::Plain;
///
/// uunwind_core::plain! {
///     /// The facts about a toy.
///     struct Facts {
///         size: u32,
///         version: u32,
///         table: u64,
///     }
/// }
/// let facts = Facts { size: 16, version: 1, table: 0x4000 };
/// assert_eq!(Facts::from_bytes(facts.as_bytes()).map(|copy| copy.table), Some(0x4000));
/// assert!(Facts::from_bytes(&facts.as_bytes()[1..]).is_none());
/// ```
///
/// Padding has no value, so a structure with some is refused:
///
/// ```compile_fail
/// uunwind_core::plain! {
///     struct Padded { small: u32, large: u64, }
/// }
/// ```
///
/// So is one with a field for which some bytes are no value:
///
/// ```compile_fail
/// uunwind_core::plain! {
///     struct Pointing { target: &'static u64, }
/// }
/// ```
#[macro_export]
macro_rules! plain {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        const _: () = {
            const fn is_plain<T: $crate::plugin::guest::Plain>() -> usize {
                ::core::mem::size_of::<T>()
            }
            assert!(::core::mem::size_of::<$name>() == 0 $(+ is_plain::<$type>())*, "padding");
        };

        // SAFETY: `repr(C)`; all fields are plain, and their sizes add up to the structure's, as was just checked.
        unsafe impl $crate::plugin::guest::Plain for $name {}
    };
    ($(#[$meta:meta])* $vis:vis struct $name:ident($inner_vis:vis $inner:ty);) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy)]
        $vis struct $name($inner_vis $inner);

        const _: () = {
            const fn is_plain<T: $crate::plugin::guest::Plain>() {}
            is_plain::<$inner>();
        };

        // SAFETY: the same bytes as the plain type inside, as was just checked.
        unsafe impl $crate::plugin::guest::Plain for $name {}
    };
}
