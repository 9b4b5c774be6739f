//! URLs of stores and proxies ([RFC 3986](https://www.rfc-editor.org/rfc/rfc3986)): scheme, host, port and path.

use crate::target::TargetError;

/// An URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Whether TLS is spoken: `https`, `grpcs`.
    pub(crate) is_tls: bool,
    /// Whether gRPC is: `grpc`, `grpcs`.
    pub(crate) is_grpc: bool,
    /// Host and port as the URL has them.
    pub(crate) authority: String,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What follows; without a slash at its end.
    pub(crate) path: String,
}

impl Url {
    /// The parts. Credentials, queries and fragments are none of an URL's here.
    pub(crate) fn of(url: &str) -> Result<Url, TargetError> {
        let (scheme, rest) = url.split_once("://").ok_or(TargetError::Url)?;
        let (is_tls, is_grpc) = match scheme {
            "http" => (false, false),
            "https" => (true, false),
            "grpc" => (false, true),
            "grpcs" => (true, true),
            _ => return Err(TargetError::Url),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(TargetError::Secret);
        }
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if path.contains(['?', '#']) || !is_plain(path) || !is_plain(authority) || authority.is_empty() {
            return Err(TargetError::Url);
        }
        let (host, port) = host_and_port(authority, if is_tls { 443 } else { 80 })?;
        let path = path.trim_end_matches('/').to_owned();
        Ok(Url { is_tls, is_grpc, authority: authority.to_owned(), host: host.to_owned(), port, path })
    }

    /// As it was given, but for slashes at its end.
    pub(crate) fn text(&self) -> String {
        let scheme = match (self.is_grpc, self.is_tls) {
            (false, false) => "http",
            (false, true) => "https",
            (true, false) => "grpc",
            (true, true) => "grpcs",
        };
        format!("{scheme}://{}{}", self.authority, self.path)
    }

    /// Host and port, as a proxy is asked for them.
    pub(crate) fn place(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

fn host_and_port(authority: &str, usual: u16) -> Result<(&str, u16), TargetError> {
    let (host, rest) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match rest.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or(TargetError::Url)?,
        None if rest.is_empty() => usual,
        None => return Err(TargetError::Url),
    };
    if host.is_empty() {
        return Err(TargetError::Url);
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_their_parts() {
        for (url, is_tls, host, port, path) in [
            ("http://localhost:4040", false, "localhost", 4040, ""),
            ("http://h/", false, "h", 80, ""),
            ("http://[::1]:7/a/b/", false, "::1", 7, "/a/b"),
            ("http://10.0.0.1/pyroscope", false, "10.0.0.1", 80, "/pyroscope"),
            ("https://profiles.example.com/", true, "profiles.example.com", 443, ""),
            ("https://[fe80::2]:8443/x", true, "fe80::2", 8443, "/x"),
            ("grpc://h:4317", false, "h", 4317, ""),
            ("grpcs://h", true, "h", 443, ""),
        ] {
            let parts = Url::of(url).expect("valid");
            assert_eq!((parts.is_tls, &*parts.host, parts.port, &*parts.path), (is_tls, host, port, path), "{url}");
            assert_eq!(parts.is_grpc, url.starts_with("grpc"), "{url}");
            assert_eq!(parts.text(), url.trim_end_matches('/'));
        }
        for url in [
            "",
            "localhost:4040",
            "ftp://h",
            "http://",
            "http://:80",
            "http://h:0",
            "http://h:x",
            "http://h/?x",
            "http://h h",
        ] {
            assert_eq!(Url::of(url).err(), Some(TargetError::Url), "{url}");
        }
        assert_eq!(Url::of("http://user:password@h").err(), Some(TargetError::Secret));
        assert_eq!(Url::of("https://[::1]").expect("valid").place(), "[::1]:443");
    }
}
