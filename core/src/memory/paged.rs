//! Reads of memory that is kept in whole pages.

/// Size of a page, in bytes.
pub const PAGE: usize = 4096;

/// Fills `out` with what lies at `address`, by parts that lie in one page each. `read_part`: fills a part; it gets the
/// page's address and the part's offset in it. False: one of them could not be read, or the address space has ended.
pub fn read(address: u64, out: &mut [u8], mut read_part: impl FnMut(u64, usize, &mut [u8]) -> bool) -> bool {
    let (mut address, mut out) = (address, out);
    while !out.is_empty() {
        let (page, offset) = (address & !(PAGE as u64 - 1), address as usize % PAGE);
        let len = out.len().min(PAGE - offset);
        let Some((part, rest)) = out.split_at_mut_checked(len) else { return false };
        if !read_part(page, offset, part) {
            return false;
        }
        let Some(next) = page.checked_add(PAGE as u64) else { return rest.is_empty() };
        (address, out) = (next, rest);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_lies_in_a_page() {
        let (mut parts, mut out) = (Vec::new(), [0; 4100]);
        assert!(read(0x1ffe, &mut out, |page, offset, part| {
            parts.push((page, offset, part.len()));
            true
        }));
        assert_eq!(parts, [(0x1000, 0xffe, 2), (0x2000, 0, 4096), (0x3000, 0, 2)]);
        assert!(!read(0x1ffe, &mut out, |page, _, _| page != 0x3000), "a page that cannot be read");
        assert!(
            read(u64::MAX - 1, &mut [0; 2], |_, _, _| true) && !read(u64::MAX - 1, &mut [0; 3], |_, _, _| true),
            "the end"
        );
    }
}
