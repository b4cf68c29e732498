//! Commands to a cluster that runs.

use crate::cluster::Cluster;
use crate::folder::Layout;
use crate::keyrings;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nacre_auth::Secret;
use nacre_client::{Output, Request};
use nacre_node::BlockingClient;
use nacre_proto::types::{AuthName, EntityAddr};
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

/// How long a user at a terminal waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Access {
    /// As which entity.
    pub name: AuthName,
    pub mons: Vec<EntityAddr>,
    pub key: Option<Secret>,
}

impl Access {
    pub fn of(layout: &Layout, cluster: &Cluster) -> Result<Access> {
        let key = keyrings::of_admin(layout, cluster)?;
        Ok(Access { name: keyrings::admin(), mons: cluster.mon_addrs(), key })
    }
    pub fn connect(&self) -> BlockingClient {
        let (nonce, seed) = Uuid::new_v4().as_u64_pair();
        let (name, mons, key) = (self.name.clone(), self.mons.clone(), self.key.clone());
        BlockingClient::connect_as(name, mons, key, nonce as u32, seed)
    }
}

/// A session with the cluster of a folder.
pub fn connect(layout: &Layout, cluster: &Cluster) -> Result<BlockingClient> {
    Ok(Access::of(layout, cluster)?.connect())
}

pub fn command(client: &BlockingClient, words: &Value, timeout: Duration) -> Result<Bytes> {
    command_with(client, words, Bytes::new(), timeout)
}

/// The same with input, as `-i` gives it to the `ceph` tool.
pub fn command_with(
    client: &BlockingClient,
    words: &Value,
    input: Bytes,
    timeout: Duration,
) -> Result<Bytes> {
    let request = Request::mon_command(words.to_string(), input).timeout(timeout);
    match client.request(request)? {
        Output::Command(answer) => Ok(answer.output),
        other => bail!("unexpected reply to a command: {other:?}"),
    }
}

/// The reply to a command, as JSON.
pub fn ask(client: &BlockingClient, words: &Value) -> Result<Value> {
    serde_json::from_slice(&command(client, words, PATIENCE)?).context("the reply is not JSON")
}

/// Runs a command whose reply does not matter.
pub fn tell(client: &BlockingClient, words: &Value) -> Result<()> {
    command(client, words, PATIENCE).map(drop)
}
