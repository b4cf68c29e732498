//! Encryption at rest: what requests ask for, the keys of objects, and what answers say.
//!
//! `cipher` encrypts, `keyring` has the cluster's keys, `vault` those that Vault keeps.

use crate::access::Peer;
use crate::buckets::OpenBucket;
use crate::cipher::{Cipher, KEY_LEN, SALT_LEN, unwrap, wrap};
use crate::errors;
use crate::keyring::{RingKey, is_key_name};
use crate::secrets::fill;
use crate::service::Core;
use crate::vault::DataKey;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::Extensions;
use nacre_s3::{BucketEncryption, Encryption, KeySource};
use nacre_wire::to_vec;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{
    DeleteBucketEncryptionInput, DeleteBucketEncryptionOutput, GetBucketEncryptionInput,
    GetBucketEncryptionOutput, PutBucketEncryptionInput, PutBucketEncryptionOutput, ServerSideEncryption,
    ServerSideEncryptionByDefault, ServerSideEncryptionConfiguration, ServerSideEncryptionRule,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

const METHOD: &str = "x-amz-server-side-encryption";
const KEY_ID: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const CONTEXT: &str = "x-amz-server-side-encryption-context";
/// What the names of headers with a client's key begin with, and with that for the source of a copy.
const CLIENT: &str = "x-amz-server-side-encryption-customer-";
const CLIENT_OF_SOURCE: &str = "x-amz-copy-source-server-side-encryption-customer-";
const AES256: &str = "AES256";
const KMS: &str = "aws:kms";
/// The most bytes of a context, in base64.
const CONTEXT_MAX: usize = 2048;

/// A key that a request brings.
pub struct ClientKey {
    key: [u8; KEY_LEN],
    /// In base64.
    md5: String,
}

/// What a request asks for.
enum Asked {
    Nothing,
    Gateways,
    Named { name: String, context: String },
    Client(ClientKey),
}

/// A body's encryption, and what encrypts it.
pub struct Sealing {
    pub encryption: Encryption,
    pub cipher: Cipher,
}

/// The two parts of what may be a sealing.
pub fn parts(sealing: Option<Sealing>) -> (Option<Encryption>, Option<Cipher>) {
    sealing.map(|sealing| (sealing.encryption, sealing.cipher)).unzip()
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> S3Result<Option<&'a str>> {
    let text = |value: &'a HeaderValue| {
        value.to_str().map_err(|_| s3_error!(InvalidArgument, "the header {name} is not text"))
    };
    headers.get(name).map(text).transpose()
}

/// The key that a request brings in the headers that begin with `prefix`.
fn client_key(headers: &HeaderMap, extensions: &Extensions, prefix: &str) -> S3Result<Option<ClientKey>> {
    let of = |name: &str| header(headers, &format!("{prefix}{name}"));
    let (algorithm, key, md5) = match (of("algorithm")?, of("key")?, of("key-md5")?) {
        (None, None, None) => return Ok(None),
        (Some(algorithm), Some(key), Some(md5)) => (algorithm, key, md5),
        _ => {
            let message = "Requests specifying Server Side Encryption with Customer provided keys must \
                           provide the algorithm, the key and its MD5.";
            return Err(s3_error!(InvalidArgument, "{message}"));
        }
    };
    if algorithm != AES256 {
        let message = "The encryption request you specified is not valid. The valid value is AES256.";
        return Err(errors::with_code("InvalidEncryptionAlgorithmError", StatusCode::BAD_REQUEST, message));
    }
    let bytes = STANDARD.decode(key).ok().and_then(|bytes| <[u8; KEY_LEN]>::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| {
        s3_error!(InvalidArgument, "The secret key was invalid for the specified algorithm.")
    })?;
    if STANDARD.encode(Md5::checksum(&bytes)) != md5 {
        return Err(s3_error!(
            InvalidArgument,
            "The calculated MD5 hash of the key did not match the hash that was provided."
        ));
    }
    if !is_private(headers, extensions) {
        return Err(s3_error!(
            InvalidRequest,
            "Requests specifying Server Side Encryption with Customer provided keys must be made over a \
             secure connection."
        ));
    }
    Ok(Some(ClientKey { key: bytes, md5: md5.to_owned() }))
}

/// Whether a request cannot be read on its way. Only the client itself is protected by this, so what a proxy
/// says is believed.
fn is_private(headers: &HeaderMap, extensions: &Extensions) -> bool {
    let is_own = extensions.get::<Peer>().is_some_and(|peer| peer.is_encrypted || peer.address.is_loopback());
    is_own || headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https")
}

/// The name of a key, also from its ARN.
fn key_name(id: &str) -> S3Result<String> {
    let name = id.rsplit_once(":key/").filter(|_| id.starts_with("arn:")).map_or(id, |(_, name)| name);
    match is_key_name(name) {
        true => Ok(name.to_owned()),
        false => Err(no_such_key(name)),
    }
}

fn no_such_key(name: &str) -> S3Error {
    let message = format!(
        "there is no key {name:?} in the key ring of this cluster, and the gateway uses no other service for \
         keys"
    );
    errors::with_text("KMS.NotFoundException", StatusCode::BAD_REQUEST, message)
}

fn no_vault(name: &str) -> S3Error {
    let message = format!("the key {name:?} of the object is kept by Vault, which this gateway does not use");
    errors::with_text("KMS.NotFoundException", StatusCode::BAD_REQUEST, message)
}

impl Asked {
    fn of(headers: &HeaderMap, extensions: &Extensions) -> S3Result<Asked> {
        let client = client_key(headers, extensions, CLIENT)?;
        let (id, context) = (header(headers, KEY_ID)?, header(headers, CONTEXT)?);
        let invalid = |why: &str| Err(s3_error!(InvalidArgument, "{why}"));
        match (header(headers, METHOD)?, client) {
            (Some(_), Some(_)) => invalid("Server Side Encryption with a key of the client excludes others."),
            (None, Some(client)) => Ok(Asked::Client(client)),
            (None | Some(AES256), None) if id.is_some() || context.is_some() => {
                invalid("A key id and an encryption context are for Server Side Encryption with aws:kms.")
            }
            (None, None) => Ok(Asked::Nothing),
            (Some(AES256), None) => Ok(Asked::Gateways),
            (Some(KMS), None) => {
                let Some(id) = id.filter(|id| !id.is_empty()) else {
                    return invalid("Server Side Encryption with aws:kms needs the id of a key.");
                };
                let context = context.unwrap_or_default();
                let is_good = context.len() <= CONTEXT_MAX && STANDARD.decode(context).is_ok();
                if !is_good {
                    return invalid("The encryption context is not in base64, or too long.");
                }
                Ok(Asked::Named { name: key_name(id)?, context: context.to_owned() })
            }
            (Some(method), None) => {
                Err(s3_error!(InvalidArgument, "The encryption method {method} is not supported"))
            }
        }
    }

    fn or_default(self, bucket: &OpenBucket) -> S3Result<Asked> {
        if !matches!(self, Asked::Nothing) {
            return Ok(self);
        }
        let default = BucketEncryption::decode(&bucket.config.others).map_err(errors::corrupt)?;
        Ok(match default {
            None => Asked::Nothing,
            Some(BucketEncryption { source: KeySource::Named, name }) => {
                Asked::Named { name, context: String::new() }
            }
            Some(_) => Asked::Gateways,
        })
    }
}

/// What the key of an object is bound to.
fn purpose(source: KeySource, name: &str, context: &str) -> Vec<u8> {
    // Neither names nor contexts have a zero byte.
    format!("{source:?}\0{name}\0{context}").into_bytes()
}

/// A random key for an object, and the same encrypted with the key that it belongs to.
fn sealed(source: KeySource, name: String, context: String, with: DataKey) -> S3Result<Sealing> {
    let (mut key, mut salt) = ([0; KEY_LEN], [0; SALT_LEN]);
    let filled = fill(&mut key).and_then(|()| fill(&mut salt));
    filled.map_err(|failure| errors::of_failure(&failure))?;
    let wrapped = wrap(&with.key, &salt, &purpose(source, &name, &context), &key).into();
    let encryption = Encryption { source, name, context, wrapped, data_key: with.sealed };
    Ok(Sealing { encryption, cipher: Cipher::new(key) })
}

impl Core {
    async fn key_of_gateways(&self) -> S3Result<RingKey> {
        let key = self.keyring.of_gateways(&self.users.accounts.secrets).await;
        key.map_err(|failure| errors::of_failure(&failure))
    }

    async fn ring_key(&self, name: &str) -> S3Result<RingKey> {
        let key = self.keyring.named(&self.users.accounts.secrets, name).await;
        key.map_err(|failure| errors::of_failure(&failure))?.ok_or_else(|| no_such_key(name))
    }

    /// The key that the keys of new objects are encrypted with, for this named key.
    async fn new_key(&self, name: &str) -> S3Result<DataKey> {
        match &self.vault {
            Some(vault) => vault.new_key(name).await,
            None => Ok(DataKey { key: self.ring_key(name).await?, sealed: String::new() }),
        }
    }

    /// Where this gateway has named keys for new objects.
    fn named_source(&self) -> KeySource {
        if self.vault.is_some() { KeySource::Vault } else { KeySource::Named }
    }

    async fn seal(&self, asked: Asked) -> S3Result<Option<Sealing>> {
        let alone = |key| DataKey { key, sealed: String::new() };
        let (source, name, context, with) = match asked {
            Asked::Nothing => return Ok(None),
            Asked::Client(ClientKey { key, md5 }) => (KeySource::Client, md5, String::new(), alone(key)),
            Asked::Gateways => {
                (KeySource::Gateways, String::new(), String::new(), alone(self.key_of_gateways().await?))
            }
            Asked::Named { name, context } => {
                let key = self.new_key(&name).await?;
                (self.named_source(), name, context, key)
            }
        };
        sealed(source, name, context, with).map(Some)
    }

    /// How a new body is encrypted: as the request asks, or as the bucket does by default.
    pub async fn sealing<T>(&self, req: &S3Request<T>, bucket: &OpenBucket) -> S3Result<Option<Sealing>> {
        self.seal(Asked::of(&req.headers, &req.extensions)?.or_default(bucket)?).await
    }

    /// The same for a copy; none if it may have the encrypted bytes of its source, or both have none.
    pub async fn sealing_of_copy<T>(
        &self,
        req: &S3Request<T>,
        bucket: &OpenBucket,
        source: &Option<Encryption>,
    ) -> S3Result<CopySealing> {
        let asked = Asked::of(&req.headers, &req.extensions)?.or_default(bucket)?;
        let is_like = |kind, name: &str, context: &str| {
            source.as_ref().is_some_and(|source| source.is_like(kind, name, context))
        };
        let keeps = match &asked {
            Asked::Nothing => source.is_none(),
            Asked::Gateways => is_like(KeySource::Gateways, "", ""),
            Asked::Named { name, context } => is_like(self.named_source(), name, context),
            Asked::Client(_) => false,
        };
        match keeps {
            true => Ok(CopySealing::Keep),
            false => Ok(CopySealing::Anew(self.seal(asked).await?)),
        }
    }

    /// A sealing of the same kind. A client's key, which is not there any more, gives none.
    pub async fn sealing_like(&self, encryption: &Option<Encryption>) -> S3Result<Option<Sealing>> {
        let asked = match encryption {
            Some(Encryption { source: KeySource::Gateways, .. }) => Asked::Gateways,
            // The ring keeps its keys, also where new objects have those of Vault.
            Some(Encryption { source: KeySource::Named, name, context, .. }) => {
                let key = DataKey { key: self.ring_key(name).await?, sealed: String::new() };
                return sealed(KeySource::Named, name.clone(), context.clone(), key).map(Some);
            }
            Some(Encryption { source: KeySource::Vault, name, context, .. }) => {
                Asked::Named { name: name.clone(), context: context.clone() }
            }
            Some(Encryption { source: KeySource::Client, .. }) | None => Asked::Nothing,
        };
        self.seal(asked).await
    }

    /// What decrypts a body; none if it is not encrypted.
    pub async fn cipher(
        &self,
        encryption: &Option<Encryption>,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> S3Result<Option<Cipher>> {
        self.open_with(encryption, client_key(headers, extensions, CLIENT)?).await
    }

    /// The same for the source of a copy.
    pub async fn cipher_of_source<T>(
        &self,
        encryption: &Option<Encryption>,
        req: &S3Request<T>,
    ) -> S3Result<Option<Cipher>> {
        let client = client_key(&req.headers, &req.extensions, CLIENT_OF_SOURCE)?;
        self.open_with(encryption, client).await
    }

    async fn open_with(
        &self,
        encryption: &Option<Encryption>,
        client: Option<ClientKey>,
    ) -> S3Result<Option<Cipher>> {
        let of_client = encryption.as_ref().is_some_and(|it| it.source == KeySource::Client);
        if client.is_some() && !of_client {
            return Err(s3_error!(
                InvalidRequest,
                "The encryption parameters are not applicable to this object."
            ));
        }
        let Some(Encryption { source, name, context, wrapped, data_key }) = encryption else {
            return Ok(None);
        };
        let with = match (source, client) {
            (KeySource::Client, Some(client)) => client.key,
            (KeySource::Client, None) => {
                return Err(s3_error!(
                    InvalidRequest,
                    "The object was stored using a form of Server Side Encryption. The correct parameters \
                     must be provided to retrieve the object."
                ));
            }
            (KeySource::Gateways, _) => self.key_of_gateways().await?,
            (KeySource::Named, _) => self.ring_key(name).await?,
            (KeySource::Vault, _) => match &self.vault {
                Some(vault) => vault.open(name, data_key).await?,
                None => return Err(no_vault(name)),
            },
        };
        let key = unwrap(&with, &purpose(*source, name, context), wrapped).map_err(|_| match source {
            KeySource::Client => s3_error!(AccessDenied, "Access Denied: this is not the key of the object."),
            _ => errors::corrupt("the key of an object cannot be decrypted"),
        })?;
        Ok(Some(Cipher::new(key)))
    }

    /// PutBucketEncryption.
    pub async fn put_bucket_encryption(
        &self,
        req: S3Request<PutBucketEncryptionInput>,
    ) -> S3Result<S3Response<PutBucketEncryptionOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let default = default_of(req.input.server_side_encryption_configuration.rules)?;
        if default.source == KeySource::Named {
            self.new_key(&default.name).await?;
        }
        self.buckets.set(&bucket, BucketEncryption::SETTING, Some(to_vec(&default))).await?;
        Ok(S3Response::new(PutBucketEncryptionOutput::default()))
    }

    /// GetBucketEncryption.
    pub async fn get_bucket_encryption(
        &self,
        req: S3Request<GetBucketEncryptionInput>,
    ) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
        let bucket = self.open(&req.extensions).await?;
        let default = BucketEncryption::decode(&bucket.config.others).map_err(errors::corrupt)?;
        let Some(BucketEncryption { source, name }) = default else {
            return Err(errors::with_code(
                "ServerSideEncryptionConfigurationNotFoundError",
                StatusCode::NOT_FOUND,
                "The server side encryption configuration was not found",
            ));
        };
        let is_named = source == KeySource::Named;
        let method = if is_named { KMS } else { AES256 };
        let rule = ServerSideEncryptionRule {
            apply_server_side_encryption_by_default: Some(ServerSideEncryptionByDefault {
                kms_master_key_id: is_named.then_some(name),
                sse_algorithm: ServerSideEncryption::from_static(method),
            }),
            bucket_key_enabled: Some(false),
        };
        let configuration = ServerSideEncryptionConfiguration { rules: vec![rule] };
        Ok(S3Response::new(GetBucketEncryptionOutput {
            server_side_encryption_configuration: Some(configuration),
        }))
    }

    /// DeleteBucketEncryption.
    pub async fn delete_bucket_encryption(
        &self,
        req: S3Request<DeleteBucketEncryptionInput>,
    ) -> S3Result<S3Response<DeleteBucketEncryptionOutput>> {
        let bucket = self.open(&req.extensions).await?;
        self.buckets.set(&bucket, BucketEncryption::SETTING, None).await?;
        Ok(S3Response::with_status(DeleteBucketEncryptionOutput::default(), StatusCode::NO_CONTENT))
    }
}

/// How a copy is encrypted.
pub enum CopySealing {
    /// As its source.
    Keep,
    Anew(Option<Sealing>),
}

fn default_of(rules: Vec<ServerSideEncryptionRule>) -> S3Result<BucketEncryption> {
    let malformed = || s3_error!(MalformedXML, "exactly one rule with a default is needed");
    let [rule] = <[ServerSideEncryptionRule; 1]>::try_from(rules).map_err(|_| malformed())?;
    let ServerSideEncryptionByDefault { kms_master_key_id, sse_algorithm } =
        rule.apply_server_side_encryption_by_default.ok_or_else(malformed)?;
    match (sse_algorithm.as_str(), kms_master_key_id) {
        (AES256, None) => Ok(BucketEncryption { source: KeySource::Gateways, name: String::new() }),
        (AES256, Some(_)) => {
            Err(s3_error!(InvalidArgument, "a KMSMasterKeyID is for the algorithm aws:kms only"))
        }
        (KMS, Some(id)) => Ok(BucketEncryption { source: KeySource::Named, name: key_name(&id)? }),
        (KMS, None) => Err(s3_error!(InvalidArgument, "the algorithm aws:kms needs a KMSMasterKeyID")),
        (method, _) => Err(s3_error!(InvalidArgument, "The encryption method {method} is not supported")),
    }
}

/// Says in an answer how a body is encrypted.
pub fn tell(headers: &mut HeaderMap, encryption: &Option<Encryption>) {
    let Some(Encryption { source, name, .. }) = encryption else { return };
    let mut put = |header: &'static str, text: &str| {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(header, value);
        }
    };
    match source {
        KeySource::Gateways => put(METHOD, AES256),
        KeySource::Named | KeySource::Vault => {
            put(METHOD, KMS);
            put(KEY_ID, name);
        }
        KeySource::Client => {
            put("x-amz-server-side-encryption-customer-algorithm", AES256);
            put("x-amz-server-side-encryption-customer-key-md5", name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn peer(is_encrypted: bool, last: u8) -> Extensions {
        let mut extensions = Extensions::new();
        let address = IpAddr::V4(if last == 0 { Ipv4Addr::LOCALHOST } else { Ipv4Addr::new(10, 0, 0, last) });
        extensions.insert(Peer { address, is_encrypted });
        extensions
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    fn kind(pairs: &[(&'static str, &str)], extensions: &Extensions) -> String {
        match Asked::of(&headers(pairs), extensions) {
            Ok(Asked::Nothing) => "nothing".into(),
            Ok(Asked::Gateways) => "gateways".into(),
            Ok(Asked::Named { name, .. }) => format!("key {name}"),
            Ok(Asked::Client(_)) => "client".into(),
            Err(error) => error.code().as_str().to_owned(),
        }
    }

    #[test]
    fn requests_ask_for_one_kind_of_encryption() {
        let near = peer(false, 0);
        assert_eq!(kind(&[], &near), "nothing");
        assert_eq!(kind(&[(METHOD, AES256)], &near), "gateways");
        assert_eq!(kind(&[(METHOD, "aws:kms:dsse")], &near), "InvalidArgument");
        assert_eq!(kind(&[(METHOD, KMS)], &near), "InvalidArgument");
        assert_eq!(kind(&[(METHOD, KMS), (KEY_ID, "k1")], &near), "key k1");
        assert_eq!(kind(&[(METHOD, KMS), (KEY_ID, "arn:aws:kms:r:1:key/k1")], &near), "key k1");
        assert_eq!(kind(&[(METHOD, KMS), (KEY_ID, "transit/k1")], &near), "KMS.NotFoundException");
        assert_eq!(kind(&[(METHOD, KMS), (KEY_ID, "k"), (CONTEXT, "{}")], &near), "InvalidArgument");
        assert_eq!(kind(&[(KEY_ID, "k1")], &near), "InvalidArgument");
    }

    #[test]
    fn keys_of_clients_are_checked_and_come_over_private_connections() {
        let key = STANDARD.encode([5; KEY_LEN]);
        let md5 = STANDARD.encode(Md5::checksum(&[5; KEY_LEN]));
        let names = [
            "x-amz-server-side-encryption-customer-algorithm",
            "x-amz-server-side-encryption-customer-key",
            "x-amz-server-side-encryption-customer-key-md5",
        ];
        let with = |algorithm: &'static str, key: &str, md5: &str, extensions: &Extensions| {
            kind(&[(names[0], algorithm), (names[1], key), (names[2], md5)], extensions)
        };
        assert_eq!(with(AES256, &key, &md5, &peer(false, 0)), "client");
        assert_eq!(with(AES256, &key, &md5, &peer(true, 7)), "client");
        assert_eq!(with(AES256, &key, &md5, &peer(false, 7)), "InvalidRequest");
        assert_eq!(with("DES", &key, &md5, &peer(true, 7)), "InvalidEncryptionAlgorithmError");
        assert_eq!(with(AES256, "AAAA", &md5, &peer(true, 7)), "InvalidArgument");
        assert_eq!(with(AES256, &key, &key, &peer(true, 7)), "InvalidArgument");
        assert_eq!(kind(&[(names[1], &key)], &peer(true, 7)), "InvalidArgument");
        let all = [(names[0], AES256), (names[1], &key), (names[2], &md5)];
        assert_eq!(kind(&[&all[..], &[(METHOD, AES256)]].concat(), &peer(true, 7)), "InvalidArgument");
        let proxied = [&all[..], &[("x-forwarded-proto", "https")]].concat();
        assert_eq!(kind(&proxied, &peer(false, 7)), "client");
    }

    #[test]
    fn defaults_of_buckets_name_a_known_method() {
        let rule = |method: &'static str, id: Option<&str>| ServerSideEncryptionRule {
            apply_server_side_encryption_by_default: Some(ServerSideEncryptionByDefault {
                kms_master_key_id: id.map(str::to_owned),
                sse_algorithm: ServerSideEncryption::from_static(method),
            }),
            ..ServerSideEncryptionRule::default()
        };
        let code = |rules| default_of(rules).err().map(|error| error.code().as_str().to_owned());
        assert_eq!(default_of(vec![rule(AES256, None)]).unwrap().source, KeySource::Gateways);
        assert_eq!(default_of(vec![rule(KMS, Some("k"))]).unwrap().name, "k");
        assert_eq!(code(vec![rule(KMS, None)]).as_deref(), Some("InvalidArgument"));
        assert_eq!(code(vec![rule(AES256, Some("k"))]).as_deref(), Some("InvalidArgument"));
        assert_eq!(code(vec![rule("rot13", None)]).as_deref(), Some("InvalidArgument"));
        assert_eq!(code(vec![]).as_deref(), Some("MalformedXML"));
    }

    #[test]
    fn answers_say_how_a_body_is_encrypted() {
        let told = |source, name: &str| {
            let mut headers = HeaderMap::new();
            let (context, data_key) = (String::new(), String::new());
            let encryption = Encryption { source, name: name.into(), context, wrapped: "w".into(), data_key };
            tell(&mut headers, &Some(encryption));
            headers.len()
        };
        assert_eq!(told(KeySource::Gateways, ""), 1);
        assert_eq!(told(KeySource::Named, "k"), 2);
        assert_eq!(told(KeySource::Vault, "k"), 2);
        assert_eq!(told(KeySource::Client, "md5"), 2);
    }
}
