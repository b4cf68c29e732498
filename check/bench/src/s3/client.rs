//! One connection to a gateway: requests with version 4 signatures.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use ring::{digest, hmac};
use std::net::SocketAddr;
use std::sync::Arc;
use time::OffsetDateTime;
use tokio::net::TcpStream;

const SERVICE: &str = "s3";

/// Where a gateway is, and a user of it.
pub struct Endpoint {
    pub addr: SocketAddr,
    pub access_key: String,
    pub secret_key: String,
    pub region: String,
}

/// A body, and its digest, which every request with it needs.
#[derive(Clone)]
pub struct Payload {
    pub bytes: Bytes,
    digest: String,
}

impl Payload {
    pub fn new(bytes: Bytes) -> Payload {
        let digest = hex(digest::digest(&digest::SHA256, &bytes).as_ref());
        Payload { bytes, digest }
    }
}

/// One connection.
pub struct Client {
    endpoint: Arc<Endpoint>,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub async fn connect(endpoint: Arc<Endpoint>) -> Result<Client> {
        let stream = TcpStream::connect(endpoint.addr)
            .await
            .with_context(|| format!("cannot connect to the gateway at {}", endpoint.addr))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Client { endpoint, sender })
    }

    /// Sends a request and reads the answer to its end. Returns the number of bytes of its body.
    ///
    /// `path` and `query` are encoded already; the names in `query` are in order, each with `=`.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        query: &str,
        payload: &Payload,
    ) -> Result<usize> {
        let request = self.endpoint.sign(&method, path, query, payload, OffsetDateTime::now_utc())?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        if !status.is_success() {
            let body = answer.into_body().collect().await?.to_bytes();
            bail!("{method} {path}?{query}: {status}: {}", String::from_utf8_lossy(&body));
        }
        let (mut body, mut count) = (answer.into_body(), 0);
        while let Some(frame) = body.frame().await {
            count += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(count)
    }
}

impl Endpoint {
    fn sign(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        payload: &Payload,
        at: OffsetDateTime,
    ) -> Result<Request<Full<Bytes>>> {
        let day = format!("{:04}{:02}{:02}", at.year(), u8::from(at.month()), at.day());
        let date = format!("{day}T{:02}{:02}{:02}Z", at.hour(), at.minute(), at.second());
        let (host, digest) = (self.addr.to_string(), &payload.digest);
        const SIGNED: &str = "host;x-amz-content-sha256;x-amz-date";
        let canonical = format!(
            "{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{date}\n\n\
             {SIGNED}\n{digest}"
        );
        let scope = format!("{day}/{}/{SERVICE}/aws4_request", self.region);
        let canonical = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{canonical}");
        let mut key = format!("AWS4{}", self.secret_key).into_bytes();
        for part in [&day, &self.region, SERVICE, "aws4_request"] {
            key = mac(&key, part.as_bytes());
        }
        let signature = hex(&mac(&key, text.as_bytes()));
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={SIGNED}, Signature={signature}",
            self.access_key
        );
        let uri = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let request = Request::builder().method(method).uri(uri).header("host", host);
        let request = request.header("x-amz-content-sha256", digest).header("x-amz-date", date);
        let request = request.header("authorization", authorization);
        Ok(request.body(Full::new(payload.bytes.clone()))?)
    }
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
