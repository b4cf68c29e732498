//! What a cluster that runs says of itself.

use crate::cluster::Cluster;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nacre_client::{Output, Request};
use nacre_node::BlockingClient;
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

/// How long somebody at a terminal waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// A session with the cluster of a folder.
pub fn connect(cluster: &Cluster) -> BlockingClient {
    let (nonce, seed) = Uuid::new_v4().as_u64_pair();
    BlockingClient::connect(cluster.mon_addrs(), nonce as u32, seed)
}

pub fn command(client: &BlockingClient, command: &Value, timeout: Duration) -> Result<Bytes> {
    let request = Request::mon_command(command.to_string(), Bytes::new()).timeout(timeout);
    match client.request(request)? {
        Output::Command(answer) => Ok(answer.output),
        other => bail!("a command was answered with {other:?}"),
    }
}

/// What a command answers in JSON.
pub fn ask(client: &BlockingClient, words: &Value) -> Result<Value> {
    serde_json::from_slice(&command(client, words, PATIENCE)?).context("the answer is no JSON")
}

/// Has a command done of which the answer does not matter.
pub fn tell(client: &BlockingClient, words: &Value) -> Result<()> {
    command(client, words, PATIENCE).map(drop)
}
