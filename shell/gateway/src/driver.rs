//! Runs the machine of a bucket's index over the cluster.

use nacre_rados::Pool;
use nacre_s3::{Answer, Ask, BucketIndex, Effect, Refusal, Ticket};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// The index of one bucket.
pub struct Index {
    state: Mutex<State>,
    pool: Pool,
    bucket: String,
    instance: u64,
}

struct State {
    machine: BucketIndex,
    /// How many machines there were before this one: results of their operations do not concern it.
    resets: u64,
    waiters: HashMap<Ticket, oneshot::Sender<Result<Answer, Refusal>>>,
    last_ticket: u64,
}

impl Index {
    /// An index that has read nothing yet.
    pub fn new(pool: Pool, bucket: &str, instance: u64) -> Arc<Index> {
        let machine = BucketIndex::new(pool.id(), bucket, instance);
        let state = State { machine, resets: 0, waiters: HashMap::new(), last_ticket: 0 };
        Arc::new(Index { state: Mutex::new(state), pool, bucket: bucket.to_owned(), instance })
    }

    /// Asks the machine. What was begun goes on when the future is dropped.
    pub async fn ask(self: &Arc<Index>, ask: Ask) -> Result<Answer, Refusal> {
        let (sender, answer) = oneshot::channel();
        let mut effects = Vec::new();
        let resets = {
            let mut state = self.lock();
            state.last_ticket += 1;
            let ticket = Ticket(state.last_ticket);
            state.waiters.insert(ticket, sender);
            state.machine.ask(ticket, ask, &mut effects);
            state.resets
        };
        self.perform(resets, effects);
        answer.await.unwrap_or_else(|_| Err(Refusal::Corrupt("the index of the bucket has failed".into())))
    }

    /// A machine that has panicked is replaced: everything that must last is in the cluster. The requests
    /// that it had begun fail.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| {
            tracing::error!("the index of bucket {} has failed and is read again", self.bucket);
            let mut state = poisoned.into_inner();
            state.machine = BucketIndex::new(self.pool.id(), self.bucket.as_str(), self.instance);
            state.resets += 1;
            state.waiters.clear();
            self.state.clear_poison();
            state
        })
    }

    fn perform(self: &Arc<Index>, resets: u64, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Done { ticket, result } => {
                    let waiter = self.lock().waiters.remove(&ticket);
                    // The client may be gone.
                    let _ = waiter.map(|waiter| waiter.send(result));
                }
                Effect::Send { op, request } => {
                    let index = self.clone();
                    tokio::spawn(async move {
                        let result = index.pool.run(*request).await;
                        let mut effects = Vec::new();
                        {
                            let mut state = index.lock();
                            if state.resets != resets {
                                return;
                            }
                            state.machine.completed(op, result, &mut effects);
                        }
                        index.perform(resets, effects);
                    });
                }
            }
        }
    }
}
