//! Work on images in the background: what `ceph rbd task ...` asks of the active manager.
//!
//! A `Manager` is a monitor whose commands on images go to a `Worker`, a thread beside it. While the
//! monitor leads, its worker keeps the tasks (`task`) in their pools and does one after the other with
//! the stock `rbd` command (`helper`); `images` is what it looks up itself. The next leader finds in
//! the pools what is not done. `docs/decisions/0020-rbd-background-tasks.md` says why it is so.

mod every;
mod helper;
mod images;
mod perf;
mod repeat;
mod schedules;
mod task;

use crate::ask::Access;
use helper::{Helper, News};
use images::{Images, Place};
use nacre_base::{Now, errno};
use nacre_client::Failure;
use nacre_machine::{Effect, Event, Machine, StoreView};
use nacre_mon::{ImageAnswer, ImageCommand, Mon};
use nacre_node::{Caller, now};
pub use perf::ImageMetrics;
use perf::ImageNames;
use repeat::Repeats;
use schedules::Kind;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use task::{Action, Progress, Queue, Refs, Task};
use tokio::sync::oneshot;
use uuid::Uuid;

const DEFAULT_POOL: &str = "rbd";
/// After a cluster that does not serve yet kept the tasks from being read.
const LOAD_AGAIN: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(3600);

/// A monitor, and the way to its worker.
pub struct Manager {
    mon: Mon,
    worker: Sender<Order>,
    leads: Option<u64>,
}

/// Messages to a worker.
pub enum Order {
    /// The monitor leads in this term, or no longer.
    Leads(Option<u64>),
    Command(ImageCommand),
    /// The counters of the images in these pools, for metrics.
    Metrics(Vec<String>, oneshot::Sender<Vec<ImageMetrics>>),
    /// A message of the helper that works on the task with this number.
    Helper(u64, News),
    Stop,
}

/// Why a command is refused.
#[derive(Debug)]
pub struct Trouble {
    /// A positive errno.
    code: i32,
    text: String,
}

fn trouble(code: i32, text: impl Into<String>) -> Trouble {
    Trouble { code, text: text.into() }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        trouble(failure.errno, failure.to_string())
    }
}

impl Manager {
    pub fn new(mon: Mon, worker: Sender<Order>) -> Manager {
        Manager { mon: mon.with_image_tasks(), worker, leads: None }
    }

    /// The monitor itself.
    pub fn mon(&self) -> &Mon {
        &self.mon
    }

    fn answer(&mut self, key: u64, answer: ImageAnswer, out: &mut Vec<Effect>) {
        self.mon.answer_image_command(key, answer, out);
    }
}

impl Machine for Manager {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let stops = matches!(event, Event::Stop);
        self.mon.handle(now, event, store, out);
        // After its last order the worker takes no more.
        let tell = |order| drop(self.worker.send(order));
        if self.leads != self.mon.leads() {
            self.leads = self.mon.leads();
            tell(Order::Leads(self.leads));
        }
        self.mon.take_image_commands().into_iter().for_each(|command| tell(Order::Command(command)));
        if stops {
            tell(Order::Stop);
        }
    }
}

/// The thread that does the work for one monitor.
pub struct Worker {
    monitor: Caller<Manager>,
    orders: Receiver<Order>,
    /// For helpers to speak to us.
    own: Sender<Order>,
    conf: PathBuf,
    access: Access,
    /// Only while there is something to look up.
    images: Option<Images>,
    leads: bool,
    /// None until it was read from the pools.
    queue: Option<Queue>,
    /// Likewise.
    repeats: Option<Repeats>,
    /// Which task is being worked on.
    working: Option<(u64, Helper)>,
    names: ImageNames,
}

impl Worker {
    /// The way to a worker that starts later.
    pub fn orders() -> (Sender<Order>, Receiver<Order>) {
        channel()
    }

    /// `conf` is for the `rbd` command, `access` for our own client.
    pub fn start(
        monitor: Caller<Manager>,
        (own, orders): (Sender<Order>, Receiver<Order>),
        conf: PathBuf,
        access: Access,
    ) -> JoinHandle<()> {
        let worker = Worker {
            monitor,
            orders,
            own,
            conf,
            access,
            images: None,
            leads: false,
            queue: None,
            repeats: None,
            working: None,
            names: ImageNames::default(),
        };
        let thread = thread::Builder::new().name("image tasks".to_string());
        thread.spawn(move || worker.run()).expect("the system gives a daemon its threads")
    }

    fn run(mut self) {
        loop {
            match self.orders.recv_timeout(self.patience()) {
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Order::Leads(term)) => {
                    // The last leader may have added to the queue, and the next one continues it.
                    (self.leads, self.queue, self.working) = (term.is_some(), None, None);
                    self.repeats = None;
                }
                Ok(Order::Command(command)) => self.on_command(&command),
                Ok(Order::Metrics(pools, answer)) => self.on_metrics(&pools, answer),
                Ok(Order::Helper(sequence, news)) => self.on_helper(sequence, news),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.go_on();
        }
    }

    fn patience(&self) -> Duration {
        if !self.leads {
            return IDLE;
        }
        let tasks = match &self.queue {
            _ if self.working.is_some() => IDLE,
            None => LOAD_AGAIN,
            Some(queue) => queue.next_due().map_or(IDLE, |due| due.since(now().mono)),
        };
        tasks.min(self.repeats.as_ref().and_then(Repeats::patience).unwrap_or(IDLE))
    }

    /// Begins what is due.
    fn go_on(&mut self) {
        if self.leads && self.queue.is_none() && helper::is_installed() {
            match self.load() {
                Ok((queue, repeats)) => (self.queue, self.repeats) = (Some(queue), Some(repeats)),
                Err(why) => tracing::info!("image tasks could not be read yet: {}", why.text),
            }
        }
        let Some(queue) = self.queue.as_mut().filter(|_| self.leads) else { return self.images = None };
        if self.working.is_none()
            && let Some(task) = queue.due(now().mono).cloned()
        {
            self.begin(&task);
        }
        self.follow_schedules();
        if self.queue.as_ref().is_some_and(Queue::is_empty) {
            self.images = None;
        }
    }

    fn images(&mut self) -> &Images {
        self.images.get_or_insert_with(|| Images::connect(&self.access))
    }

    fn load(&mut self) -> Result<(Queue, Repeats), Trouble> {
        let mut queue = Queue::default();
        self.images().load()?.into_iter().for_each(|task| queue.insert(task));
        Ok((queue, Repeats::load(self.images())?))
    }

    // ---- work ----

    fn begin(&mut self, task: &Task) {
        let (sequence, tell) = (task.sequence, self.own.clone());
        // The worker may be gone before its helper is.
        let tell = move |news| drop(tell.send(Order::Helper(sequence, news)));
        match Helper::start(&self.conf, &task.refs, tell) {
            Ok(helper) => {
                tracing::info!("{}", task.message);
                self.working = Some((sequence, helper));
                if let Some(task) = self.queue.as_mut().and_then(|queue| queue.get_mut(sequence)) {
                    task.state.running = Some(0.0);
                }
            }
            Err(e) => self.tried(task.sequence, Some(format!("{e:#}"))),
        }
    }

    fn tried(&mut self, sequence: u64, failed: Option<String>) {
        let now = now();
        if let Some(queue) = &mut self.queue {
            queue.tried(sequence, failed, now.mono, now.wall);
        }
    }

    fn on_helper(&mut self, sequence: u64, news: News) {
        if self.working.as_ref().is_none_or(|(working, _)| *working != sequence) {
            return; // of before another one led
        }
        let Some(task) = self.queue.as_mut().and_then(|queue| queue.get_mut(sequence)) else { return };
        match news {
            News::Progress(at) => task.state.running = Some(at),
            News::Over(line) => {
                let task = task.clone();
                let (_, helper) = self.working.take().expect("just seen");
                self.over(&task, helper.status(), line);
            }
        }
    }

    fn over(&mut self, task: &Task, status: i32, line: String) {
        let action = task.refs.action;
        // What is not there, or not of the kind, will not become so.
        let hopeless = status == errno::ENOENT
            || (status == errno::EINVAL && !matches!(action, Action::Remove | Action::TrashRemove));
        let failed = (status != 0).then(|| format!("[errno {status}] {line}"));
        if let Some(why) = &failed {
            tracing::warn!("{}: {why}", task.message);
        }
        self.tried(task.sequence, failed);
        if (status == 0 || hopeless)
            && let Err(why) = self.drop_task(task, status == 0)
        {
            // It stays where it is kept, and is found done when it is tried again.
            tracing::warn!("{}: {}", task.message, why.text);
        }
    }

    fn drop_task(&mut self, task: &Task, done: bool) -> Result<(), Trouble> {
        let images = self.images();
        match images.place(&task.refs).and_then(|at| images.forget(&at, task)) {
            Err(why) if why.code != errno::ENOENT => return Err(why),
            _ => {} // its pool may be gone
        }
        if let Some(queue) = &mut self.queue {
            queue.remove(task.sequence, done);
        }
        Ok(())
    }

    // ---- commands ----

    fn on_command(&mut self, command: &ImageCommand) {
        let answer = match self.answer(command) {
            _ if !helper::is_installed() => ImageAnswer::no_handler(&command.prefix),
            Ok(output) => ImageAnswer { output: as_line(output), ..ImageAnswer::default() },
            Err(Trouble { code, text }) => ImageAnswer { code, status: text, output: String::new() },
        };
        let key = command.key;
        self.monitor.call(move |manager, _, out| manager.answer(key, answer, out));
    }

    fn answer(&mut self, command: &ImageCommand) -> Result<String, Trouble> {
        if self.queue.is_none() {
            let (queue, repeats) = self.load()?;
            (self.queue, self.repeats) = (Some(queue), Some(repeats));
        }
        if let Some(what) = command.prefix.strip_prefix("rbd trash purge schedule ") {
            return self.on_schedule(Kind::TrashPurge, what, command);
        }
        if let Some(what) = command.prefix.strip_prefix("rbd mirror snapshot schedule ") {
            return self.on_schedule(Kind::MirrorSnapshot, what, command);
        }
        match command.prefix.as_str() {
            "rbd perf image stats" => return self.on_perf("stat", command),
            "rbd perf image counters" => return self.on_perf("counter", command),
            _ => {}
        }
        let arg = |name| command.arg(name).unwrap_or_default();
        match command.prefix.as_str() {
            "rbd task list" => self.list(command.arg("task_id")),
            "rbd task cancel" => self.cancel(arg("task_id")),
            "rbd task add flatten" => self.add(Action::Flatten, arg("image_spec")),
            "rbd task add remove" => self.add(Action::Remove, arg("image_spec")),
            "rbd task add trash remove" => self.add(Action::TrashRemove, arg("image_id_spec")),
            "rbd task add migration execute" => self.add(Action::MigrateExecute, arg("image_spec")),
            "rbd task add migration commit" => self.add(Action::MigrateCommit, arg("image_spec")),
            "rbd task add migration abort" => self.add(Action::MigrateAbort, arg("image_spec")),
            other => Err(trouble(errno::EINVAL, format!("no such task: {other}"))),
        }
    }

    fn queue(&mut self) -> &mut Queue {
        self.queue.as_mut().expect("it is read before a command is answered")
    }

    fn list(&mut self, id: Option<&str>) -> Result<String, Trouble> {
        match id.filter(|id| !id.is_empty()) {
            None => Ok(self.queue().list()),
            Some(id) => self.queue().by_id(id).map(|task| task.to_long_json()).ok_or_else(|| no_task(id)),
        }
    }

    fn cancel(&mut self, id: &str) -> Result<String, Trouble> {
        let task = self.queue().by_id(id).ok_or_else(|| no_task(id))?.clone();
        self.drop_task(&task, false)?;
        if self.working.as_ref().is_some_and(|(working, _)| *working == task.sequence) {
            self.working = None;
        }
        Ok(String::new())
    }

    fn add(&mut self, action: Action, spec: &str) -> Result<String, Trouble> {
        let mut refs = refs(action, spec)?;
        let shown = shown(&refs);
        let at = self.images().place(&refs)?;
        let (found, message) = match action {
            Action::Flatten | Action::Remove => {
                let image = self.images().find(&at, refs.image_name.as_deref().unwrap_or_default())?;
                refs.image_id = image.as_ref().map(|image| image.id.clone());
                let doing = if action == Action::Flatten { "Flattening" } else { "Removing" };
                (may_work(action, image, &shown), format!("{doing} image {shown}"))
            }
            Action::TrashRemove => {
                let id = refs.image_id.clone().unwrap_or_default();
                let there = self.images().is_in_trash(&at, &id)?;
                let gone = || image_missing("error retrieving image from trash");
                (there.then_some(()).ok_or_else(gone), format!("Removing image {shown} from trash"))
            }
            Action::MigrateExecute | Action::MigrateCommit | Action::MigrateAbort => {
                let status = helper::status(&self.conf, &refs);
                let status = status.map_err(|e| trouble(errno::EIO, format!("{e:#}")))?;
                let moving = status.as_ref().and_then(|status| Moving::read(&status["migration"]));
                refs.image_id = moving.as_ref().map(|moving| moving.id.clone());
                let message = match (&moving, action) {
                    (Some(moving), Action::MigrateExecute) => {
                        format!("Migrating image {} to {}", moving.from, moving.to)
                    }
                    (_, Action::MigrateCommit) => format!("Committing image migration for {shown}"),
                    _ => format!("Aborting image migration for {shown}"),
                };
                (may_migrate(action, moving, &shown), message)
            }
        };
        if let Some(task) = self.queue().find(&refs) {
            return Ok(task.to_json());
        }
        found?;
        let sequence = self.queue().next_sequence();
        let id = Uuid::new_v4().to_string();
        let task = Task { sequence, id, message, refs, state: Progress::default() };
        self.keep(&at, task)
    }

    fn keep(&mut self, at: &Place, task: Task) -> Result<String, Trouble> {
        self.images().keep(at, &task)?;
        let shown = task.to_json();
        self.queue().insert(task);
        Ok(shown)
    }
}

/// A migration as `rbd status` shows it.
struct Moving {
    id: String,
    from: String,
    to: String,
    state: String,
}

impl Moving {
    fn read(status: &serde_json::Value) -> Option<Moving> {
        let text = |name: &str| status[name].as_str().map(str::to_string);
        let whole = |side: &str| {
            let part = |name: &str| text(&format!("{side}_{name}")).unwrap_or_default();
            path(&part("pool_name"), &part("pool_namespace"), &part("image_name"))
        };
        Some(Moving {
            id: text("dest_image_id")?,
            from: whole("source"),
            to: whole("dest"),
            state: text("state")?,
        })
    }
}

/// As Ceph's manager ends what its modules say, unless that is nothing.
fn as_line(output: String) -> String {
    if output.is_empty() { output } else { output + "\n" }
}

fn no_task(id: &str) -> Trouble {
    trouble(errno::ENOENT, format!("No such task {id}"))
}

fn image_missing(why: &str) -> Trouble {
    trouble(errno::ENOENT, format!("[errno 2] RBD image not found ({why})"))
}

fn may_work(action: Action, image: Option<images::Image>, shown: &str) -> Result<(), Trouble> {
    match image {
        None => Err(image_missing(&format!("Image {shown} does not exist"))),
        Some(image) if action == Action::Flatten && !image.has_parent => {
            Err(image_missing(&format!("Image {shown} does not have a parent")))
        }
        Some(image) if action == Action::Remove && image.has_snapshots => {
            let why = format!("[errno 16] RBD image is busy (Image {shown} has snapshots)");
            Err(trouble(errno::EBUSY, why))
        }
        Some(_) => Ok(()),
    }
}

fn may_migrate(action: Action, moving: Option<Moving>, shown: &str) -> Result<(), Trouble> {
    let invalid = |what: &str| {
        let why = format!("[errno 22] RBD invalid argument (Image {shown} {what})");
        Err(trouble(errno::EINVAL, why))
    };
    match (action, moving.as_ref().map(|moving| moving.state.as_str())) {
        (_, None) => invalid("is not migrating"),
        (Action::MigrateExecute, Some(state)) if !matches!(state, "prepared" | "executing") => {
            invalid("is not in ready state")
        }
        (Action::MigrateCommit, Some(state)) if state != "executed" => invalid("has not completed migration"),
        _ => Ok(()),
    }
}

/// What `[POOL/[NAMESPACE/]]IMAGE` means; for what is in the trash, an id comes last.
fn refs(action: Action, spec: &str) -> Result<Refs, Trouble> {
    let parts: Vec<&str> = spec.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [image] => (DEFAULT_POOL, "", image),
        [pool, image] => (pool, "", image),
        [pool, namespace, image] => (pool, namespace, image),
        _ => ("", "", ""),
    };
    let named = parts[..parts.len() - 1].iter().all(|part| !part.is_empty());
    if image.is_empty() || image.contains('@') || !named {
        return Err(trouble(errno::EINVAL, format!("Invalid image spec: {spec}")));
    }
    let image = Some(image.to_string());
    let (image_name, image_id) = if action == Action::TrashRemove { (None, image) } else { (image, None) };
    Ok(Refs {
        action,
        pool_name: pool.to_string(),
        pool_namespace: namespace.to_string(),
        image_name,
        image_id,
    })
}

fn shown(refs: &Refs) -> String {
    let image = refs.image_name.as_ref().or(refs.image_id.as_ref());
    path(&refs.pool_name, &refs.pool_namespace, image.map_or("", String::as_str))
}

fn path(pool: &str, namespace: &str, image: &str) -> String {
    let parts = [pool, namespace, image].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_line_unless_it_is_empty() {
        assert_eq!(["[]", ""].map(|said| as_line(said.to_string())), ["[]\n", ""]);
    }

    #[test]
    fn an_image_is_named_with_or_without_its_pool_and_namespace() {
        let of = |spec| refs(Action::Flatten, spec).map(|refs| shown(&refs)).map_err(|e| e.text);
        assert_eq!(of("a").unwrap(), "rbd/a");
        assert_eq!(of("p/a").unwrap(), "p/a");
        assert_eq!(of("p/n/a").unwrap(), "p/n/a");
        for bad in ["", "p/", "/a", "p//a", "a@s", "p/n/m/a"] {
            assert_eq!(of(bad), Err(format!("Invalid image spec: {bad}")));
        }
        assert_eq!(refs(Action::TrashRemove, "p/1f").unwrap().image_id.as_deref(), Some("1f"));
    }
}
