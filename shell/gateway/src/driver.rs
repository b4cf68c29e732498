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
}

struct State {
    machine: BucketIndex,
    waiters: HashMap<Ticket, oneshot::Sender<Result<Answer, Refusal>>>,
    last_ticket: u64,
}

impl Index {
    /// An index that has read nothing yet.
    pub fn new(pool: Pool, bucket: &str, instance: u64) -> Arc<Index> {
        let machine = BucketIndex::new(pool.id(), bucket, instance);
        let state = State { machine, waiters: HashMap::new(), last_ticket: 0 };
        Arc::new(Index { state: Mutex::new(state), pool })
    }

    /// Asks the machine. What was begun goes on when the future is dropped.
    pub async fn ask(self: &Arc<Index>, ask: Ask) -> Result<Answer, Refusal> {
        let (sender, answer) = oneshot::channel();
        let mut effects = Vec::new();
        {
            let mut state = self.lock();
            state.last_ticket += 1;
            let ticket = Ticket(state.last_ticket);
            state.waiters.insert(ticket, sender);
            state.machine.ask(ticket, ask, &mut effects);
        }
        self.perform(effects);
        answer.await.unwrap_or_else(|_| Err(Refusal::Corrupt("the gateway is stopping".into())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a machine does not panic")
    }

    fn perform(self: &Arc<Index>, effects: Vec<Effect>) {
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
                        index.lock().machine.completed(op, result, &mut effects);
                        index.perform(effects);
                    });
                }
            }
        }
    }
}
