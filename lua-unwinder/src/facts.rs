//! The head of facts: their size, their version, and the family of interpreters that they describe. The rest has a
//! layout of the family's own ([`crate::puc::facts`], [`crate::luajit::facts`]).

use core::mem::size_of;
pub use uunwind_core::plugin::guest::Plain;

/// Version of all layouts of this plugin's facts.
pub const FACTS_VERSION: u32 = 3;

/// [`FactsHead::family`] of facts about PUC Lua.
pub const FAMILY_PUC: u32 = 1;
/// [`FactsHead::family`] of facts about LuaJIT.
pub const FAMILY_LUAJIT: u32 = 2;

uunwind_core::plain! {
    /// The first fields of all facts.
    #[derive(PartialEq, Eq, Debug)]
    pub struct FactsHead {
        /// Bytes of the whole facts, this head included, in the analyser that wrote them.
        pub size: u32,
        /// Layout version, [`FACTS_VERSION`].
        pub version: u32,
        /// One of the `FAMILY_*` numbers.
        pub family: u32,
        /// Zero: padding that has a value.
        pub reserved: u32,
    }
}

impl FactsHead {
    /// The head of facts of type `T`.
    pub const fn of<T>(family: u32) -> FactsHead {
        FactsHead { size: size_of::<T>() as u32, version: FACTS_VERSION, family, reserved: 0 }
    }

    /// Reads the head of facts. `None`: they are truncated or of another version. Async-signal-safe.
    pub fn read(bytes: &[u8]) -> Option<FactsHead> {
        let field = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let head = FactsHead { size: field(0)?, version: field(4)?, family: field(8)?, reserved: field(12)? };
        (head.version == FACTS_VERSION && head.size as usize <= bytes.len()).then_some(head)
    }
}

/// The facts of one family, which begin with a [`FactsHead`].
pub trait Family: Plain {
    /// [`FactsHead::family`] of such facts.
    const FAMILY: u32;

    /// The facts in these bytes, or `None` when they are truncated, not aligned, or of another version or family.
    /// Async-signal-safe.
    fn of(bytes: &[u8]) -> Option<&Self> {
        let head = FactsHead::read(bytes)?;
        let fits = head.family == Self::FAMILY && head.size as usize == size_of::<Self>();
        Self::view(bytes).filter(|_| fits)
    }
}
