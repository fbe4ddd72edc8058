//! Settings of a client: the server's address, the session, time limits, size limits.
//!
//! | address | means |
//! |---|---|
//! | `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]` | TCP; port 6379, database 0 |
//! | `unix:///PATH[?db=DATABASE]` | a Unix socket; user and password as `?user=` and `&password=` |
//! | `rediss://…` | the same over TLS; the certificate must be for HOST |
//!
//! | of `rediss://` | means |
//! |---|---|
//! | `?ca=FILE` | only the certificates of this PEM file are trusted, instead of the system's |
//! | `?cert=FILE&key=FILE` | certificate and private key of the client, for servers that want them |
//! | `?name=NAME` | name or address that the certificate must be for, instead of HOST |
//!
//! `?protocol=resp3` opens the session with `HELLO 3`. User, password and path are percent-encoded.

use super::error::NotSent;
use super::tls::{Tls, TlsSettingsError};
use crate::codec::ProtocolVersion;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Port of a Redis server.
const PORT: u16 = 6379;

/// Names of the options of an address.
const OPTIONS: &str = "db, user, password, protocol, and for rediss:// ca, cert, key, name";

/// Longest timeout. A longer one could overflow the clock.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The end of a timeout that begins now.
#[inline]
pub(crate) fn deadline(now: Instant, timeout: Duration) -> Instant {
    now + timeout.min(TIMEOUT_MAX)
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A host's name or address, without brackets, and a port.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix socket's file.
    Unix(PathBuf),
}

/// All settings of a client. The fields may be changed before the client is made.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Where the server listens.
    pub endpoint: Endpoint,
    /// TLS, if the server speaks it there.
    pub tls: Option<Tls>,
    /// User of the server's access list; without one the password is that of the default user.
    pub user: Option<String>,
    /// Password, if the server wants one.
    pub password: Option<String>,
    /// Database that is selected on every new connection.
    pub database: u32,
    /// RESP2 works with every server. RESP3 is requested by `HELLO 3`; a server that does not know it refuses the session.
    pub version: ProtocolVersion,
    /// Time limit of a whole call: connecting, waiting for the next attempt, sending and the reply. At least a millisecond.
    /// It must be longer than a blocking command such as BLPOP may block.
    pub timeout: Duration,
    /// Time limit of one attempt to connect, including the session.
    pub connect_timeout: Duration,
    /// Pause after the first failed attempt to connect. It doubles with each further one, and a random part of at most a
    /// half is taken off, so that clients do not all reconnect at once after a server's restart.
    pub backoff_min: Duration,
    /// Longest pause between attempts.
    pub backoff_max: Duration,
    /// Largest number of bytes of queued commands without a reply.
    pub queue_bytes_max: usize,
    /// Largest size of one command or pipeline, in bytes.
    pub request_bytes_max: usize,
    /// Largest size of one reply, in bytes.
    pub reply_bytes_max: usize,
}

impl ClientSettings {
    /// Default settings for an address. For `rediss://` this reads the files of trusted certificates.
    ///
    /// # Errors
    /// [`NotSent::Address`] says what is wrong with it, or with a file.
    pub fn of(address: &str) -> Result<ClientSettings, NotSent> {
        parse(address).map_err(|reason| NotSent::Address(format!("`{}`: {reason}", without_secret(address))))
    }

    /// Default settings for a server without a password.
    pub fn for_endpoint(endpoint: Endpoint) -> ClientSettings {
        ClientSettings {
            endpoint,
            tls: None,
            user: None,
            password: None,
            database: 0,
            version: ProtocolVersion::Resp2,
            timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            queue_bytes_max: 1 << 20,
            request_bytes_max: 1 << 30,
            reply_bytes_max: 1 << 30,
        }
    }
}

/// Passwords must not appear in logs.
impl std::fmt::Debug for ClientSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ClientSettings")
            .field("endpoint", &self.endpoint)
            .field("tls", &self.tls)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("version", &self.version)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The address without its password and options, for messages.
fn without_secret(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
    let shown = match place.rfind('@') {
        Some(at) if scheme != "unix" => format!("…{}", &place[at..]),
        // The `?` may belong to a password.
        None if scheme != "unix" && options.contains('@') => "…".to_owned(),
        _ => place.to_owned(),
    };
    if scheme.is_empty() { shown } else { format!("{scheme}://{shown}") }
}

fn parse(address: &str) -> Result<ClientSettings, String> {
    let (scheme, rest) = address.split_once("://").ok_or("an address begins with redis://, rediss:// or unix://")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut settings = match scheme {
        "redis" | "rediss" => parse_tcp(rest)?,
        "unix" => parse_unix(rest)?,
        _ => return Err(format!("`{scheme}` is not known; allowed: redis, rediss, unix")),
    };
    let mut tls = (scheme == "rediss").then(TlsOptions::default);
    for option in query.split('&').filter(|option| !option.is_empty()) {
        set(&mut settings, tls.as_mut(), option)?;
    }
    settings.tls = tls.map(|tls| tls.load(&settings.endpoint)).transpose()?;
    Ok(settings)
}

/// Options of an address about TLS.
#[derive(Default)]
struct TlsOptions {
    roots: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    server_name: Option<String>,
}

impl TlsOptions {
    fn load(self, endpoint: &Endpoint) -> Result<Tls, String> {
        let host = match endpoint {
            Endpoint::Tcp { host, .. } => host.as_str(),
            Endpoint::Unix(_) => "",
        };
        let server_name = self.server_name.as_deref().unwrap_or(host);
        let in_words = |error: TlsSettingsError| error.to_string();
        let tls = match self.roots {
            Some(path) => Tls::with_roots_file(Path::new(&path), server_name),
            None => Tls::with_system_roots(server_name),
        };
        match (tls.map_err(in_words)?, self.certificate, self.key) {
            (tls, None, None) => Ok(tls),
            (tls, Some(certificate), Some(key)) => {
                tls.with_identity_files(Path::new(&certificate), Path::new(&key)).map_err(in_words)
            }
            _ => Err("`cert` and `key` belong together".to_owned()),
        }
    }
}

fn parse_unix(path: &str) -> Result<ClientSettings, String> {
    if !path.starts_with('/') {
        return Err("the path of a Unix socket begins with `/`, as in unix:///run/redis.sock".to_owned());
    }
    Ok(ClientSettings::for_endpoint(Endpoint::Unix(PathBuf::from(decode(path)?))))
}

fn parse_tcp(rest: &str) -> Result<ClientSettings, String> {
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (secret, host) = authority.rsplit_once('@').map_or((None, authority), |(secret, host)| (Some(secret), host));
    let mut settings = ClientSettings::for_endpoint(parse_host(host)?);
    if let Some(secret) = secret {
        // Redis's own tools read a single word as the user; without a password it would be useless.
        let (user, password) = secret.split_once(':').ok_or("`USER:PASSWORD@` or `:PASSWORD@` is expected")?;
        settings.user = (!user.is_empty()).then(|| decode(user)).transpose()?;
        settings.password = Some(decode(password)?);
    }
    if !database.is_empty() {
        settings.database = number(database)?;
    }
    Ok(settings)
}

fn parse_host(text: &str) -> Result<Endpoint, String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("`]` is missing")?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")).ok_or("a port follows `:`")?)
        }
        None => text.split_once(':').unwrap_or((text, "")),
    };
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = if port.is_empty() { Some(PORT) } else { port.parse().ok().filter(|&port| port > 0) };
    let port = port.ok_or("a port is a number from 1 to 65535")?;
    Ok(Endpoint::Tcp { host: host.to_owned(), port })
}

fn set(settings: &mut ClientSettings, tls: Option<&mut TlsOptions>, option: &str) -> Result<(), String> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    let of_tls = || tls.ok_or_else(|| format!("option `{name}` is for rediss:// alone"));
    match (name, value) {
        ("db", database) => settings.database = number(database)?,
        ("user", user) => settings.user = Some(decode(user)?),
        ("password", password) => settings.password = Some(decode(password)?),
        ("protocol", "resp2" | "2") => settings.version = ProtocolVersion::Resp2,
        ("protocol", "resp3" | "3") => settings.version = ProtocolVersion::Resp3,
        ("protocol", other) => return Err(format!("protocol `{other}` is not known; allowed: resp2, resp3")),
        ("ca", path) => of_tls()?.roots = Some(decode(path)?),
        ("cert", path) => of_tls()?.certificate = Some(decode(path)?),
        ("key", path) => of_tls()?.key = Some(decode(path)?),
        ("name", server_name) => of_tls()?.server_name = Some(decode(server_name)?),
        _ => return Err(format!("option `{name}` is not known; allowed: {OPTIONS}")),
    }
    Ok(())
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("database `{text}` is no number"))
}

/// Percent-decoding (RFC 3986, 2.1).
fn decode(text: &str) -> Result<String, String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(decoded.ok_or("two hexadecimal digits follow `%`")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "percent-encoded text is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn addresses_are_read() {
        let settings = ClientSettings::of("redis://localhost").unwrap();
        assert_eq!((settings.endpoint, settings.database), (tcp("localhost", 6379), 0));
        let settings = ClientSettings::of("redis://me:p%40ss@[::1]:7000/3?protocol=resp3").unwrap();
        assert_eq!((settings.endpoint, settings.database), (tcp("::1", 7000), 3));
        assert_eq!((settings.user.as_deref(), settings.password.as_deref()), (Some("me"), Some("p@ss")));
        assert_eq!(settings.version, ProtocolVersion::Resp3);
        let settings = ClientSettings::of("redis://:secret@h:1/").unwrap();
        assert_eq!((settings.user, settings.password.as_deref()), (None, Some("secret")));
        let settings = ClientSettings::of("unix:///run/my%20redis.sock?db=2&password=x").unwrap();
        assert_eq!(settings.endpoint, Endpoint::Unix(PathBuf::from("/run/my redis.sock")));
        assert_eq!(settings.tls, None);
        assert_eq!((settings.database, settings.password.as_deref()), (2, Some("x")));
    }

    #[test]
    fn wrong_addresses_are_refused_with_what_is_wrong() {
        for (address, words) in [
            ("localhost:6379", "begins with"),
            ("http://h", "`http` is not known"),
            ("rediss://h?ca=/none.pem", "/none.pem: "),
            ("rediss://h?name=no%20name", "`no name` is neither"),
            ("rediss://h?cert=/none.pem", "belong together"),
            ("redis://h?ca=/none.pem", "`ca` is for rediss:// alone"),
            ("unix:///s?name=h", "`name` is for rediss:// alone"),
            ("redis://", "host"),
            ("redis://h:0", "port"),
            ("redis://h:99999", "port"),
            ("redis://[::1", "`]`"),
            ("redis://h/x", "database `x`"),
            ("redis://word@h", "PASSWORD"),
            ("redis://:%zz@h", "hexadecimal"),
            ("redis://h?protocol=4", "protocol `4`"),
            ("redis://h?x=1", "option `x`"),
            ("unix://relative", "begins with `/`"),
        ] {
            let error = ClientSettings::of(address).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn passwords_are_in_no_message() {
        let error = ClientSettings::of("redis://me:secret@h:x").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        let error = ClientSettings::of("unix:///s?password=secret&x=1").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        for address in
            ["unix:///u@1000/s?password=secret&x=1", "redis://me:p@h?password=secret&x=1", "redis://me:secret?x@h:y"]
        {
            let error = ClientSettings::of(address).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let text = format!("{:?}", ClientSettings::of("redis://me:secret@h").unwrap());
        assert!(!text.contains("secret"), "{text}");
    }
}
