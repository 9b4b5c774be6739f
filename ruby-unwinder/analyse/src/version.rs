//! Which Ruby a file holds: the text `ruby_version`
//! (<https://github.com/ruby/ruby/blob/v3_1_2/version.c>), which all builds export.

use std::fmt;
use uunwind_elf::Elf;

/// A CRuby version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    /// Its first number.
    pub major: u8,
    /// Its second number: structures change with it.
    pub minor: u8,
    /// Its third number.
    pub teeny: u8,
}

impl Version {
    /// The version in one word.
    pub fn word(self) -> u32 {
        u32::from_be_bytes([0, self.major, self.minor, self.teeny])
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.teeny)
    }
}

/// The Ruby that a file defines. `None`: it defines none.
pub fn of(elf: &dyn Elf) -> Option<Version> {
    let text = elf.symbol("ruby_version")?;
    // Programs of another kind may have a variable of that name.
    elf.symbol("ruby_api_version")?;
    elf.symbol("rb_profile_frames")?;
    let mut bytes = [0; 16];
    let len = if text.size == 0 { bytes.len() } else { bytes.len().min(text.size as usize) };
    let bytes = bytes.get_mut(..len)?;
    elf.read(text.address, bytes).then(|| parse(bytes))?
}

fn parse(bytes: &[u8]) -> Option<Version> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    let version = Version { major: numbers.next()??, minor: numbers.next()??, teeny: numbers.next()?? };
    numbers.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers() {
        assert_eq!(parse(b"3.1.2\0xx"), Some(Version { major: 3, minor: 1, teeny: 2 }));
        for bad in [&b"3.1.2"[..], b"3.1\0", b"3.1.2.4\0", b"3.a.2\0", b"\0", b"", b"300.1.2\0", b"\xff.1.2\0"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(Version { major: 3, minor: 1, teeny: 2 }.word(), 0x03_01_02);
    }
}
