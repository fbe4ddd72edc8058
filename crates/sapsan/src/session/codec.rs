//! Converts a cookie's text to a session's bytes and back, with the application's keys.
//!
//! ```text
//!  signed:     base64url( bytes | HMAC-SHA-256 of bytes, 32 bytes )
//!  encrypted:  base64url( nonce, 12 bytes | AES-256-GCM of bytes, with its tag of 16 bytes )
//! ```
//!
//! From each key of the list three keys are derived by HKDF-SHA-256 (RFC 5869): for signing, for encryption, and for form
//! tokens. Each is bound to the cookie's name, so neither a cookie of another name nor a form token is accepted as a
//! session. The keys' schedules are computed once: a signature costs one compression of SHA-256 for each 64 bytes, and one
//! more.

use super::content::{self, HEADER_BYTES};
use super::data::{Change, SessionData};
use super::error::SessionError;
use super::random::random;
use super::settings::{IDLE_MIN, LIFETIME_MAX, NAME_BYTES_MAX, Sessions, SessionsFault};
use crate::reply::Buffer;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::cookies::{self, SetCookie};
use ring::{aead, hkdf, hmac};
use std::time::{Duration, SystemTime};

/// Most bytes of the cookie's name, `=` and value. Browsers keep 4,096 of name and value (RFC 6265bis, section 5.7).
const COOKIE_BYTES_MAX: usize = 4000;
/// Number of cookies of the session's name that are tried: another host of the domain may have planted one before ours.
const TRIES_MAX: usize = 3;
const SIGNATURE_BYTES: usize = 32;
const NONCE_BYTES: usize = aead::NONCE_LEN;
const SEAL_BYTES: usize = NONCE_BYTES + 16;
/// A session in use is sent again when this part of its idle time has passed.
const RENEWALS_PER_IDLE_TIME: u32 = 10;
/// Random bytes that mask a form token's signature.
const MASK_BYTES: usize = 32;
const TOKEN_BYTES: usize = MASK_BYTES + SIGNATURE_BYTES;
/// Bytes of a form token's text.
const TOKEN_TEXT_BYTES: usize = TOKEN_BYTES.div_ceil(3) * 4;

const _: () = assert!(COOKIE_BYTES_MAX < u16::MAX as usize, "an entry's length fits its field");
const _: () = assert!(MASK_BYTES == SIGNATURE_BYTES, "the mask covers the signature");

/// The keys derived from one key.
struct KeySet {
    seal: Seal,
    token: hmac::Key,
}

enum Seal {
    Signed(hmac::Key),
    Encrypted(Box<aead::LessSafeKey>),
}

/// Reads and writes the session cookies of an application.
pub(crate) struct Codec {
    name: Box<str>,
    settings: Sessions,
    /// The first key seals, all of them open. Never empty.
    keys: Box<[KeySet]>,
    idle_seconds: u32,
    lifetime_seconds: u32,
}

impl Sessions {
    /// Checks the settings and builds the codec for requests.
    pub(crate) fn build(&self) -> Result<Codec, SessionsFault> {
        let (idle, lifetime) = (self.idle, self.lifetime);
        if idle < IDLE_MIN || idle > lifetime || lifetime > LIFETIME_MAX {
            return Err(SessionsFault::Expiry { idle, lifetime });
        }
        let bytes = self.cookie_name().len();
        if bytes > NAME_BYTES_MAX {
            return Err(SessionsFault::Name { bytes });
        }
        let codec = Codec::new(self);
        codec.cookie("").check().map_err(SessionsFault::Cookie)?;
        Ok(codec)
    }
}

impl Codec {
    fn new(settings: &Sessions) -> Codec {
        let name: Box<str> = settings.cookie_name().into();
        let keys = settings.keys.iter().map(|key| KeySet::new(key, &name, settings.is_encrypted)).collect();
        let seconds = |duration: Duration| u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
        let (idle_seconds, lifetime_seconds) = (seconds(settings.idle), seconds(settings.lifetime));
        Codec { name, settings: settings.clone(), keys, idle_seconds, lifetime_seconds }
    }

    /// The session of a request, or an empty one.
    #[inline]
    pub(crate) fn load(&self, request: &http::HttpRequest<'_>) -> SessionData {
        let cookies = cookies::of_request(request).filter(|cookie| cookie.name == &*self.name);
        self.load_first(cookies.map(|cookie| cookie.value), self.now())
    }

    /// Seconds since 1970. After 2106 all sessions are expired.
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        let since = (self.settings.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    }

    pub(super) fn load_first<'r>(&self, values: impl Iterator<Item = &'r [u8]>, now: u32) -> SessionData {
        let mut bytes = Buffer::take();
        for value in values.take(TRIES_MAX) {
            if let Some(key) = self.open(value, bytes.bytes_mut())
                && self.is_alive(&bytes, now)
            {
                let used_before = now.saturating_sub(content::renewed(&bytes));
                let is_due = key > 0 || used_before >= self.idle_seconds / RENEWALS_PER_IDLE_TIME;
                return SessionData::received(bytes, self.bytes_max(), is_due);
            }
        }
        bytes.bytes_mut().clear();
        SessionData::fresh(bytes, self.bytes_max())
    }

    /// Whether authentic bytes have this format and have not expired.
    fn is_alive(&self, bytes: &[u8], now: u32) -> bool {
        let is_ours = bytes.len() >= HEADER_BYTES && bytes[0] == content::FORMAT;
        // A clock that was set back must not end sessions.
        let age = |since: u32| now.saturating_sub(since);
        is_ours
            && age(content::begun(bytes)) < self.lifetime_seconds
            && age(content::renewed(bytes)) < self.idle_seconds
    }

    /// Most bytes of header and entries, so that the cookie stays within its limit.
    fn bytes_max(&self) -> usize {
        let beside = if self.settings.is_encrypted { SEAL_BYTES } else { SIGNATURE_BYTES };
        (COOKIE_BYTES_MAX - self.name.len() - 1) / 4 * 3 - beside
    }

    /// Decodes a cookie's value into `bytes`, and returns the index of the key that opened it. On `None` the content of
    /// `bytes` is undefined.
    #[inline]
    fn open(&self, value: &[u8], bytes: &mut Vec<u8>) -> Option<usize> {
        if value.len() + self.name.len() + 1 > COOKIE_BYTES_MAX {
            return None;
        }
        // A failed try may have overwritten the bytes, so each key decodes again.
        let mut open = |key: &KeySet| decode(value, bytes).and_then(|()| key.seal.open(bytes));
        self.keys.iter().position(|key| open(key).is_some())
    }

    /// The text of a cookie's value, from a session's bytes.
    fn seal(&self, mut bytes: Vec<u8>) -> Result<String, SessionError> {
        match &self.keys[0].seal {
            Seal::Signed(key) => {
                let signature = hmac::sign(key, &bytes);
                bytes.extend_from_slice(signature.as_ref());
            }
            Seal::Encrypted(key) => encrypt(key, &mut bytes)?,
        }
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The value of the reply's `Set-Cookie` field; `None` if the client's cookie is up to date.
    #[inline]
    pub(crate) fn set_cookie(&self, data: &SessionData, now: u32) -> Result<Option<String>, SessionError> {
        match data.change() {
            Change::Nothing => Ok(None),
            Change::Removed => Ok(self.with_attributes(SetCookie::removal(&self.name)).field().ok()),
            Change::Changed => self.sent(data, now).map(Some),
        }
    }

    #[cold]
    fn sent(&self, data: &SessionData, now: u32) -> Result<String, SessionError> {
        let bytes = data.stamped(now);
        let age = now.saturating_sub(content::begun(&bytes));
        let seconds = self.idle_seconds.min(self.lifetime_seconds.saturating_sub(age));
        let value = self.seal(bytes)?;
        let cookie = self.cookie(&value);
        let cookie = if self.settings.outlives_browser { cookie.max_age(seconds.into()) } else { cookie };
        Ok(cookie
            .field()
            .expect("name and attributes were checked at the start, the value is base64 and within its limit"))
    }

    /// The cookie with this value and all attributes except `Max-Age`.
    pub(super) fn cookie<'c>(&'c self, value: &'c str) -> SetCookie<'c> {
        self.with_attributes(SetCookie::new(&self.name, value))
    }

    fn with_attributes<'c>(&'c self, cookie: SetCookie<'c>) -> SetCookie<'c> {
        let cookie = cookie.path(&self.settings.path).http_only().same_site(self.settings.same_site);
        let cookie = if self.settings.is_secure { cookie.secure() } else { cookie };
        match &self.settings.domain {
            Some(domain) => cookie.domain(domain),
            None => cookie,
        }
    }

    /// A form token of this session. It is another text each time, so that a compressed page does not leak it (BREACH).
    pub(crate) fn form_token(&self, data: &mut SessionData) -> Result<String, SessionError> {
        let id = data.id_for_token()?;
        let mut token = [0; TOKEN_BYTES];
        let (mask, masked) = token.split_at_mut(MASK_BYTES);
        random(mask)?;
        masked.copy_from_slice(hmac::sign(&self.keys[0].token, &id.0).as_ref());
        xor(masked, mask);
        Ok(URL_SAFE_NO_PAD.encode(token))
    }

    /// Whether a text is a form token of this session.
    pub(crate) fn is_form_token(&self, data: &SessionData, text: &[u8]) -> bool {
        let mut token = [0; TOKEN_BYTES + 2];
        let (Some(id), true) = (data.id(), text.len() <= TOKEN_TEXT_BYTES) else { return false };
        let Ok(TOKEN_BYTES) = URL_SAFE_NO_PAD.decode_slice(text, &mut token) else { return false };
        let (mask, masked) = token.split_at_mut(MASK_BYTES);
        let masked = &mut masked[..SIGNATURE_BYTES];
        xor(masked, mask);
        self.keys.iter().any(|key| hmac::verify(&key.token, &id.0, masked).is_ok())
    }
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Seal {
    /// Authenticates the bytes, and leaves only the session's content in them.
    #[inline]
    fn open(&self, bytes: &mut Vec<u8>) -> Option<()> {
        match self {
            Seal::Signed(key) => verify(key, bytes),
            Seal::Encrypted(key) => decrypt(key, bytes),
        }
    }
}

impl KeySet {
    fn new(key: &[u8], name: &str, is_encrypted: bool) -> KeySet {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"sapsan sessions").extract(key);
        let seal = if is_encrypted {
            let key: aead::UnboundKey = expand(&secret, "encrypt", name, &aead::AES_256_GCM);
            Seal::Encrypted(Box::new(aead::LessSafeKey::new(key)))
        } else {
            Seal::Signed(expand(&secret, "sign", name, hmac::HMAC_SHA256))
        };
        KeySet { seal, token: expand(&secret, "form token", name, hmac::HMAC_SHA256) }
    }
}

/// Derives a key of this type for one purpose.
fn expand<K: hkdf::KeyType, R>(secret: &hkdf::Prk, purpose: &str, name: &str, key_type: K) -> R
where
    R: for<'o> From<hkdf::Okm<'o, K>>,
{
    let info = [purpose.as_bytes(), b"\0", name.as_bytes()];
    secret.expand(&info, key_type).expect("a key is shorter than HKDF's limit of 255 hashes").into()
}

/// Decodes base64url into `bytes`, replacing their content.
#[inline]
fn decode(value: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    // The library needs room for whole groups of four characters.
    bytes.resize(value.len().div_ceil(4) * 3, 0);
    let length = URL_SAFE_NO_PAD.decode_slice(value, bytes).ok()?;
    bytes.truncate(length);
    Some(())
}

/// Checks the signature at the end, in constant time, and removes it.
#[inline]
fn verify(key: &hmac::Key, bytes: &mut Vec<u8>) -> Option<()> {
    let (content, signature) = bytes.split_last_chunk::<SIGNATURE_BYTES>()?;
    hmac::verify(key, content, signature).ok()?;
    let length = content.len();
    bytes.truncate(length);
    Some(())
}

fn decrypt(key: &aead::LessSafeKey, bytes: &mut Vec<u8>) -> Option<()> {
    let nonce = aead::Nonce::assume_unique_for_key(*bytes.first_chunk::<NONCE_BYTES>()?);
    let length = key.open_within(nonce, aead::Aad::empty(), bytes, NONCE_BYTES..).ok()?.len();
    bytes.truncate(length);
    Some(())
}

fn encrypt(key: &aead::LessSafeKey, bytes: &mut Vec<u8>) -> Result<(), SessionError> {
    let mut nonce = [0; NONCE_BYTES];
    random(&mut nonce)?;
    let tag = key
        .seal_in_place_separate_tag(aead::Nonce::assume_unique_for_key(nonce), aead::Aad::empty(), bytes)
        .expect("a session is shorter than the cipher's limit");
    bytes.splice(..0, nonce);
    bytes.extend_from_slice(tag.as_ref());
    Ok(())
}

fn xor(bytes: &mut [u8], mask: &[u8]) {
    bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}
