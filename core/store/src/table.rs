//! The blocks of all things that are in memory, and those that wait to become free: how many such things have
//! a block, and its checksum.
//!
//! Neighbours come and go together: so they lie in pages, of which those exist that have a block in them.

use std::collections::BTreeMap;
use std::ops::Index;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockInfo {
    /// Things in memory that have it. Zero while nothing owns it but something durable still may.
    pub refs: u32,
    /// Of the whole block; unknown, and zero, while it is pending.
    pub crc: u32,
}

const PAGE: u32 = 64;

#[derive(Debug)]
struct Page {
    /// One bit for each block that is here.
    present: u64,
    infos: [BlockInfo; PAGE as usize],
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    pages: BTreeMap<u32, Box<Page>>,
    len: usize,
}

impl Table {
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn get(&self, block: u32) -> Option<&BlockInfo> {
        let page = self.pages.get(&(block / PAGE))?;
        page.has(block).then(|| &page.infos[(block % PAGE) as usize])
    }
    pub fn get_mut(&mut self, block: u32) -> Option<&mut BlockInfo> {
        let page = self.pages.get_mut(&(block / PAGE))?;
        page.has(block).then(|| &mut page.infos[(block % PAGE) as usize])
    }
    pub fn contains(&self, block: u32) -> bool {
        self.get(block).is_some()
    }
    /// Replaces what is there.
    pub fn insert(&mut self, block: u32, info: BlockInfo) {
        let none = || Box::new(Page { present: 0, infos: [BlockInfo::default(); PAGE as usize] });
        let page = self.pages.entry(block / PAGE).or_insert_with(none);
        self.len += usize::from(!page.has(block));
        page.present |= 1 << (block % PAGE);
        page.infos[(block % PAGE) as usize] = info;
    }
    pub fn remove(&mut self, block: u32) -> Option<BlockInfo> {
        let info = *self.get(block)?;
        let page = self.pages.get_mut(&(block / PAGE)).expect("the block is on a page");
        page.present &= !(1 << (block % PAGE));
        if page.present == 0 {
            self.pages.remove(&(block / PAGE));
        }
        self.len -= 1;
        Some(info)
    }
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &BlockInfo)> {
        self.pages.iter().flat_map(|(number, page)| {
            let blocks = (number * PAGE..).zip(&page.infos);
            blocks.filter(|(block, _)| page.has(*block))
        })
    }
    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.pages.len() * (size_of::<Page>() + 32)
    }
}

impl Page {
    fn has(&self, block: u32) -> bool {
        self.present & (1 << (block % PAGE)) != 0
    }
}

impl Index<u32> for Table {
    type Output = BlockInfo;
    /// Of a block that is known to be here.
    fn index(&self, block: u32) -> &BlockInfo {
        self.get(block).expect("the block is in the table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;

    #[test]
    fn it_agrees_with_a_map() {
        let (mut table, mut map) = (Table::default(), BTreeMap::new());
        let mut rng = Rng::new(1);
        for _ in 0..5000 {
            let block = rng.below(300) as u32;
            let info = BlockInfo { refs: rng.below(3) as u32, crc: rng.next_u64() as u32 };
            if rng.chance(500) {
                table.insert(block, info);
                map.insert(block, info);
            } else {
                assert_eq!(table.remove(block), map.remove(&block));
            }
            assert_eq!((table.len(), table.get(block)), (map.len(), map.get(&block)));
        }
        assert!(table.iter().eq(map.iter().map(|(block, info)| (*block, info))));
        (0..300).for_each(|block| _ = table.remove(block));
        assert_eq!((table.len(), table.bytes()), (0, 0));
    }
}
