//! Which PHP a file holds: the number in `ZEND_CORE_VERSION_INFO`
//! (<https://github.com/php/php-src/blob/PHP-8.2/Zend/zend.c>), which is one of the Zend Engine. Its first number is 4
//! less than PHP's; the second is the same from PHP 7.0 on, and the third from 8.0 on. No symbol leads to it.

use std::fmt;
use uunwind_elf::Elf;

/// Before the number, and after it.
const BEFORE: &[u8] = b"Zend Engine v";
const AFTER: u8 = b',';
/// Limit of the number's length.
const LONGEST: usize = 16;
/// Bytes that are read at once, and limit of all that are read.
const PART: u64 = 64 << 10;
const LIMIT: u64 = 64 << 20;

/// A PHP version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    /// Its first number.
    pub major: u8,
    /// Its second number: structures change with it.
    pub minor: u8,
    /// Its third number.
    pub release: u8,
}

impl Version {
    /// The version in one word.
    pub fn word(self) -> u32 {
        u32::from_be_bytes([0, self.major, self.minor, self.release])
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The engine's third number is PHP's from 8.0 on.
        match self.major {
            0..8 => write!(f, "{}.{}", self.major, self.minor),
            _ => write!(f, "{}.{}.{}", self.major, self.minor, self.release),
        }
    }
}

/// The PHP that a file holds. `None`: none can be found.
pub fn of(elf: &dyn Elf) -> Option<Version> {
    const OVERLAP: u64 = (BEFORE.len() + LONGEST) as u64;
    let mut left = LIMIT;
    for segment in elf.loaded().iter().filter(|segment| !segment.writable && !segment.executable) {
        let (mut start, end) = (segment.span.start, segment.span.end.min(segment.span.start.saturating_add(left)));
        left = left.saturating_sub(end.saturating_sub(start));
        while start < end {
            let mut bytes = vec![0; (end - start).min(PART + OVERLAP) as usize];
            if !elf.read(start, &mut bytes) {
                break;
            }
            let found = bytes.windows(BEFORE.len()).enumerate().find_map(|(at, window)| {
                let after = (window == BEFORE).then(|| bytes.get(at.checked_add(BEFORE.len())?..))??;
                parse(after)
            });
            if found.is_some() {
                return found;
            }
            start = start.saturating_add(PART);
        }
    }
    None
}

fn parse(bytes: &[u8]) -> Option<Version> {
    let end = bytes.iter().take(LONGEST).position(|byte| *byte == AFTER)?;
    let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
    // Builds that are no releases have a word after the number.
    let text = text.split('-').next()?;
    let mut numbers = text.split('.').map(|number| number.parse::<u8>().ok());
    let (engine, minor, release) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let major = engine.checked_add(4)?;
    numbers.next().is_none().then_some(Version { major, minor, release })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_three_numbers() {
        let php = Version { major: 8, minor: 2, release: 36 };
        assert_eq!(parse(b"4.2.36, Copyright"), Some(php));
        assert_eq!(parse(b"4.2.36-dev, Copyright"), Some(php));
        for bad in [&b"4.2.36"[..], b"4.2,", b"4.2.3.4,", b"4.x.2,", b",", b"", b"400.1.2,", b"\xff.1.2,"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(php.word(), 0x08_02_24);
        assert_eq!(php.to_string(), "8.2.36");
        assert_eq!(parse(b"3.4.0, Copyright").map(|php| php.to_string()).as_deref(), Some("7.4"));
    }
}
