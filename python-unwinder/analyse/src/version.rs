//! `PY_VERSION_HEX`: a CPython version in one word.

use std::fmt;

/// A CPython version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// `PY_VERSION_HEX`: major, minor, micro in a byte each, then release level and serial in four bits each.
    pub hex: u32,
}

const FINAL: u32 = 0xf;

impl Version {
    /// The version with this `PY_VERSION_HEX`.
    pub fn new(hex: u32) -> Version {
        Version { hex }
    }

    /// Some version of this minor series.
    pub fn of_minor(major: u32, minor: u32) -> Version {
        Version { hex: major << 24 | minor << 16 }
    }

    /// Is only the minor series known? (No version has release level 0.)
    fn is_series(self) -> bool {
        self.hex & 0xffff == 0
    }

    /// Major and minor.
    pub fn minor(self) -> (u32, u32) {
        (self.hex >> 24, (self.hex >> 16) & 0xff)
    }

    /// Is this a final release, not an alpha, beta or candidate?
    pub fn is_final(self) -> bool {
        self.is_series() || (self.hex >> 4) & 0xf == FINAL
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.minor();
        if self.is_series() {
            return write!(f, "{major}.{minor}");
        }
        write!(f, "{major}.{minor}.{}", (self.hex >> 8) & 0xff)?;
        let serial = self.hex & 0xf;
        match (self.hex >> 4) & 0xf {
            FINAL => Ok(()),
            0xa => write!(f, "a{serial}"),
            0xb => write!(f, "b{serial}"),
            0xc => write!(f, "rc{serial}"),
            level => write!(f, " (release level {level:#x})"),
        }
    }
}
