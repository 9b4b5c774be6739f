//! Patterns of names: `*` stands for any characters, also none, and `?` for one.

/// Whether the whole text fits the pattern. The time is bounded by the product of both lengths.
pub fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star stands, and up to where it reaches in the text.
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || text.get(t) == Some(c) => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, reached)) => {
                    star = Some((at, reached + 1));
                    (p, t) = (at + 1, reached + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "anything"),
            ("a*b", "ab"),
            ("a*b", "axxbxb"),
            ("?x*", "axyz"),
            ("*é?", "caféx"),
            ("a**b", "ab"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a", "ab"), ("?", ""), ("a*b", "abc"), ("b*", "ab"), ("A", "a")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
        let (pattern, text) = ("a*".repeat(200) + "b", "a".repeat(5000));
        assert!(!fits(&pattern, &text));
    }
}
