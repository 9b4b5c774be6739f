//! Numbers and texts as the page's script reads them (`data.js`).

/// Columns, one after the other: each the number of its bytes, in four of them, and its contents.
#[derive(Default)]
pub struct Columns {
    pub bytes: Vec<u8>,
}

impl Columns {
    /// Texts of one line each.
    pub fn texts(&mut self, texts: &[String]) {
        self.column(texts.join("\n").as_bytes());
    }

    /// Numbers as varints.
    pub fn numbers(&mut self, numbers: impl Iterator<Item = u32>) {
        let mut column = Vec::new();
        for mut n in numbers {
            while n >= 0x80 {
                column.push(n as u8 | 0x80);
                n >>= 7;
            }
            column.push(n as u8);
        }
        self.column(&column);
    }

    fn column(&mut self, contents: &[u8]) {
        self.bytes.extend_from_slice(&(contents.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(contents);
    }
}

/// Base64 (RFC 4648).
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number = (0..3).fold(0u32, |sum, at| sum << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * at)) as usize & 63];
            out.push(if at > three.len() { '=' } else { char::from(letter) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4648() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), text);
        }
    }

    #[test]
    fn columns_have_their_sizes() {
        let mut columns = Columns::default();
        columns.numbers([1, 300].into_iter());
        columns.texts(&["a".into(), String::new(), "b".into()]);
        assert_eq!(columns.bytes, [3, 0, 0, 0, 1, 0xac, 2, 4, 0, 0, 0, b'a', b'\n', b'\n', b'b']);
    }
}
