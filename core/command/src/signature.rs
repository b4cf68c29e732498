//! What a command looks like, in the form that the `ceph` tool builds its parser from.

use serde_json::{Map, Value, json};

/// A command, as `get_command_descriptions` describes it.
pub struct Signature {
    /// The command's words: what `prefix` says when it is sent.
    pub prefix: String,
    /// The words, then an object for each argument.
    pub sig: Value,
    pub help: &'static str,
    pub module: String,
    /// Some of `rwx`.
    pub perm: String,
    /// Ceph: `MonCommand::FLAG_*`.
    pub flags: u64,
}

impl Signature {
    /// A command of one daemon. Arguments are in Ceph's notation, `name=var,type=CephString name=...`.
    pub fn new(prefix: &str, args: &str, help: &'static str, module: &str) -> Signature {
        let mut sig: Vec<Value> = prefix.split(' ').map(|word| json!(word)).collect();
        sig.extend(args.split_whitespace().map(|arg| {
            let fields = arg.split(',').filter_map(|field| field.split_once('='));
            Value::Object(fields.map(|(key, value)| (key.to_string(), json!(value))).collect())
        }));
        Signature {
            prefix: prefix.to_string(),
            sig: sig.into(),
            help,
            module: module.to_string(),
            perm: "r".to_string(),
            flags: 0,
        }
    }

    /// The words alone of a signature.
    pub fn prefix_of(sig: &Value) -> String {
        let words = sig.as_array().into_iter().flatten().map_while(Value::as_str);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The answer to `get_command_descriptions`.
pub fn descriptions(signatures: &[Signature]) -> Value {
    let rows = signatures.iter().enumerate().map(|(at, s)| {
        let row = json!({
            "sig": s.sig, "help": s.help, "module": s.module, "perm": s.perm, "flags": s.flags,
        });
        (format!("cmd{at:03}"), row)
    });
    Value::Object(rows.collect())
}

/// The answer to `help`.
pub fn help(signatures: &[Signature]) -> Value {
    let rows = signatures.iter().map(|s| (s.prefix.clone(), json!(s.help)));
    Value::Object(rows.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_described_in_cephs_shape() {
        let args = "name=pgid,type=CephPgid name=cmd,type=CephChoices,strings=query|list,req=false";
        let signatures = [Signature::new("pg show", args, "show a PG", "osd")];
        let expected = concat!(
            r#"{"cmd000":{"sig":["pg","show",{"name":"pgid","type":"CephPgid"},"#,
            r#"{"name":"cmd","type":"CephChoices","strings":"query|list","req":"false"}],"#,
            r#""help":"show a PG","module":"osd","perm":"r","flags":0}}"#
        );
        assert_eq!(descriptions(&signatures).to_string(), expected);
        assert_eq!(help(&signatures), json!({ "pg show": "show a PG" }));
        assert_eq!(Signature::prefix_of(&signatures[0].sig), "pg show");
    }
}
