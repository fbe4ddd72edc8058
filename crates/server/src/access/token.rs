//! Tokens: the permissions of a request follow from the secret that it sends, whatever its address.
//!
//! `sapsan token` makes a token of 256 random bits. The file has only its SHA-256: a secret of so much entropy needs no slow
//! hash. The digest of a sent token is compared with every token of the file, all bytes of each, so that the time reveals nothing
//! about them.
//!
//! A [`Grant`] is what a token may do now. It is one object over all reloads, so revoking a token or its expiry reaches everything
//! that the token has opened: whatever may run for long holds a [`Permit`], and ends when its check fails.
//!
//! Such a token cannot be guessed at any rate of requests. So an address that has sent wrong tokens gets no delay for
//! valid ones; only the reply to a wrong token depends on their number ([`Tries`]).

use super::tries::Tries;
use crate::config::TokenConfig;
pub use crate::config::token::{ADMIN, READ, WRITE};
use crate::failure::{Failure, FailureKind};
use http::HttpRequest;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Prefix of a token's text, by which a leaked one can be found.
const PREFIX: &str = "sapsan_";
/// Random bytes of a token.
pub const RANDOM_BYTES: usize = 32;
const SCHEME: &[u8] = b"Bearer";

/// The tokens of the served configuration.
#[derive(Debug, Default)]
pub(crate) struct Tokens(RwLock<Vec<Arc<Grant>>>);

/// What a token may do now.
#[derive(Debug)]
pub(crate) struct Grant {
    sha256: [u8; 32],
    rights: RwLock<Rights>,
}

#[derive(Debug)]
struct Rights {
    token: TokenConfig,
    /// The served configuration does not have the token.
    is_revoked: bool,
}

impl Grant {
    fn new(token: TokenConfig) -> Grant {
        Grant { sha256: token.sha256, rights: RwLock::new(Rights { token, is_revoked: false }) }
    }

    fn rights(&self) -> RwLockReadGuard<'_, Rights> {
        self.rights.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut Rights)) {
        change(&mut self.rights.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Refuses a token that is revoked or has ended.
    fn check(&self) -> Result<(), Failure> {
        self.rights().check()
    }

    /// Refuses a token that is revoked or has ended, or does not have a scope.
    pub(crate) fn need(&self, scope: &str) -> Result<(), Failure> {
        let rights = self.rights();
        rights.check()?;
        if rights.token.allows(scope) {
            return Ok(());
        }
        let (name, allowed) = (&rights.token.name, rights.token.allow.join(", "));
        Err(Failure::new(FailureKind::Forbidden, format!("the token `{name}` allows {allowed}; this needs {scope}")))
    }
}

impl Rights {
    fn check(&self) -> Result<(), Failure> {
        let name = &self.token.name;
        let detail = if self.is_revoked {
            format!("the token `{name}` is revoked: it is no longer in the file's `[tokens]`")
        } else if self.token.until.is_some_and(|until| until <= SystemTime::now()) {
            format!("the token `{name}` has ended: `until` of `[tokens.{name}]`")
        } else {
            return Ok(());
        };
        Err(Failure::new(FailureKind::Unauthorized, detail))
    }
}

/// Permission of work that may run for long: a token and the scope that the work needs. The default is that of a request which
/// needs no token; it never ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permit(Option<(Arc<Grant>, Arc<str>)>);

impl Permit {
    pub(crate) fn new(grant: Arc<Grant>, scope: &str) -> Permit {
        Permit(Some((grant, scope.into())))
    }

    /// Why the work must end, if it must.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.0.as_ref().map_or(Ok(()), |(grant, scope)| grant.need(scope))
    }
}

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
    /// Puts the tokens of a configuration in force. A token of the same secret stays the same grant, with its new rights. The
    /// grants of others are revoked, and stay while work holds them: if the configuration is refused after all, the work goes on.
    pub(crate) fn replace(&self, tokens: &[TokenConfig]) {
        let mut grants = self.0.write().unwrap_or_else(PoisonError::into_inner);
        grants.retain(|grant| {
            let named = tokens.iter().find(|token| token.sha256 == grant.sha256);
            grant.set(|rights| match named {
                Some(token) => *rights = Rights { token: token.clone(), is_revoked: false },
                None => rights.is_revoked = true,
            });
            named.is_some() || Arc::strong_count(grant) > 1
        });
        let is_new = |token: &&TokenConfig| grants.iter().all(|grant| grant.sha256 != token.sha256);
        let new: Vec<Arc<Grant>> =
            tokens.iter().filter(is_new).map(|token| Arc::new(Grant::new(token.clone()))).collect();
        grants.extend(new);
    }

    /// The token that a request sends. `None`: it sends none, or one of another scheme.
    pub(crate) fn of(&self, request: &HttpRequest<'_>, tries: &Tries) -> Result<Option<Arc<Grant>>, Failure> {
        let Some(sent) = sent(request)? else { return Ok(None) };
        let Some(grant) = self.find(&digest(sent)) else {
            if tries.failed(request.client()) {
                return Err(unknown());
            }
            let detail = "unknown token: it is not in the file's `[tokens]`, and too many wrong ones came from this address: try again in a second";
            return Err(Failure::new(FailureKind::TooManyTries, detail));
        };
        grant.check()?;
        Ok(Some(grant))
    }

    /// The permit of a kept request whose endpoint requires a scope in another configuration than that in which it arrived.
    pub(crate) fn permit_again(&self, sent: Option<&Sent>, scope: &str) -> Result<Permit, Failure> {
        let grant = self.find(&sent.ok_or_else(missing)?.0).ok_or_else(unknown)?;
        grant.need(scope)?;
        Ok(Permit::new(grant, scope))
    }

    /// Compares with all of them, equal or not.
    fn find(&self, digest: &[u8; 32]) -> Option<Arc<Grant>> {
        let grants = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = u64::MAX;
        for (number, grant) in (0..).zip(&*grants) {
            found.conditional_assign(&number, digest.ct_eq(&grant.sha256));
        }
        usize::try_from(found).ok().and_then(|number| grants.get(number)).cloned()
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
impl Permit {
    /// The permit of a token that has been revoked.
    pub(crate) fn revoked() -> Permit {
        let token = TokenConfig { name: "t".to_owned(), sha256: [7; 32], allow: vec![ADMIN.to_owned()], until: None };
        let tokens = Tokens::default();
        tokens.replace(&[token]);
        let permit = tokens.permit_again(Some(&Sent([7; 32])), ADMIN).expect("it has the scope");
        tokens.replace(&[]);
        permit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_digest_among_others() {
        let new: Vec<NewToken> = (0..3).map(|number| NewToken::new(&[number; RANDOM_BYTES])).collect();
        let tokens = Tokens::default();
        assert!(tokens.find(&[0; 32]).is_none());
        tokens.replace(&new.iter().enumerate().map(config).collect::<Vec<_>>());
        for (number, token) in new.iter().enumerate() {
            assert_eq!(
                tokens.find(&digest(token.text.as_bytes())).map(|found| found.rights().token.name.clone()),
                Some(number.to_string())
            );
        }
        assert!(tokens.find(&digest(b"sapsan_")).is_none());
        assert!(tokens.find(&[0; 32]).is_none());
    }

    fn config((number, token): (usize, &NewToken)) -> TokenConfig {
        let sha256 = digest(token.text.as_bytes());
        TokenConfig { name: number.to_string(), sha256, allow: vec![READ.to_owned()], until: None }
    }

    #[test]
    fn a_permit_follows_its_token_through_every_configuration() {
        let new = NewToken::new(&[7; RANDOM_BYTES]);
        let first = config((1, &new));
        let tokens = Tokens::default();
        tokens.replace(std::slice::from_ref(&first));
        let sent = Sent(first.sha256);
        let permit = tokens.permit_again(Some(&sent), READ).expect("it reads");
        let told = || permit.check().map_err(|failure| failure.detail.into_owned());
        assert_eq!(told(), Ok(()));
        // Another name, and more scopes.
        let more = vec![READ.to_owned(), WRITE.to_owned()];
        tokens.replace(&[TokenConfig { name: "other".to_owned(), allow: more, ..first.clone() }]);
        assert_eq!(told(), Ok(()));
        tokens.replace(&[TokenConfig { allow: vec![WRITE.to_owned()], ..first.clone() }]);
        assert_eq!(told(), Err("the token `1` allows write; this needs read".to_owned()));
        tokens.replace(&[TokenConfig { until: Some(SystemTime::UNIX_EPOCH), ..first.clone() }]);
        assert_eq!(told(), Err("the token `1` has ended: `until` of `[tokens.1]`".to_owned()));
        tokens.replace(&[]);
        assert_eq!(told(), Err("the token `1` is revoked: it is no longer in the file's `[tokens]`".to_owned()));
        // As after a configuration that was refused late: the work goes on, and has the rights of the file.
        tokens.replace(std::slice::from_ref(&first));
        assert_eq!(told(), Ok(()));
        tokens.replace(&[]);
        drop(permit);
        tokens.replace(&[]);
        assert!(tokens.find(&first.sha256).is_none(), "nothing holds it");
        assert!(Permit::default().check().is_ok());
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
