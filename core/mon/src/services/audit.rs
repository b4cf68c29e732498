//! The audit channel of the cluster log: each command with its caller, when it arrives and when what it
//! changed is committed.
//!
//! Lines of commands that change nothing wait for the next batch, at most a second. What may be secret is
//! left out.

use crate::commands;
use crate::mon::{CommandRequest, Via};
use crate::output::{bracketed, plain_addr};
use crate::services::Context;
use nacre_machine::Peer;
use nacre_proto::messages::{LogEntry, LogLevel, Message};
use nacre_proto::types::{AuthName, EntityName, EntityType};
use serde_json::Value;
use std::collections::VecDeque;

/// Bytes of lines that wait, and that one batch takes along.
const WAITING_MAX: usize = 4 << 20;
const BATCH_MAX: usize = 256 << 10;

/// Lines that the next batch takes along.
#[derive(Default)]
pub struct Audit {
    waiting: VecDeque<LogEntry>,
    /// Bytes of their texts.
    bytes: usize,
}

impl Audit {
    /// A command arrived.
    pub fn dispatch(&mut self, cx: &Context<'_>, from: &Peer, command: &CommandRequest) {
        let Some((level, shown)) = described(command) else { return };
        let line = line(cx, from, command, level, &format!("cmd={shown}: dispatch"));
        if self.bytes + line.text.len() <= WAITING_MAX {
            self.bytes += line.text.len();
            self.waiting.push_back(line);
        }
    }

    /// Lines for a batch.
    pub fn take(&mut self) -> Vec<LogEntry> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(line) = self.waiting.pop_front_if(|_| bytes < BATCH_MAX) {
            bytes += line.text.len();
            taken.push(line);
        }
        self.bytes -= bytes;
        taken
    }
}

/// What a command that was carried out leaves in the log, if it may change something.
pub fn finished(
    cx: &Context<'_>,
    from: &Peer,
    command: &CommandRequest,
    reply: &Message,
) -> Option<LogEntry> {
    let retval = match reply {
        Message::MonCommandAck(ack) => ack.retval,
        Message::MgrCommandReply(reply) => reply.retval,
        _ => return None,
    };
    if retval != 0 {
        return None;
    }
    let (level, shown) = described(command).filter(|(level, _)| *level > LogLevel::Debug)?;
    Some(line(cx, from, command, level, &format!("cmd='{shown}': finished")))
}

/// How much a command matters, and the command without secrets; none if it is none.
fn described(command: &CommandRequest) -> Option<(LogLevel, String)> {
    let (prefix, args) = commands::prefix_and_args(&command.cmd)?;
    let (_, needs) = commands::needs(&prefix)?;
    let level = match command.via {
        Via::Mon if needs.write || needs.exec => LogLevel::Info,
        _ => LogLevel::Debug,
    };
    let is_secret = |name: &str| {
        let of_command = match &*prefix {
            "config set" => name == "value",
            "config-key set" | "config-key put" => name == "val",
            _ => false,
        };
        of_command || ["password", "secret", "token"].iter().any(|word| name.contains(word))
    };
    if !args.keys().any(|name| is_secret(name)) {
        return Some((level, format!("[{}]", command.cmd.join(","))));
    }
    let shown = args.into_iter().map(|(name, value)| {
        let value = if is_secret(&name) { Value::from("***") } else { value };
        format!("{}: {value}", Value::from(name))
    });
    Some((level, format!("[{{{}}}]", shown.collect::<Vec<_>>().join(", "))))
}

/// In Ceph's words. What is asked of the manager is its line.
fn line(cx: &Context<'_>, from: &Peer, command: &CommandRequest, level: LogLevel, what: &str) -> LogEntry {
    let of_manager = command.via != Via::Mon;
    let caller = match from.kind {
        EntityType::Client if !of_manager => format!("client.? {}", address(from)),
        EntityType::Client => format!("client.{} -", from.num),
        kind => format!("{kind}.{} {}", from.num, address(from)),
    };
    let entity =
        from.auth_name.as_ref().map_or_else(|| format!("{}.{}", from.kind, from.num), AuthName::to_string);
    let text = format!("from='{caller}' entity='{entity}' {what}");
    let mut line = cx.line(level, text, "audit");
    if of_manager {
        let map = &cx.state.mgrmap.map;
        line.name = AuthName::new(EntityType::Mgr, map.active_name.clone());
        line.rank = EntityName::new(EntityType::Mgr, map.active_gid as i64);
        line.addrs = map.active_addrs.clone();
    }
    line
}

fn address(of: &Peer) -> String {
    match &of.addrs.0[..] {
        [one] => plain_addr(one),
        _ => bracketed(&of.addrs),
    }
}
