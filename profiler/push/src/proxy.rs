//! Proxies, by the variables that other programs ask, too: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, in
//! small or capital letters (`HTTP_PROXY` is none, because a CGI program's client can set it). What they mean is what
//! [curl](https://curl.se/docs/manpage.html#ENVIRONMENT) takes them for.

use crate::credentials::Credentials;
use crate::target::TargetError;
use crate::url::Url;
use std::net::IpAddr;

/// A proxy, which is spoken to by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) url: Url,
    pub(crate) credentials: Credentials,
}

impl Proxy {
    /// The proxy for what goes to this URL; `None`: it is reached directly. `variable`: of the environment.
    pub(crate) fn of(url: &Url, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Proxy>, TargetError> {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()).map(|value| (*name, value)))
        };
        // Of gRPC, too: it has no variables of its own here.
        let names: &[&str] = match url.is_tls {
            true => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
            false => &["http_proxy", "all_proxy", "ALL_PROXY"],
        };
        let Some((name, value)) = first(names) else { return Ok(None) };
        let without = first(&["no_proxy", "NO_PROXY"]).map_or(String::new(), |(_, value)| value);
        if is_this_machine(&url.host) || without.split([',', ' ']).any(|entry| is_meant(entry, url)) {
            return Ok(None);
        }
        parsed(&value).map(Some).ok_or(TargetError::Proxy(name))
    }
}

/// `http://user:password@host:port`; only the host must be there.
fn parsed(value: &str) -> Option<Proxy> {
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let rest = match value.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, rest)) => Some(rest).filter(|_| scheme.eq_ignore_ascii_case("http"))?,
        None => value,
    };
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let mut url = Url::of(&format!("http://{rest}")).ok()?;
    if !url.path.is_empty() {
        return None;
    }
    let has_port = url.authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if !has_port {
        // As curl has it.
        url.port = 1080;
    }
    let credentials = match user {
        None => Credentials::None,
        Some(user) => {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            Credentials::Basic(decoded(user)?, decoded(password)?)
        }
    };
    credentials.is_valid().then_some(Proxy { url, credentials })
}

/// A proxy's `localhost` is another machine's, which nobody means.
fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether an entry of `no_proxy` means this host: `*`, a host with all below it, an address, or a network
/// (`10.0.0.0/8`); with a port, that port alone.
fn is_meant(entry: &str, url: &Url) -> bool {
    let host = url.host.to_ascii_lowercase();
    let entry = entry.trim().to_ascii_lowercase();
    if let Ok(address) = host.parse::<IpAddr>() {
        let alone = entry.trim_start_matches('[').trim_end_matches(']');
        if alone.parse() == Ok(address) || in_network(alone, address) {
            return true;
        }
    }
    let (name, port) = match entry.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => (name, port.parse().ok()),
        _ => (&*entry, None),
    };
    let name = name.trim_start_matches('.').trim_start_matches('[').trim_end_matches([']', '.']);
    let is_host = name == "*" || name == host || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    !name.is_empty() && is_host && port.is_none_or(|port: u16| port == url.port)
}

/// Whether an address is in a network ([RFC 4632](https://www.rfc-editor.org/rfc/rfc4632)).
fn in_network(network: &str, address: IpAddr) -> bool {
    let Some((base, len)) = network.split_once('/') else { return false };
    let (Ok(base), Ok(len)) = (base.parse::<IpAddr>(), len.parse::<u32>()) else { return false };
    let (base, address, bits) = match (base, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => (u128::from(base.to_bits()), u128::from(address.to_bits()), 32),
        (IpAddr::V6(base), IpAddr::V6(address)) => (base.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    len <= bits && (base ^ address).checked_shr(bits - len).is_none_or(|differs| differs == 0)
}

/// A text with `%41` for `A`; `None`: it is damaged.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str, variables: &[(&str, &str)]) -> Result<Option<Proxy>, TargetError> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Proxy::of(&Url::of(url).expect("an URL"), &find)
    }

    #[test]
    fn a_scheme_has_its_proxy() {
        let both = [("http_proxy", "http://a:1/"), ("HTTPS_PROXY", "b:2")];
        let place = |url, variables: &[_]| of(url, variables).expect("valid").map(|proxy| proxy.url.place());
        assert_eq!(place("http://h", &both).as_deref(), Some("a:1"));
        assert_eq!(place("https://h", &both).as_deref(), Some("b:2"));
        assert_eq!(place("http://h", &[("HTTP_PROXY", "a:1")]), None);
        assert_eq!(place("http://h", &[("all_proxy", "http://a")]).as_deref(), Some("a:1080"));
        assert_eq!(place("http://localhost:4040", &both), None);
        assert_eq!(place("https://[::1]", &both), None);
        let proxy = of("https://h", &[("https_proxy", "http://u%40x:p%3Aw@p:3128")]).expect("valid").expect("a proxy");
        assert_eq!(proxy.credentials, Credentials::Basic("u@x".to_owned(), "p:w".to_owned()));
        for wrong in ["socks5://p:1", "socks5h://u:w@p:1", "https://p:1", "http://p:1/x", "http://u%4:p@p:1", "http://"]
        {
            assert_eq!(of("https://h", &[("https_proxy", wrong)]), Err(TargetError::Proxy("https_proxy")), "{wrong}");
        }
    }

    /// The cases are those of curl's manual, and of its tests of `no_proxy`.
    #[test]
    fn what_needs_no_proxy() {
        for (entries, url, is_meant) in [
            ("*", "http://h", true),
            ("example.com", "http://example.com", true),
            ("example.com", "http://www.EXAMPLE.com", true),
            (".example.com", "http://www.example.com", true),
            ("example.com", "http://notexample.com", false),
            ("a, b ,c", "http://b", true),
            ("h:8080", "http://h:8080", true),
            ("h:8080", "http://h:81", false),
            ("10.0.0.0/8", "http://10.2.3.4", true),
            ("10.0.0.0/8", "http://11.2.3.4", false),
            ("0.0.0.0/0", "http://11.2.3.4", true),
            ("10.0.0.0/33", "http://10.0.0.0", false),
            ("fe80::/10", "http://[fe80::2]", true),
            ("[fd00::1]", "http://[fd00::1]", true),
            ("", "http://h", false),
        ] {
            let variables = [("http_proxy", "p:1"), ("no_proxy", entries)];
            assert_eq!(of(url, &variables).expect("valid").is_none(), is_meant, "{entries} {url}");
        }
    }
}
