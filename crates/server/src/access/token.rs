//! Tokens: the permissions of a request follow from the secret that it sends, whatever its address.
//!
//! `sapsan token` makes a token of 256 random bits. The file has only its SHA-256: a secret of so much entropy needs no slow
//! hash. The digest of a sent token is compared with every token of the file, all bytes of each, so that the time reveals nothing
//! about them. Such a token cannot be guessed at any rate of requests. So an address that has sent wrong tokens gets no delay for
//! valid ones; only the reply to a wrong token depends on their number ([`Tries`]).

use super::sender::Granted;
use super::tries::Tries;
use crate::config::TokenConfig;
pub use crate::config::token::{ADMIN, READ, WRITE};
use crate::failure::{Failure, FailureKind};
use http::HttpRequest;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::time::SystemTime;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Prefix of a token's text, by which a leaked one can be found.
const PREFIX: &str = "sapsan_";
/// Random bytes of a token.
pub const RANDOM_BYTES: usize = 32;
const SCHEME: &[u8] = b"Bearer";

/// The tokens of a configuration.
#[derive(Debug)]
pub(crate) struct Tokens(Vec<TokenConfig>);

/// A new token.
pub struct NewToken {
    /// The client's secret. It is stored nowhere else.
    pub text: String,
    /// Its digest for the file.
    pub sha256: String,
}

impl NewToken {
    /// The token of these random bytes.
    pub fn new(random: &[u8; RANDOM_BYTES]) -> NewToken {
        let text = format!("{PREFIX}{}", hex(random));
        NewToken { sha256: hex(&digest(text.as_bytes())), text }
    }
}

impl Tokens {
    pub(crate) fn new(tokens: Vec<TokenConfig>) -> Tokens {
        Tokens(tokens)
    }

    /// The token that a request sends. `None`: it sends none, or one of another scheme.
    pub(crate) fn of(&self, request: &HttpRequest<'_>, tries: &Tries) -> Result<Option<&TokenConfig>, Failure> {
        let Some(sent) = sent(request)? else { return Ok(None) };
        let Some(token) = self.find(&digest(sent)) else {
            if tries.failed(request.client()) {
                return Err(unknown());
            }
            let detail = "unknown token: it is not in the file's `[tokens]`, and too many wrong ones came from this address: try again in a second";
            return Err(Failure::new(FailureKind::TooManyTries, detail));
        };
        check_end(token)?;
        Ok(Some(token))
    }

    /// Whether a token that was valid when its request arrived has the scope that the endpoint requires in another configuration.
    pub(crate) fn check_again(&self, sent: Option<&Sent>, scope: &str) -> Result<(), Failure> {
        let token = self.find(&sent.ok_or_else(missing)?.0).ok_or_else(unknown)?;
        check_end(token)?;
        Granted::Token(token).need(scope)
    }

    /// Compares with all of them, equal or not.
    fn find(&self, digest: &[u8; 32]) -> Option<&TokenConfig> {
        let mut found = u64::MAX;
        for (number, token) in (0..).zip(&self.0) {
            found.conditional_assign(&number, digest.ct_eq(&token.sha256));
        }
        usize::try_from(found).ok().and_then(|number| self.0.get(number))
    }
}

/// The digest of a sent token, for a request that is kept.
#[derive(Clone)]
pub(crate) struct Sent([u8; 32]);

impl Sent {
    /// `None` if the request sends no token.
    pub(crate) fn of(request: &HttpRequest<'_>) -> Option<Sent> {
        sent(request).ok().flatten().map(|token| Sent(digest(token)))
    }
}

fn check_end(token: &TokenConfig) -> Result<(), Failure> {
    if token.until.is_none_or(|until| until > SystemTime::now()) {
        return Ok(());
    }
    Err(Failure::new(
        FailureKind::Unauthorized,
        format!("the token `{}` has ended: `until` of `[tokens.{0}]`", token.name),
    ))
}

/// A token is required, and the request has none.
pub(crate) fn missing() -> Failure {
    Failure::new(FailureKind::Unauthorized, "this needs a token, as in `Authorization: Bearer TOKEN`")
}

fn unknown() -> Failure {
    Failure::new(FailureKind::Unauthorized, "unknown token: it is not in the file's `[tokens]`")
}

/// The token of the Authorization field, with the scheme Bearer (RFC 6750).
fn sent<'r>(request: &HttpRequest<'r>) -> Result<Option<&'r [u8]>, Failure> {
    let mut values = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("Authorization"));
    let Some((_, value)) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Failure::new(FailureKind::Unauthorized, "Authorization is given more than once"));
    }
    let (scheme, rest) = value.split_at(value.iter().position(|&byte| byte == b' ').unwrap_or(value.len()));
    Ok(scheme.eq_ignore_ascii_case(SCHEME).then(|| rest.trim_ascii()))
}

fn digest(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_digest_among_others() {
        let new: Vec<NewToken> = (0..3).map(|number| NewToken::new(&[number; RANDOM_BYTES])).collect();
        let config = |(number, token): (usize, &NewToken)| TokenConfig {
            name: number.to_string(),
            sha256: digest(token.text.as_bytes()),
            allow: Vec::new(),
            until: None,
        };
        let tokens = Tokens::new(new.iter().enumerate().map(config).collect());
        for (number, token) in new.iter().enumerate() {
            assert_eq!(
                tokens.find(&digest(token.text.as_bytes())).map(|found| found.name.clone()),
                Some(number.to_string())
            );
        }
        assert!(tokens.find(&digest(b"sapsan_")).is_none());
        assert!(tokens.find(&[0; 32]).is_none());
        assert!(Tokens::new(Vec::new()).find(&[0; 32]).is_none());
    }

    #[test]
    fn a_new_token_has_its_prefix_and_the_known_digest() {
        let new = NewToken::new(&[0xab; RANDOM_BYTES]);
        assert_eq!(new.text, format!("sapsan_{}", "ab".repeat(32)));
        // FIPS 180-4: the digest of "abc".
        assert_eq!(hex(&digest(b"abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(new.sha256, hex(&digest(new.text.as_bytes())));
    }
}
