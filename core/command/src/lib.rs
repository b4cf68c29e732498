//! Commands of daemons: how they are described, parsed, looked up and answered.
//!
//! A command is a JSON object: `prefix` has its name, `format` the format of the output, all other fields are
//! arguments. Each daemon describes its commands by `Signature`s and reads arguments with `Args`. What it
//! finds is an `Outcome`.

mod absent;
pub mod admin_socket;
mod args;
mod common;
mod counters;
mod format;
mod layout;
mod option_json;
mod signature;
mod version;
mod xml;

pub use absent::Absent;
pub use args::{Args, parse_osd};
pub use common::{config_help, option_diff, option_of, version};
pub use counters::{PERF_COMMANDS, perf};
pub use format::Format;
pub use layout::{End, Layout};
pub use option_json::option_json;
pub use signature::{Signature, descriptions, help};
pub use version::{CEPH_RELEASE, CEPH_VERSION_SHORT, NACRE_VERSION, build_id, ceph_version};

use nacre_base::errno::EINVAL;
use nacre_options::Refused;
use nacre_proto::messages::CommandReply;
use serde_json::{Map, Value};

/// The answer to a command that worked.
#[derive(Debug, Default)]
pub struct Answer {
    /// The line for standard error.
    pub status: String,
    pub output: Vec<u8>,
}

/// Why a command did not work.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Positive, from `errno`.
    pub code: i32,
    pub text: String,
    /// Some commands answer both, as `safe-to-destroy`.
    pub output: Vec<u8>,
}

/// What a command came to.
pub type Outcome = Result<Answer, Refusal>;

impl Answer {
    /// Success, with a line for standard error.
    pub fn said(text: impl Into<String>) -> Outcome {
        Ok(Answer { status: text.into(), output: Vec::new() })
    }
    /// Success, with output.
    pub fn text(text: impl Into<String>) -> Outcome {
        Ok(Answer { status: String::new(), output: text.into().into_bytes() })
    }
}

/// A refusal without output. The code is positive.
pub fn refuse(code: i32, text: impl Into<String>) -> Refusal {
    Refusal { code, text: text.into(), output: Vec::new() }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Refusal {
        refuse(refused.errno, refused.text)
    }
}

/// The outcome as it is sent.
pub fn reply(outcome: Outcome) -> CommandReply {
    match outcome {
        Ok(Answer { status, output }) => CommandReply { retval: 0, status, output: output.into() },
        Err(Refusal { code, text, output }) => {
            CommandReply { retval: -code, status: text, output: output.into() }
        }
    }
}

/// The command's object. The tool sends one string; libraries may send it in pieces.
pub fn parse(cmd: &[String]) -> Result<Map<String, Value>, Refusal> {
    let text = cmd.concat();
    // What comes after the value does not count: `rbd perf image iostat` sends a stray quote.
    match serde_json::Deserializer::from_str(&text).into_iter().next() {
        Some(Ok(Value::Object(args))) => Ok(args),
        Some(Ok(_)) => Err(refuse(EINVAL, format!("not JSON object {text}"))),
        _ => Err(refuse(EINVAL, format!("unparseable JSON {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_come_in_pieces_and_with_a_stray_end() {
        let pieces = [r#"{"prefix": "#, r#""status"}""#].map(str::to_string);
        assert_eq!(Args::new(&parse(&pieces).unwrap()).prefix(), Some("status"));
        let refusal = |text: &str| parse(&[text.to_string()]).unwrap_err();
        assert_eq!(refusal("[1]"), refuse(EINVAL, "not JSON object [1]"));
        assert_eq!(refusal("{"), refuse(EINVAL, "unparseable JSON {"));
    }

    #[test]
    fn a_refusal_is_sent_with_a_negative_code_and_its_output() {
        let refusal = Refusal { output: b"{}".to_vec(), ..refuse(EINVAL, "no") };
        let sent = reply(Err(refusal));
        assert_eq!((sent.retval, &*sent.status, &*sent.output), (-EINVAL, "no", &b"{}"[..]));
        let sent = reply(Answer::said("done"));
        assert_eq!((sent.retval, &*sent.status, &*sent.output), (0, "done", &b""[..]));
    }
}
