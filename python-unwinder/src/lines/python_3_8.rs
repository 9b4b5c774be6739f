//! `co_lnotab` of CPython 3.8 and 3.9 (<https://github.com/python/cpython/blob/v3.9.18/Objects/lnotab_notes.txt>):
//! pairs of bytes, the increment of the byte position, unsigned, and that of the line, signed. `PyCode_Addr2Line` in
//! <https://github.com/python/cpython/blob/v3.9.18/Objects/codeobject.c> reads it so.

/// The line at a byte position. Any bytes may be passed.
pub fn line(table: &[u8], first_line: u32, position: u64) -> u32 {
    let (mut line, mut at) = (i64::from(first_line), 0u64);
    for pair in table.chunks_exact(2) {
        let [increment, delta] = *pair else { break };
        at += u64::from(increment);
        if at > position {
            break;
        }
        line = line.saturating_add(i64::from(delta as i8));
    }
    u32::try_from(line).unwrap_or(first_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_larger_than_a_byte_are_split() {
        // 300 bytes of line 7, then two lines down, then 200 up.
        let table = [255, 0, 45, 2, 10, 0x80, 0, 0xb8, 1];
        let lines: Vec<_> = [0, 299, 300, 309, 310, 10_000].map(|at| line(&table, 400, at)).into();
        assert_eq!(lines, [400, 400, 402, 402, 202, 202]);
    }
}
