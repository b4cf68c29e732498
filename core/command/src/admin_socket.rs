//! The protocol of a daemon's admin socket: one request and one answer on each connection.
//!
//! A request is a command's object, ended by a NUL or a line feed. The answer is its length, 32 bits with the
//! highest byte first, and the output. There is no field for an error: its text goes in front of the output.
//! Ceph: `AdminSocket`.

use nacre_base::errno;
use nacre_proto::messages::CommandReply;

/// Bytes of a request without its end.
pub const REQUEST_MAX: usize = 64 << 10;

/// The version of the protocol, which the command `0` answers.
pub const VERSION: &str = "2";

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The version of the protocol.
    Version,
    /// A command's object, as text.
    Command(String),
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("a request of more than {REQUEST_MAX} bytes")]
    TooLong,
    #[error("a request that is not UTF-8")]
    NotText,
}

impl Request {
    /// The request in the bytes that came so far. None: it is not complete.
    pub fn parse(bytes: &[u8]) -> Result<Option<Request>, BadRequest> {
        if bytes.first() == Some(&0) {
            // Before commands had names they were numbers of 32 bits.
            let number = bytes.first_chunk().map(|word| u32::from_be_bytes(*word));
            return Ok(number.map(|number| match number {
                0 => Request::Version,
                1 => Request::named("perfcounters_dump"),
                2 => Request::named("perfcounters_schema"),
                _ => Request::named("foo"),
            }));
        }
        let Some(end) = bytes.iter().position(|byte| matches!(byte, 0 | b'\n')) else {
            return if bytes.len() > REQUEST_MAX { Err(BadRequest::TooLong) } else { Ok(None) };
        };
        if end > REQUEST_MAX {
            return Err(BadRequest::TooLong);
        }
        let text = str::from_utf8(&bytes[..end]).map_err(|_| BadRequest::NotText)?.to_string();
        let prefix = crate::parse(std::slice::from_ref(&text)).ok();
        let is_version = prefix.is_some_and(|args| args.get("prefix").is_some_and(|prefix| prefix == "0"));
        Ok(Some(if is_version { Request::Version } else { Request::Command(text) }))
    }

    fn named(prefix: &str) -> Request {
        Request::Command(serde_json::json!({ "prefix": prefix }).to_string())
    }
}

/// The bytes that answer a request.
pub fn answer(reply: &CommandReply) -> Vec<u8> {
    let mut head = String::new();
    if reply.retval < 0 {
        let code = -reply.retval;
        head = format!("ERROR: ({code}) {}\n{}\n", errno::text(code), reply.status);
    } else if reply.output.is_empty() && !reply.status.is_empty() {
        head = format!("{}\n", reply.status);
    }
    framed(&[head.as_bytes(), &reply.output])
}

/// The answer to `Request::Version`.
pub fn version() -> Vec<u8> {
    framed(&[VERSION.as_bytes()])
}

fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let len = u32::try_from(len).expect("a daemon's answer is far below 4 GiB");
    let mut bytes = len.to_be_bytes().to_vec();
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, refuse, reply};

    fn command(text: &str) -> Result<Option<Request>, BadRequest> {
        Ok(Some(Request::Command(text.to_string())))
    }

    #[test]
    fn request_ends_with_a_nul_or_a_line_feed() {
        let text = r#"{"prefix": "perf dump"}"#;
        assert_eq!(Request::parse(text.as_bytes()), Ok(None));
        assert_eq!(Request::parse(format!("{text}\0rest").as_bytes()), command(text));
        assert_eq!(Request::parse(format!("{text}\n").as_bytes()), command(text));
        assert_eq!(Request::parse(b""), Ok(None));
        // The daemon says what is wrong with it.
        assert_eq!(Request::parse(b"hello\0"), command("hello"));
        assert_eq!(Request::parse(b"\xff\xfe\0"), Err(BadRequest::NotText));
    }

    #[test]
    fn request_has_a_greatest_length() {
        let mut long = vec![b' '; REQUEST_MAX];
        assert_eq!(Request::parse(&long), Ok(None));
        long.push(b' ');
        assert_eq!(Request::parse(&long), Err(BadRequest::TooLong));
        long.push(0);
        assert_eq!(Request::parse(&long), Err(BadRequest::TooLong));
    }

    #[test]
    fn commands_that_are_numbers_are_understood() {
        assert_eq!(Request::parse(&[0, 0, 0]), Ok(None));
        assert_eq!(Request::parse(&[0, 0, 0, 0]), Ok(Some(Request::Version)));
        assert_eq!(Request::parse(&[0, 0, 0, 1]), command(r#"{"prefix":"perfcounters_dump"}"#));
        assert_eq!(Request::parse(b"{\"prefix\": \"0\"}\0"), Ok(Some(Request::Version)));
        assert_eq!(version(), b"\0\0\0\x012");
    }

    #[test]
    fn answer_has_its_length_in_front_and_an_error_as_text() {
        assert_eq!(answer(&reply(Answer::text("{}\n"))), b"\0\0\0\x03{}\n");
        assert_eq!(answer(&reply(Answer::said("done"))), b"\0\0\0\x05done\n");
        let refused = answer(&reply(Err(refuse(errno::EINVAL, "no such thing"))));
        assert_eq!(&refused[4..], b"ERROR: (22) Invalid argument\nno such thing\n");
        assert_eq!(refused[3] as usize, refused.len() - 4);
    }
}
