//! The bytes of a section: little-endian numbers and length-prefixed texts.

/// A section's bytes did not hold what they should.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset inside the section's payload.
    pub at: usize,
    /// What was expected there.
    pub wanted: &'static str,
}

/// Reads a section's payload. Every length is checked against the bytes that are left.
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    /// Whether all bytes were read.
    pub fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Number of bytes left; no count in the payload can be larger.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// An error at the current offset.
    pub fn malformed(&self, wanted: &'static str) -> Malformed {
        Malformed { at: self.at, wanted }
    }

    /// `len` raw bytes.
    pub fn raw(&mut self, len: usize, wanted: &'static str) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len).ok_or(Malformed { at: self.at, wanted })?;
        let bytes = self.bytes.get(self.at..end).ok_or(Malformed { at: self.at, wanted })?;
        self.at = end;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, wanted: &'static str) -> Result<[u8; N], Malformed> {
        let mut out = [0; N];
        out.copy_from_slice(self.raw(N, wanted)?);
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self, wanted: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(wanted)?[0])
    }

    /// A 16-bit number.
    pub fn u16(&mut self, wanted: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array(wanted)?))
    }

    /// A 32-bit number.
    pub fn u32(&mut self, wanted: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(wanted)?))
    }

    /// A 64-bit number.
    pub fn u64(&mut self, wanted: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(wanted)?))
    }

    /// A u32 length, then that many bytes.
    pub fn bytes(&mut self, wanted: &'static str) -> Result<&'a [u8], Malformed> {
        let len = self.u32(wanted)?;
        self.raw(len as usize, wanted)
    }

    /// A u32 length, then UTF-8; what is not UTF-8 becomes the replacement character.
    pub fn text(&mut self, wanted: &'static str) -> Result<String, Malformed> {
        Ok(String::from_utf8_lossy(self.bytes(wanted)?).into_owned())
    }

    /// A u32 count of items that take at least `each` bytes: a count that the remaining bytes cannot hold is refused
    /// before anything is allocated.
    pub fn count(&mut self, each: usize, wanted: &'static str) -> Result<usize, Malformed> {
        let count = self.u32(wanted)? as usize;
        if count > self.left() / each.max(1) {
            return Err(self.malformed(wanted));
        }
        Ok(count)
    }
}

/// Appends to a section's payload.
pub trait Put {
    /// A 16-bit number.
    fn put_u16(&mut self, n: u16);
    /// A 32-bit number.
    fn put_u32(&mut self, n: u32);
    /// A 64-bit number.
    fn put_u64(&mut self, n: u64);
    /// A u32 length, then the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u16(&mut self, n: u16) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    fn put_u32(&mut self, n: u32) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    fn put_u64(&mut self, n: u64) {
        self.extend_from_slice(&n.to_le_bytes());
    }
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.extend_from_slice(bytes);
    }
}
