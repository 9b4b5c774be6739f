//! A thread's labels as a text: for each its key and its value, each with its length in a byte before it.

/// At most this number of labels of a thread.
pub const LABELS: usize = 16;
/// Longest key, in bytes.
pub const KEY_BYTES: usize = 63;
/// Longest value, in bytes.
pub const VALUE_BYTES: usize = 255;
/// Longest text of all labels of a thread, in bytes.
pub const TEXT_BYTES: usize = 1000;

/// A label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// The labels of a text, which may be any bytes: it ends where it holds no more.
pub fn labels(text: &[u8]) -> impl Iterator<Item = Label<'_>> {
    fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (len, after) = rest.split_first()?;
        let (part, after) = after.split_at_checked(usize::from(*len))?;
        *rest = after;
        Some(part)
    }
    let mut rest = text;
    (0..LABELS).map_while(move |_| Some(Label { key: part(&mut rest)?, value: part(&mut rest)? }))
}

/// Why a label cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The key is empty.
    Empty,
    /// The key or the value is too long.
    Long,
    /// The key or the value is not UTF-8.
    Encoding,
    /// The thread has as many labels, or as much text of them, as it may have.
    Full,
}

/// Checks a label.
pub fn check(key: &[u8], value: &[u8]) -> Result<(), Refused> {
    if key.is_empty() {
        return Err(Refused::Empty);
    }
    if key.len() > KEY_BYTES || value.len() > VALUE_BYTES {
        return Err(Refused::Long);
    }
    let is_text = core::str::from_utf8(key).is_ok() && core::str::from_utf8(value).is_ok();
    is_text.then_some(()).ok_or(Refused::Encoding)
}

/// The text with one label changed or, without a value, taken out; and its length.
pub fn with(text: &[u8], key: &[u8], value: Option<&[u8]>) -> Result<([u8; TEXT_BYTES], usize), Refused> {
    let mut out = Out { text: [0; TEXT_BYTES], len: 0, is_whole: true };
    let mut count = 0;
    for label in labels(text).filter(|label| label.key != key) {
        out.label(label);
        count += 1;
    }
    if let Some(value) = value {
        check(key, value)?;
        out.label(Label { key, value });
        count += 1;
    }
    (out.is_whole && count <= LABELS).then_some((out.text, out.len)).ok_or(Refused::Full)
}

struct Out {
    text: [u8; TEXT_BYTES],
    len: usize,
    is_whole: bool,
}

impl Out {
    fn label(&mut self, label: Label<'_>) {
        for part in [label.key, label.value] {
            // Checked to be shorter.
            self.byte(part.len() as u8);
            part.iter().for_each(|byte| self.byte(*byte));
        }
    }

    fn byte(&mut self, byte: u8) {
        match self.text.get_mut(self.len) {
            Some(place) => (*place, self.len) = (byte, self.len + 1),
            None => self.is_whole = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &[u8], key: &str, value: Option<&str>) -> Result<Vec<u8>, Refused> {
        with(text, key.as_bytes(), value.map(str::as_bytes)).map(|(text, len)| text[..len].to_vec())
    }

    fn pairs(text: &[u8]) -> Vec<(String, String)> {
        let text_of = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        labels(text).map(|label| (text_of(label.key), text_of(label.value))).collect()
    }

    #[test]
    fn a_label_has_one_value() {
        let mut text = Vec::new();
        for (key, value) in
            [("user", Some("7")), ("path", Some("/ä")), ("user", Some("8")), ("none", None), ("e", Some(""))]
        {
            text = set(&text, key, value).expect("room");
        }
        let all = |list: &[(&str, &str)]| list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<Vec<_>>();
        assert_eq!(pairs(&text), all(&[("path", "/ä"), ("user", "8"), ("e", "")]));
        text = set(&text, "path", None).expect("shorter");
        assert_eq!(pairs(&text), all(&[("user", "8"), ("e", "")]));
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let long = "x".repeat(VALUE_BYTES);
        assert_eq!(set(&[], "", Some("x")), Err(Refused::Empty));
        assert_eq!(set(&[], &"k".repeat(KEY_BYTES + 1), Some("x")), Err(Refused::Long));
        assert_eq!(set(&[], "k", Some(&format!("{long}x"))), Err(Refused::Long));
        assert_eq!(with(&[], b"k", Some(b"\xff")).err(), Some(Refused::Encoding));
        assert_eq!(with(&[], b"\xc3", Some(b"x")).err(), Some(Refused::Encoding));
        let mut text = Vec::new();
        let mut count = 0;
        while let Ok(next) = set(&text, &count.to_string(), Some(&long)) {
            (text, count) = (next, count + 1);
        }
        assert_eq!(count, TEXT_BYTES / (VALUE_BYTES + 3));
        let many = (0..LABELS).fold(Vec::new(), |text, n| set(&text, &n.to_string(), Some("")).expect("room"));
        assert_eq!(set(&many, "one more", Some("")), Err(Refused::Full));
        assert_eq!(pairs(&set(&many, "3", Some("again")).expect("it is there")).len(), LABELS);
    }

    #[test]
    fn any_bytes_may_be_read() {
        for text in [&[][..], &[1], &[1, b'k'], &[1, b'k', 9, 0], &[255; 300], &[0; 4000]] {
            assert!(labels(text).count() <= LABELS);
        }
        assert_eq!(labels(&[1, b'k', 1, b'v', 7]).count(), 1);
    }
}
