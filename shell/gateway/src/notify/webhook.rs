//! Sends records to an endpoint over HTTP or HTTPS.

use crate::outbound::{Connection, Outbound, Target};
use anyhow::{Context, Result, bail, ensure};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Uri};

/// The most bytes of an answer that are read, to use the connection again.
const ANSWER_MAX: usize = 64 << 10;

/// Where records are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    uri: Uri,
    target: Target,
}

/// Connects with endpoints.
pub struct Webhooks {
    verified: Outbound,
    /// For topics with `verify-ssl=false`.
    unverified: Outbound,
}

/// A connection with an endpoint.
pub struct Webhook {
    uri: Uri,
    connection: Connection,
}

impl Endpoint {
    /// From `http://host:port/path` or `https://...`.
    pub fn parse(text: &str) -> Result<Endpoint> {
        let uri: Uri = text.parse().with_context(|| format!("{text:?} is no URL"))?;
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some("kafka" | "amqp" | "amqps") => {
                bail!("the gateway sends notifications over HTTP and HTTPS, not to Kafka or AMQP")
            }
            _ => bail!("a push-endpoint begins with http:// or https://"),
        }
        let authority = uri.authority().context("a push-endpoint names a host")?;
        ensure!(!authority.as_str().contains('@'), "a push-endpoint has no user and password");
        let target = Target::of(&uri).context("a push-endpoint names a host")?;
        Ok(Endpoint { uri, target })
    }
}

impl Webhooks {
    /// Connects with nothing yet.
    pub fn new() -> Result<Webhooks> {
        Ok(Webhooks { verified: Outbound::new(None)?, unverified: Outbound::unverified()? })
    }

    /// Connects. With `is_unverified`, any certificate will do.
    pub async fn connect(&self, endpoint: &Endpoint, is_unverified: bool) -> Result<Webhook> {
        let outbound = if is_unverified { &self.unverified } else { &self.verified };
        Ok(Webhook { uri: endpoint.uri.clone(), connection: outbound.connect(&endpoint.target).await? })
    }
}

impl Webhook {
    /// Sends a record. Fails unless the endpoint takes it.
    pub async fn send(&mut self, record: String) -> Result<()> {
        let agent = concat!("nacre/", env!("CARGO_PKG_VERSION"));
        let headers = HeaderMap::from_iter([
            (USER_AGENT, HeaderValue::from_static(agent)),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        ]);
        let answer =
            self.connection.send(Method::POST, &self.uri, headers, record.into(), ANSWER_MAX).await?;
        ensure!(answer.status.is_success(), "it answers {}", answer.status);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[test]
    fn endpoints_are_urls_of_http() {
        let parse = |text: &str| Endpoint::parse(text).ok();
        for good in ["http://h", "https://h:1/a?b=c", "http://[::1]:8/x"] {
            assert!(parse(good).is_some(), "{good}");
        }
        for bad in ["", "h", "kafka://h", "amqp://h", "ftp://h", "http://", "http://u:p@h/", "/x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn records_are_sent_until_the_endpoint_refuses_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = String::new();
            for answer in [
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
            ] {
                let mut chunk = [0; 4096];
                while !seen.ends_with('}') {
                    let count = stream.read(&mut chunk).await.unwrap();
                    seen.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
                }
                seen.push('|');
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            seen
        });
        let endpoint = Endpoint::parse(&format!("http://127.0.0.1:{port}/hook")).unwrap();
        let mut connection = Webhooks::new().unwrap().connect(&endpoint, false).await.unwrap();
        connection.send("{1}".to_owned()).await.unwrap();
        assert!(connection.send("{2}".to_owned()).await.unwrap_err().to_string().contains("500"));
        let seen = server.await.unwrap();
        assert!(seen.starts_with("POST /hook HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("{1}|") && seen.ends_with("{2}|"), "{seen}");
    }
}
