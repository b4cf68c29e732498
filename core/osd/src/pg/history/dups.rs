//! The duplicate-op log: the replies to writes that have left the log. A client that sends one of them again,
//! as it did not get the reply, gets the same reply, and the write is not carried out twice.
//!
//! The log is for members that were away, and is as long as memory allows; this is for clients, takes a
//! twentieth of the memory for each write, and reaches further back. Dup entries lie encoded in pages, one
//! for each time that the log is trimmed, in memory and on disk (keys `r` of the record). A page goes as a
//! whole.

use super::log::{LogLimits, digest};
use bytes::Bytes;
use nacre_base::Version;
use nacre_proto::messages::answer::{Answer, Answers};
use nacre_proto::messages::peer::LogEntry;
use nacre_proto::types::ReqId;
use nacre_wire::{from_slice, to_vec};
use std::collections::{BTreeMap, VecDeque};

/// How far back dup entries reach at least, in writes, however little memory there is.
const KEPT_AT_LEAST: u64 = 1000;
/// Entries in a page that came from another holder.
const PAGE: usize = 64;
/// Memory of a page beside its entries.
const PAGE_OVERHEAD: usize = 120;

#[derive(Clone, Debug, Default)]
pub struct DupLog {
    /// Oldest first.
    pages: VecDeque<Page>,
    /// By `client_of`, which requests of each client may be here. A client numbers its requests in order, so
    /// that a new one is told from those here at once.
    clients: BTreeMap<u64, ClientDups>,
    last_number: u64,
    memory: usize,
}

/// Of one client, or of several that are not distinguished.
#[derive(Clone, Copy, Debug)]
struct ClientDups {
    /// No request here has a higher number.
    last_tid: u64,
    /// How many pages have some.
    pages: usize,
}

/// Which client a request is of. Different ones may have the same.
fn client_of(reqid: &ReqId) -> u64 {
    digest(&ReqId { tid: 0, ..*reqid })
}

/// Never empty.
#[derive(Clone, Debug)]
pub struct Page {
    pub number: u64,
    newest: Version,
    /// Of the requests, half of it, in the order in which they are encoded.
    digests: Box<[u32]>,
    /// Each client once, and its highest number.
    clients: Box<[(u64, u64)]>,
    pub encoded: Bytes,
}

impl Page {
    fn new(number: u64, answers: &Answers) -> Option<Page> {
        let newest = answers.0.last()?.version;
        let digests = answers.0.iter().map(|answer| digest(&answer.reqid) as u32).collect();
        let mut clients = BTreeMap::new();
        for Answer { reqid, .. } in &answers.0 {
            let last: &mut u64 = clients.entry(client_of(reqid)).or_default();
            *last = reqid.tid.max(*last);
        }
        let clients = clients.into_iter().collect();
        Some(Page { number, newest, digests, clients, encoded: to_vec(answers).into() })
    }
    fn memory(&self) -> usize {
        PAGE_OVERHEAD + self.encoded.len() + 4 * self.digests.len() + size_of_val(&*self.clients)
    }
    fn read(&self) -> Vec<Answer> {
        from_slice::<Answers>(&self.encoded).expect("a page that was encoded here").0
    }
}

/// The reply that the client got, or will get.
pub fn dup_of(entry: &LogEntry) -> Answer {
    Answer {
        reqid: entry.reqid,
        version: entry.version,
        user_version: entry.user_version,
        result: entry.result,
        outputs: entry.outputs.clone(),
    }
}

impl DupLog {
    /// As they were stored, in whichever order.
    pub fn from_pages(mut pages: Vec<(u64, Answers)>) -> DupLog {
        pages.sort_by_key(|(number, _)| *number);
        let mut all = DupLog::default();
        pages
            .iter()
            .filter_map(|(number, answers)| Page::new(*number, answers))
            .for_each(|page| all.push(page));
        all
    }
    pub fn from_answers(answers: &Answers) -> DupLog {
        let mut all = DupLog::default();
        for part in answers.0.chunks(PAGE) {
            all.add(part.to_vec());
        }
        all
    }
    /// These in place of the old ones, under numbers that were not used yet.
    pub fn after(old: &DupLog, answers: &Answers) -> DupLog {
        let mut all = DupLog { last_number: old.last_number, ..DupLog::default() };
        for part in answers.0.chunks(PAGE) {
            all.add(part.to_vec());
        }
        all
    }
    /// Bytes of memory, roughly.
    pub fn memory(&self) -> usize {
        self.memory
    }
    pub fn newest(&self) -> Option<Version> {
        self.pages.back().map(|page| page.newest)
    }
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter()
    }
    pub fn all(&self) -> Answers {
        Answers(self.pages.iter().flat_map(Page::read).collect())
    }
    pub fn find(&self, reqid: &ReqId) -> Option<Answer> {
        if self.clients.get(&client_of(reqid)).is_none_or(|asked| reqid.tid > asked.last_tid) {
            return None; // as nearly always
        }
        let digest = digest(reqid) as u32;
        let pages = self.pages.iter().rev().filter(|page| page.digests.contains(&digest));
        pages.flat_map(|page| page.read().into_iter().rev()).find(|answer| answer.reqid == *reqid)
    }

    fn push(&mut self, page: Page) {
        self.last_number = page.number;
        self.memory += page.memory();
        for (client, last_tid) in &page.clients {
            let asked = self.clients.entry(*client).or_insert(ClientDups { last_tid: 0, pages: 0 });
            asked.last_tid = asked.last_tid.max(*last_tid);
            asked.pages += 1;
        }
        self.pages.push_back(page);
    }
    /// Those that are newer than all that are here. Gives the page that they make.
    pub fn add(&mut self, answers: Vec<Answer>) -> Option<&Page> {
        let page = Page::new(self.last_number + 1, &Answers(answers))?;
        self.push(page);
        self.pages.back()
    }
    /// Takes out what is too old for a log whose newest write is `last`, or takes more memory than
    /// there is beside the log. Gives the pages' numbers.
    pub fn trim(&mut self, last: Version, limits: &LogLimits, memory_of_log: usize) -> Vec<u64> {
        let mut gone = Vec::new();
        while let Some(page) = self.pages.front() {
            let age = last.version.saturating_sub(page.newest.version);
            let too_much = self.memory + memory_of_log > limits.memory && age >= KEPT_AT_LEAST;
            if age < limits.answers && !too_much {
                break;
            }
            let page = self.pages.pop_front().expect("there is a front");
            self.memory -= page.memory();
            for (client, _) in &page.clients {
                let asked = self.clients.get_mut(client).expect("it came with the page");
                asked.pages -= 1;
                if asked.pages == 0 {
                    self.clients.remove(client);
                }
            }
            gone.push(page.number);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use nacre_base::Epoch;
    use nacre_proto::types::EntityName;

    fn answer(n: u64) -> Answer {
        let reqid = ReqId { client: EntityName { kind: 8, num: 4100 }, tid: n, inc: 0 };
        Answer { reqid, version: v(n), user_version: n, ..Answer::default() }
    }
    fn v(n: u64) -> Version {
        Version::new(Epoch(1), n)
    }
    fn limits(answers: u64, memory: usize) -> LogLimits {
        LogLimits { answers, memory, ..Options::default().logs() }
    }
    fn all(count: u64) -> DupLog {
        DupLog::from_answers(&Answers((1..=count).map(answer).collect()))
    }

    #[test]
    fn answers_are_found_as_long_as_they_are_kept() {
        let mut dups = all(3000);
        let find = |dups: &DupLog, n| dups.find(&answer(n).reqid);
        assert!((1..=3000).all(|n| find(&dups, n) == Some(answer(n))));
        assert_eq!(find(&dups, 3001), None);
        assert_eq!(dups.trim(v(3000), &limits(1000, usize::MAX), 0).len(), 2000 / PAGE);
        assert_eq!((find(&dups, 1), find(&dups, 2001)), (None, Some(answer(2001))));
        let stored = dups.pages().map(|page| (page.number, from_slice(&page.encoded).unwrap()));
        let mut back = DupLog::from_pages(stored.collect());
        assert_eq!((back.all(), back.memory()), (dups.all(), dups.memory()));
        back.add(vec![answer(3001)]);
        assert_eq!(find(&back, 3001), Some(answer(3001)));
    }

    #[test]
    fn clients_are_known_as_long_as_a_page_has_requests_of_theirs() {
        let of = |client, tid, version| {
            let reqid = ReqId { client: EntityName { kind: 8, num: client }, tid, inc: 0 };
            Answer { reqid, version: v(version), ..Answer::default() }
        };
        let find = |dups: &DupLog, client, tid| dups.find(&of(client, tid, 0).reqid);
        let mut dups = DupLog::default();
        // One numbers high and ends; another continues, and what it sent was not carried out in that order.
        dups.add(vec![of(1, 900, 1), of(2, 3, 2), of(2, 2, 3)]);
        dups.add(vec![of(2, 4, 1004), of(3, 5, 1005)]);
        for (client, tid, version) in [(1, 900, 1), (2, 3, 2), (2, 2, 3), (2, 4, 1004), (3, 5, 1005)] {
            assert_eq!(find(&dups, client, tid), Some(of(client, tid, version)));
        }
        assert_eq!((find(&dups, 1, 2), find(&dups, 3, 6)), (None, None));
        dups.trim(v(1010), &limits(100, usize::MAX), 0);
        assert_eq!((find(&dups, 1, 900), find(&dups, 2, 3)), (None, None));
        assert_eq!(find(&dups, 2, 4), Some(of(2, 4, 1004)));
        assert_eq!(dups.clients.len(), 2);
    }

    #[test]
    fn without_memory_fewer_answers_are_kept_but_some() {
        let mut dups = all(3000);
        assert!(dups.trim(v(3000), &limits(3000, dups.memory() + 5), 5).is_empty());
        assert_eq!(dups.trim(v(3000), &limits(3000, dups.memory() + 5), 6).len(), 1);
        assert_eq!(dups.trim(v(3000), &limits(3000, 0), 0).len(), 2000 / PAGE - 1);
    }

    #[test]
    fn an_answer_takes_a_twentieth_of_what_an_entry_takes() {
        assert!(all(3000).memory() / 3000 <= 18, "{}", all(3000).memory() / 3000);
    }
}
