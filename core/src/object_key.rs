//! The key of an object: what facts, rule tables and recordings call it by.

/// 64-bit FNV-1a: offset basis and prime as in <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over more bytes, from the hash of those before, or from [`FNV_START`].
#[inline]
pub fn fnv(start: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(start, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Key of an object without a build-id: FNV-1a over `identity`, its ELF header and program headers as loaded. Never 0.
pub fn key(identity: &[u8]) -> u64 {
    fnv(FNV_START, identity.iter().copied()).max(1)
}

/// Key of an object with a build-id: FNV-1a over that and the 8 bytes of [`crate::headers::unwind_key`], least
/// significant first, because two files may share a build-id. Never 0.
pub fn of_build_id(build_id: &[u8], unwind_key: u64) -> u64 {
    fnv(FNV_START, build_id.iter().copied().chain(unwind_key.to_le_bytes())).max(1)
}
