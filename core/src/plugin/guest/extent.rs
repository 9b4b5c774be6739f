//! A range of file addresses, as facts name functions of an interpreter.

crate::plain! {
    /// File addresses `[start, end)`, in bytes from the object's load bias; both 0: unused.
    #[derive(PartialEq, Eq, Debug, Default)]
    pub struct Extent {
        /// First file address.
        pub start: u64,
        /// File address after the last byte.
        pub end: u64,
    }
}

impl Extent {
    /// Does a file address lie inside?
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}
