//! Instructions that the core takes for an operation, counted by callgrind. One thread, no device, no socket:
//! the same on every machine with the same compiler, as near as makes no difference.

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use nacre_auth::{GlobalIds, NoneProver, NoneVerifier};
use nacre_base::{Name, PoolId, Time};
use nacre_msgr::{Config, Connection, Event};
use nacre_proto::messages::{Envelope, Message, PeerMsg, RawMessage};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType, ObjectId};
use nacre_store::testing::{SimDisk, Sink};
use nacre_store::{Options as StoreOptions, Store};
use std::process::Command;

#[derive(clap::Args)]
pub struct Options {
    /// Number of operations to count.
    #[arg(long, default_value_t = 2000)]
    operations: u64,
}

#[derive(clap::Args)]
pub struct Work {
    what: What,
    times: u64,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum What {
    /// A transaction as an OSD makes it for a write of 4 KiB to an object that is there: until it is durable,
    /// with its share of being brought to its place.
    StoreWrite,
    /// The same of 4 MiB.
    StoreLargeWrite,
    /// A read of 4 KiB that is in the store's cache.
    StoreRead,
    /// A message of 4 KiB from one end of a connection to the other, encoded and decoded.
    Message,
}

/// Not counted: what comes before the first is the same however many there are.
const FEW: u64 = 200;

pub fn count(options: &Options) -> Result<()> {
    for (name, what, one_of) in [
        ("store: write 4 KiB", "store-write", 1),
        ("store: write 4 MiB", "store-large-write", 50),
        ("store: read 4 KiB", "store-read", 1),
        ("message of 4 KiB", "message", 1),
    ] {
        let (few, more) = (FEW / one_of, (options.operations / one_of).max(1));
        let counted = collected(what, few + more)? - collected(what, few)?;
        println!("{name:<24}{:>12} instructions", counted / more);
    }
    Ok(())
}

/// Instructions of a run of our own that does this many operations.
fn collected(what: &str, times: u64) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?)
        .args(["work", what, &times.to_string()])
        .output()
        .context("valgrind (package valgrind) counts instructions")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let line = said.lines().find_map(|line| line.split_once("Collected : "));
    Ok(line.with_context(|| format!("no count in {said}"))?.1.trim().parse()?)
}

/// What callgrind measures.
pub fn work(work: &Work) -> Result<()> {
    match work.what {
        What::StoreWrite => store_writes(work.times, 4096),
        What::StoreLargeWrite => store_writes(work.times, 4 << 20),
        What::StoreRead => store_reads(work.times),
        What::Message => messages(work.times),
    }
}

// ---- the store ----

const DEVICE_LEN: u64 = 4 << 30;
const OBJECTS: u64 = 100;
/// Transactions that share a batch.
const TOGETHER: u64 = 8;

fn fresh() -> Result<Store> {
    let disk = SimDisk::new(DEVICE_LEN, 1);
    Store::format(&disk, StoreOptions { uuid: [7; 16], ..StoreOptions::default() })?;
    let (mut store, _) = Store::open(&disk)?;
    store.limit_memory(64 << 20);
    Ok(store)
}

fn object(n: u64) -> StoredId {
    let name = Name::from(format!("rbd_data.1234567890ab.{:016x}", n % OBJECTS));
    ObjectId::head(PoolId(1), Name::default(), Name::default(), name).into()
}

/// Data, an attribute, and an entry in the group's log.
fn write(n: u64, data: &Bytes) -> Transaction {
    let mut txn = Transaction::new();
    txn.push(object(n), Change::Write { offset: 0, data: data.clone() });
    txn.push(object(n), Change::SetAttrs([(Name::from("_"), Bytes::from(vec![2; 200]))].into()));
    let entry = [(Name::from(format!("{n:010}")), Bytes::from(vec![3; 150]))].into();
    txn.push(StoredId::meta("log"), Change::OmapSet(entry));
    let old = [Name::from(format!("{:010}", n.saturating_sub(1000)))].into();
    txn.push(StoredId::meta("log"), Change::OmapRemove(old));
    txn
}

fn store_writes(times: u64, len: usize) -> Result<()> {
    let mut store = fresh()?;
    let data = Bytes::from(vec![7; len]);
    for n in 0..times {
        store.submit(write(n, &data))?;
        if len > 4096 || n % TOGETHER == 0 {
            commit(&mut store)?;
        }
    }
    commit(&mut store)
}

fn commit(store: &mut Store) -> Result<()> {
    if let Some(batch) = store.take_batch() {
        store.finished(batch.commit(&Sink(DEVICE_LEN))?);
    }
    if let Some(placing) = store.take_deferred() {
        store.deferred_done(placing.run(&Sink(DEVICE_LEN))?);
    }
    Ok(())
}

fn store_reads(times: u64) -> Result<()> {
    let mut store = fresh()?;
    let data = Bytes::from(vec![7; 4096]);
    for n in 0..OBJECTS {
        store.submit(write(n, &data))?;
    }
    commit(&mut store)?;
    for n in 0..times {
        let plan = store.plan_read(&object(n), &[(0, 4096)])?;
        let (read, fetched) = plan.run_fetching(|reads| {
            reads.iter_mut().for_each(|(_, into)| into.fill(7));
            Ok(())
        })?;
        drop(plan);
        store.keep(fetched);
        ensure!(read[0] == data, "another content");
    }
    Ok(())
}

// ---- messages ----

fn messages(times: u64) -> Result<()> {
    let now = Time::from_nanos(1_000_000_000);
    let addr = EntityAddr::msgr2("127.0.0.1:6800".parse()?, 1);
    let config = |num| Config::new(EntityType::Osd, num, AddrVec::one(addr));
    let name = AuthName::new(EntityType::Osd, "1");
    let prover = Box::new(NoneProver { name, global_id: 1 });
    let verifier = Box::new(NoneVerifier { global_ids: GlobalIds::Brought });
    let mut from = Connection::client(now, config(1), addr, EntityType::Osd, prover);
    let mut to = Connection::server(now, config(2), "127.0.0.1:50000".parse()?, verifier);
    let mut events = Vec::new();
    let carry = |from: &mut Connection, to: &mut Connection, events: &mut Vec<Event>| -> Result<()> {
        let mut bytes = BytesMut::new();
        from.transmit().for_each(|part| bytes.extend_from_slice(&part));
        Ok(to.receive(now, bytes.freeze(), events)?)
    };
    while from.queued_bytes() + to.queued_bytes() > 0 {
        carry(&mut from, &mut to, &mut events)?;
        carry(&mut to, &mut from, &mut events)?;
    }
    let data = Bytes::from(vec![7; 4096]);
    for n in 0..times {
        let body: Message = PeerMsg::Ping { stamp: n }.into();
        let raw = RawMessage { data: data.clone(), ..Envelope { tid: n, body }.to_raw() };
        from.send(raw);
        events.clear();
        carry(&mut from, &mut to, &mut events)?;
        let Some(Event::Message(raw)) = events.pop() else { anyhow::bail!("no message came") };
        Envelope::from_raw(raw)?;
    }
    Ok(())
}
