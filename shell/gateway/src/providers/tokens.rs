//! Tokens in the form of RFC 7519 (JWT), and the keys that they are signed with (RFC 7517).
//!
//! Only public keys are accepted, and the key decides which algorithms a token may name.

use super::Provider;
use crate::errors;
use crate::store::now;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::StatusCode;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
};
use s3s::{S3Error, S3Result};
use serde_json::{Map, Value};

/// The most bytes of a token, and the most keys of a provider.
const TOKEN_MAX: usize = 20 << 10;
const KEYS_MAX: usize = 100;
/// Seconds that clocks may be apart.
const LEEWAY: f64 = 60.0;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub subject: String,
    /// The first of them that the provider's record has.
    pub audience: String,
    /// All claims that are texts, or lists of texts.
    pub texts: Vec<(String, String)>,
}

fn invalid(why: &str) -> S3Error {
    errors::with_text("InvalidIdentityToken", StatusCode::BAD_REQUEST, why.to_owned())
}

/// A token as it is written, before anything of it is checked.
struct Token<'a> {
    header: Map<String, Value>,
    claims: Map<String, Value>,
    /// What is signed.
    message: &'a str,
    signature: Vec<u8>,
}

impl Token<'_> {
    /// Three parts in base64 between dots; none if it is something else.
    fn parse(text: &str) -> Option<Token<'_>> {
        if text.len() > TOKEN_MAX {
            return None;
        }
        let (message, signature) = text.rsplit_once('.')?;
        let (header, claims) = message.split_once('.')?;
        let object = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok();
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(Token { header: object(header)?, claims: object(claims)?, message, signature })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.claims.get(name).and_then(Value::as_str)
    }

    /// The algorithm and the name of the key.
    fn key(&self) -> (&str, Option<&str>) {
        let of = |name: &str| self.header.get(name).and_then(Value::as_str);
        (of("alg").unwrap_or_default(), of("kid"))
    }
}

/// The issuer that a token names. Nothing is checked.
pub fn issuer_of(token: &str) -> S3Result<String> {
    let token = Token::parse(token);
    let issuer = token.as_ref().and_then(|token| token.text("iss"));
    issuer.map(str::to_owned).ok_or_else(|| invalid("the token cannot be read"))
}

/// A public key.
#[derive(Clone, Debug)]
enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
}

impl PublicKey {
    /// None of keys of other kinds, and of those that are for something else than signatures.
    fn parse(key: &Map<String, Value>) -> Option<PublicKey> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let point = |len: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == len && y.len() == len).then(|| [&[4], &*x, &*y].concat())
        };
        match (text("kty")?, text("crv")) {
            ("RSA", _) => Some(PublicKey::Rsa { modulus: bytes("n")?, exponent: bytes("e")? }),
            ("EC", Some("P-256")) => point(32).map(PublicKey::P256),
            ("EC", Some("P-384")) => point(48).map(PublicKey::P384),
            _ => None,
        }
    }

    /// Whether it made a signature with this algorithm, which must be one of such keys.
    fn has_signed(&self, algorithm: &str, message: &str, signature: &[u8]) -> bool {
        let message = message.as_bytes();
        match (self, algorithm) {
            (PublicKey::Rsa { modulus: n, exponent: e }, "RS256" | "RS384" | "RS512") => {
                let how = match algorithm {
                    "RS256" => &RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &RSA_PKCS1_2048_8192_SHA384,
                    _ => &RSA_PKCS1_2048_8192_SHA512,
                };
                RsaPublicKeyComponents { n, e }.verify(how, message, signature).is_ok()
            }
            (PublicKey::P256(point), "ES256") => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
            (PublicKey::P384(point), "ES384") => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(message, signature).is_ok()
            }
            _ => false,
        }
    }
}

/// The keys of a provider, with their names.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<(Option<String>, PublicKey)>);

impl KeySet {
    /// From its description in JSON. Keys for something else are left out.
    pub fn parse(json: &[u8]) -> anyhow::Result<KeySet> {
        let set: Map<String, Value> = serde_json::from_slice(json)?;
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.ok_or_else(|| anyhow::anyhow!("it has no keys"))?.iter().filter_map(|key| {
            let key = key.as_object()?;
            let id = key.get("kid").and_then(Value::as_str).map(str::to_owned);
            Some((id, PublicKey::parse(key)?))
        });
        Ok(KeySet(keys.take(KEYS_MAX).collect()))
    }

    /// Keys that a token may be signed with.
    fn keys_of<'a>(&'a self, id: Option<&'a str>) -> impl Iterator<Item = &'a PublicKey> {
        let is_named = move |known: &Option<String>| match (id, known) {
            (Some(id), Some(known)) => id == known,
            _ => true,
        };
        self.0.iter().filter(move |(known, _)| is_named(known)).map(|(_, key)| key)
    }

    /// Whether the key that a token names is among them.
    pub fn has_key_of(&self, token: &str) -> bool {
        Token::parse(token).is_none_or(|token| self.keys_of(token.key().1).next().is_some())
    }

    /// What a token says, if one of the keys signed it, and it is for an audience of the provider and good
    /// now.
    pub fn check(&self, provider: &Provider, token: &str) -> S3Result<Claims> {
        let token = Token::parse(token).ok_or_else(|| invalid("the token cannot be read"))?;
        let (algorithm, id) = token.key();
        let has_signed = |key: &PublicKey| key.has_signed(algorithm, token.message, &token.signature);
        if !self.keys_of(id).any(has_signed) {
            return Err(invalid("the signature of the token is not the provider's"));
        }
        // Such a token has rules that must be known.
        if token.header.contains_key("crit") {
            return Err(invalid("the token has critical headers"));
        }
        let issuer = token.text("iss").and_then(super::bare_url);
        if issuer != Some(&*provider.url) {
            return Err(invalid("the token is of another issuer"));
        }
        let now = now() as f64 / 1000.0;
        let time = |name: &str| token.claims.get(name).map(|value| value.as_f64().unwrap_or(f64::NAN));
        // A comparison with what is no number never holds.
        let (end, begin) = (time("exp").unwrap_or(f64::NAN), time("nbf").unwrap_or(0.0));
        let (has_begun, is_good) = (now + LEEWAY >= begin, now < end + LEEWAY);
        if !is_good {
            return Err(errors::with_code(
                "ExpiredTokenException",
                StatusCode::BAD_REQUEST,
                "the token has expired, or does not say when it does",
            ));
        }
        if !has_begun {
            return Err(invalid("the token is not good yet"));
        }
        claims(provider, &token.claims)
    }
}

fn claims(provider: &Provider, claims: &Map<String, Value>) -> S3Result<Claims> {
    let texts: Vec<(String, String)> = claims
        .iter()
        .flat_map(|(name, value)| {
            let values = match value {
                Value::Array(values) => values.as_slice(),
                value => std::slice::from_ref(value),
            };
            values.iter().filter_map(|value| Some((name.clone(), value.as_str()?.to_owned())))
        })
        .collect();
    let of =
        |name: &'static str| texts.iter().filter(move |(found, _)| found == name).map(|(_, value)| value);
    // As AWS: where there is an authorised party, it is the audience.
    let mut audiences: Vec<&String> = of("azp").collect();
    if audiences.is_empty() {
        audiences.extend(of("aud"));
    }
    let audience = audiences.into_iter().find(|audience| provider.client_ids.contains(*audience));
    let audience = audience.ok_or_else(|| invalid("the token is for another audience"))?.clone();
    let subject = of("sub").next().ok_or_else(|| invalid("the token has no subject"))?.clone();
    Ok(Claims { subject, audience, texts })
}

#[cfg(test)]
mod tests {
    use super::{KeySet, Provider, TOKEN_MAX, URL_SAFE_NO_PAD, Value, issuer_of};
    use base64::Engine;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    struct Signer {
        pair: EcdsaKeyPair,
    }

    impl Signer {
        fn new() -> Signer {
            let random = SystemRandom::new();
            let how = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let document = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
            Signer { pair: EcdsaKeyPair::from_pkcs8(how, document.as_ref(), &random).unwrap() }
        }
        fn keys(&self, id: &str) -> KeySet {
            let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
            let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let key = json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": encode(x), "y": encode(y) });
            let other = json!({ "kty": "oct", "kid": "o", "k": "c2VjcmV0" });
            KeySet::parse(json!({ "keys": [other, key] }).to_string().as_bytes()).unwrap()
        }
        fn token(&self, header: Value, claims: Value) -> String {
            let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let message = format!("{}.{}", encode(&header), encode(&claims));
            let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
        }
    }

    fn now() -> u64 {
        super::now() / 1000
    }

    #[test]
    fn tokens_are_accepted_from_the_provider_for_its_audience_while_they_are_good() {
        let signer = Signer::new();
        let provider = Provider {
            url: "id.example.com".into(),
            client_ids: ["app".to_owned()].into(),
            ..Provider::default()
        };
        let good = json!({ "iss": "https://id.example.com", "sub": "anna", "aud": ["x", "app"],
                           "exp": now() + 600, "groups": ["a", "b"] });
        let header = json!({ "alg": "ES256", "kid": "k" });
        let check = |keys: &KeySet, header: &Value, claims: &Value| {
            let token = signer.token(header.clone(), claims.clone());
            keys.check(&provider, &token).map_err(|error| error.code().as_str().to_owned())
        };
        let keys = signer.keys("k");
        let claims = check(&keys, &header, &good).unwrap();
        assert_eq!((&*claims.subject, &*claims.audience), ("anna", "app"));
        assert!(claims.texts.contains(&("groups".to_owned(), "b".to_owned())));
        let invalid = Err("InvalidIdentityToken".to_owned());
        let with = |name: &str, value: Value| {
            let mut changed = good.clone();
            changed[name] = value;
            changed
        };
        for (name, value) in [
            ("iss", json!("https://other.example.com")),
            ("aud", json!("other")),
            ("azp", json!("other")),
            ("nbf", json!(now() + 600)),
            ("sub", Value::Null),
        ] {
            assert_eq!(check(&keys, &header, &with(name, value)), invalid, "{name}");
        }
        assert_eq!(check(&keys, &header, &with("azp", json!("app"))).unwrap().audience, "app");
        for end in [json!(now() - 600), Value::Null, json!("soon")] {
            let expired = with("exp", end);
            assert_eq!(check(&keys, &header, &expired), Err("ExpiredTokenException".to_owned()));
        }
        // Another key, another name of it, and other ways to sign.
        assert_eq!(check(&Signer::new().keys("k"), &header, &good), invalid);
        assert_eq!(check(&signer.keys("other"), &header, &good), invalid);
        for alg in ["none", "HS256", "RS256", "ES384"] {
            let header = json!({ "alg": alg, "kid": "k" });
            assert_eq!(check(&keys, &header, &good), invalid, "{alg}");
        }
        let token = signer.token(header.clone(), good.clone());
        assert_eq!(issuer_of(&token).unwrap(), "https://id.example.com");
        assert!(issuer_of("a.b.c").is_err() && issuer_of("").is_err());
        assert!(issuer_of(&"a".repeat(TOKEN_MAX + 1)).is_err());
        assert!(keys.has_key_of(&token) && !signer.keys("other").has_key_of(&token));
    }
}
