//! Who asks a store or a proxy.

/// Who asks, if the store wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nobody: requests carry no credentials.
    #[default]
    None,
    /// A user and a password ([RFC 7617](https://www.rfc-editor.org/rfc/rfc7617)).
    Basic(String, String),
    /// A token ([RFC 6750](https://www.rfc-editor.org/rfc/rfc6750)).
    Bearer(String),
}

impl Credentials {
    /// The value of the header `Authorization` or `Proxy-Authorization`.
    pub(crate) fn header(&self) -> Option<String> {
        match self {
            Credentials::None => None,
            Credentials::Basic(user, password) => Some(format!("Basic {}", base64(&format!("{user}:{password}")))),
            Credentials::Bearer(token) => Some(format!("Bearer {token}")),
        }
    }

    /// Whether a header can hold them.
    pub(crate) fn is_valid(&self) -> bool {
        let plain = |text: &String| !text.bytes().any(|byte| byte < b' ' || byte == 0x7f);
        match self {
            Credentials::None => true,
            Credentials::Basic(user, password) => plain(user) && plain(password) && !user.contains(':'),
            Credentials::Bearer(token) => !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()),
        }
    }
}

/// [RFC 4648](https://www.rfc-editor.org/rfc/rfc4648), section 4.
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in text.as_bytes().chunks(3) {
        let bits = group.iter().enumerate().fold(0u32, |bits, (i, byte)| bits | u32::from(*byte) << (16 - 8 * i));
        for i in 0..4 {
            let digit = DIGITS.get((bits >> (18 - 6 * i) & 63) as usize).copied().unwrap_or(b'=');
            out.push(if i <= group.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_headers() {
        // The examples of RFC 7617, section 2, and of RFC 4648, section 10.
        let basic = Credentials::Basic("Aladdin".to_owned(), "open sesame".to_owned());
        assert_eq!(basic.header().as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        for (text, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(text), coded);
        }
        for wrong in [Credentials::Bearer("a b".to_owned()), Credentials::Basic("a:b".to_owned(), String::new())] {
            assert!(!wrong.is_valid(), "{wrong:?}");
        }
    }
}
