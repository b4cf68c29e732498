//! What a cluster that runs says of itself, for commands that change its folder.

use crate::cluster::{Cluster, DaemonName, Layout};
use crate::processes::{self, State};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nacre_client::{Output, Request};
use nacre_node::BlockingClient;
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A session with the monitors of a folder.
pub struct Asker(BlockingClient);

impl Asker {
    pub fn new(cluster: &Cluster) -> Asker {
        let (nonce, seed) = Uuid::new_v4().as_u64_pair();
        Asker(BlockingClient::connect(cluster.mon_addrs(), nonce as u32, seed))
    }
    /// What a command answers, which is JSON or nothing.
    pub fn ask(&self, command: &Value) -> Result<Value> {
        let request = Request::mon_command(command.to_string(), Bytes::new()).timeout(TIMEOUT);
        match self.0.request(request)? {
            Output::Command(answer) if answer.output.is_empty() => Ok(Value::Null),
            Output::Command(answer) => {
                serde_json::from_slice(&answer.output).context("the answer is no JSON")
            }
            other => bail!("a command was answered with {other:?}"),
        }
    }
}

/// That a daemon does not run as a process of its own.
pub fn ensure_stopped(layout: &Layout, daemon: &DaemonName) -> Result<()> {
    if let State::Runs(pid) | State::Waits(pid) = processes::settled(&layout.pid(&daemon.to_string()))? {
        bail!("{daemon} runs, as pid {pid}: `nacre stop {daemon}` stops it");
    }
    Ok(())
}
