//! Which Perl a file holds, by the constants `PL_revision`, `PL_version` and `PL_subversion`
//! (<https://github.com/Perl/perl5/blob/v5.36.0/perl.h>), a byte each.

use std::fmt;
use uunwind_elf::Elf;

/// A Perl version.
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
        write!(f, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

/// The Perl that a file holds. `None`: it does not say.
pub fn of(elf: &dyn Elf) -> Option<Version> {
    let byte = |name: &str| {
        let mut byte = [0];
        elf.read(elf.symbol(name)?.address, &mut byte).then_some(byte[0])
    };
    Some(Version { major: byte("PL_revision")?, minor: byte("PL_version")?, release: byte("PL_subversion")? })
}
