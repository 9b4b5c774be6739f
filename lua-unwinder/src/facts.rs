//! How facts begin: their size, their version, and which family of interpreters they speak of. What follows belongs to the
//! family ([`crate::puc::facts`], [`crate::luajit::facts`]).

use core::mem::{align_of, size_of};

/// Version of all layouts of this plugin's facts.
pub const FACTS_VERSION: u32 = 3;

/// PUC Lua.
pub const FAMILY_PUC: u32 = 1;
/// LuaJIT.
pub const FAMILY_LUAJIT: u32 = 2;

/// The first fields of all facts.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Bytes of the whole facts, this head included, as the analyser was built.
    pub size: u32,
    /// [`FACTS_VERSION`].
    pub version: u32,
    /// One of the `FAMILY_*` numbers.
    pub family: u32,
    /// Zero.
    pub reserved: u32,
}

impl Head {
    /// The head of facts of type `T`.
    pub const fn of<T>(family: u32) -> Head {
        Head { size: size_of::<T>() as u32, version: FACTS_VERSION, family, reserved: 0 }
    }

    /// Reads the head of some facts. `None`: they are cut or of another version. Async-signal-safe.
    pub fn read(bytes: &[u8]) -> Option<Head> {
        let field = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let head = Head { size: field(0)?, version: field(4)?, family: field(8)?, reserved: field(12)? };
        (head.version == FACTS_VERSION && head.size as usize <= bytes.len()).then_some(head)
    }
}

/// A family's facts: plain integers without padding, that begin with a [`Head`].
///
/// # Safety
/// Any bytes must be a valid value of the type, and it must have no padding.
pub unsafe trait Plain: Copy {
    /// Its family.
    const FAMILY: u32;

    /// The facts as bytes, as [`Plain::view`] reads them.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: plain integers without padding (the trait's promise), borrowed for the slice's life.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast::<u8>(), size_of::<Self>()) }
    }

    /// The facts in these bytes, or `None` when they are cut, not aligned, or of another version or family.
    /// Async-signal-safe.
    fn view(bytes: &[u8]) -> Option<&Self> {
        let head = Head::read(bytes)?;
        let fits = head.family == Self::FAMILY
            && head.size as usize == size_of::<Self>()
            && bytes.len() >= size_of::<Self>()
            && (bytes.as_ptr() as usize).is_multiple_of(align_of::<Self>());
        // SAFETY: there are size_of::<Self>() aligned bytes, any bytes are a valid value, borrowed for the view's life.
        fits.then(|| unsafe { &*bytes.as_ptr().cast::<Self>() })
    }
}
