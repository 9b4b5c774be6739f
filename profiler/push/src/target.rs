//! Where profiles go: an URL, a service with its labels, and who asks.

use thiserror::Error;

/// Longest value of a label, in bytes.
const LONGEST: usize = 256;

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
    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> Option<String> {
        match self {
            Credentials::None => None,
            Credentials::Basic(user, password) => Some(format!("Basic {}", base64(&format!("{user}:{password}")))),
            Credentials::Bearer(token) => Some(format!("Bearer {token}")),
        }
    }

    /// Whether a header can hold them.
    fn is_valid(&self) -> bool {
        let plain = |text: &String| !text.bytes().any(|byte| byte < b' ' || byte == 0x7f);
        match self {
            Credentials::None => true,
            Credentials::Basic(user, password) => plain(user) && plain(password) && !user.contains(':'),
            Credentials::Bearer(token) => !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()),
        }
    }
}

/// Where profiles go.
#[derive(Clone, Debug)]
pub struct Target {
    /// Host and port, as `Host` has them.
    pub(crate) authority: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What stands before `/ingest`; without a slash at its end.
    pub(crate) path: String,
    /// `SERVICE{KEY=VALUE,...}`.
    pub(crate) name: String,
    pub(crate) credentials: Credentials,
}

/// Why profiles cannot go there.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// Not `http://`.
    #[error("uu speaks http:// only. For https, let a proxy beside it (Grafana Alloy, nginx) pass profiles on")]
    Https,
    /// Not an URL.
    #[error("give an URL, such as http://localhost:4040")]
    Url,
    /// Credentials in the URL.
    #[error("credentials stand in the environment: UU_PUSH_USER and UU_PUSH_PASSWORD, or UU_PUSH_TOKEN")]
    Secret,
    /// No such service name.
    #[error("the service's name is letters, digits, and any of . _ - /, at most 256 of them")]
    Service,
    /// No label.
    #[error(
        "a label is KEY=VALUE: a key of letters, digits and _, not with a digit first; a value without any of {{}}=,\""
    )]
    Label,
    /// Credentials that no header can hold.
    #[error("a token has visible ASCII characters only; a user has no colon, and neither it nor its password has control characters")]
    Credentials,
}

impl Target {
    /// Checks all parts. `labels`: `KEY=VALUE` each.
    pub fn new(url: &str, service: &str, labels: &[String], credentials: Credentials) -> Result<Target, TargetError> {
        let (authority, path) = split(url)?;
        let (host, port) = host_and_port(authority)?;
        if !credentials.is_valid() {
            return Err(TargetError::Credentials);
        }
        Ok(Target {
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            path: path.trim_end_matches('/').to_owned(),
            name: name(service, labels)?,
            credentials,
        })
    }

    /// The URL, for people and for the place of what waits: without credentials.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }
}

/// Host and port, and what follows.
fn split(url: &str) -> Result<(&str, &str), TargetError> {
    if url.starts_with("https://") {
        return Err(TargetError::Https);
    }
    let rest = url.strip_prefix("http://").ok_or(TargetError::Url)?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(TargetError::Secret);
    }
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if path.contains(['?', '#']) || !is_plain(path) || !is_plain(authority) || authority.is_empty() {
        return Err(TargetError::Url);
    }
    Ok((authority, path))
}

fn host_and_port(authority: &str) -> Result<(&str, u16), TargetError> {
    let (host, rest) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(TargetError::Url)?,
        None if rest.is_empty() => 80,
        None => return Err(TargetError::Url),
    };
    if host.is_empty() {
        return Err(TargetError::Url);
    }
    Ok((host, port))
}

fn name(service: &str, labels: &[String]) -> Result<String, TargetError> {
    let of_service = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if service.is_empty() || service.len() > LONGEST || !service.chars().all(of_service) {
        return Err(TargetError::Service);
    }
    let all = labels.iter().map(|label| checked(label)).collect::<Result<Vec<&str>, _>>()?;
    Ok(if all.is_empty() { service.to_owned() } else { format!("{service}{{{}}}", all.join(",")) })
}

fn checked(label: &str) -> Result<&str, TargetError> {
    let (key, value) = label.split_once('=').ok_or(TargetError::Label)?;
    let begins = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_key = begins && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_value =
        !value.is_empty() && !value.contains(['{', '}', '=', ',', '"']) && !value.chars().any(char::is_control);
    if !is_key || !is_value || label.len() > LONGEST {
        return Err(TargetError::Label);
    }
    Ok(label)
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

    fn made(url: &str, service: &str, labels: &[&str]) -> Result<Target, TargetError> {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        Target::new(url, service, &labels, Credentials::None)
    }

    #[test]
    fn urls_have_their_parts() {
        for (url, host, port, path) in [
            ("http://localhost:4040", "localhost", 4040, ""),
            ("http://h/", "h", 80, ""),
            ("http://[::1]:7/a/b/", "::1", 7, "/a/b"),
            ("http://10.0.0.1/pyroscope", "10.0.0.1", 80, "/pyroscope"),
        ] {
            let target = made(url, "s", &[]).expect("valid");
            assert_eq!((&*target.host, target.port, &*target.path), (host, port, path), "{url}");
        }
        for url in
            ["", "localhost:4040", "http://", "http://:80", "http://h:0", "http://h:x", "http://h/?x", "http://h h"]
        {
            assert_eq!(made(url, "s", &[]).err(), Some(TargetError::Url), "{url}");
        }
        assert_eq!(made("https://h", "s", &[]).err(), Some(TargetError::Https));
        assert_eq!(made("http://user:password@h", "s", &[]).err(), Some(TargetError::Secret));
    }

    #[test]
    fn names_have_service_and_labels() {
        let target = made("http://h", "shop.cart", &["region=eu west", "zone=b"]).expect("valid");
        assert_eq!(target.name, "shop.cart{region=eu west,zone=b}");
        assert_eq!(made("http://h", "a{b}", &[]).err(), Some(TargetError::Service));
        for label in ["x", "=y", "x=", "1x=y", "x=a,b", "x=a}", "x y=z", "x=a\nb"] {
            assert_eq!(made("http://h", "s", &[label]).err(), Some(TargetError::Label), "{label}");
        }
    }

    #[test]
    fn credentials_are_headers() {
        // The examples of RFC 7617, section 2, and of RFC 4648, section 10.
        let basic = Credentials::Basic("Aladdin".to_owned(), "open sesame".to_owned());
        assert_eq!(basic.header().as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        for (text, coded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(text), coded);
        }
        for wrong in [Credentials::Bearer("a b".to_owned()), Credentials::Basic("a:b".to_owned(), String::new())] {
            assert_eq!(Target::new("http://h", "s", &[], wrong).err(), Some(TargetError::Credentials));
        }
    }
}
