//! The blocks of all objects in memory, and blocks that wait to become free: the number of references from
//! objects in memory, and the checksum.
//!
//! Neighbouring blocks come and go together, so they are kept in pages; a page exists while one of its
//! blocks is present. Two array look-ups find a page. A map would be slower: a checkpoint looks up each
//! block of all changed objects, and after random overwrites no two of these are neighbours.

use std::ops::Index;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockInfo {
    /// Objects in memory that have it. Zero while nothing owns it but something durable still may.
    pub refs: u32,
    /// Of the whole block; unknown, and zero, while it is pending.
    pub crc: u32,
}

/// Blocks of a page.
const PAGE: u32 = 64;
/// Pages of a chapter.
const CHAPTER: u32 = 64;

#[derive(Debug)]
struct Page {
    /// One bit for each block that is here.
    present: u64,
    infos: [BlockInfo; PAGE as usize],
}

#[derive(Debug)]
struct Chapter {
    /// How many are here: one at least.
    len: u32,
    pages: [Option<Box<Page>>; CHAPTER as usize],
}

#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    /// Up to the last that was ever here while others were: eight bytes for 16 MiB of the device.
    chapters: Vec<Option<Box<Chapter>>>,
    /// Of all chapters.
    pages: usize,
    /// Chapters that are here.
    here: usize,
    len: usize,
}

/// Chapter, page of that, block of that.
fn place(block: u32) -> (usize, usize, usize) {
    let page = block / PAGE;
    ((page / CHAPTER) as usize, (page % CHAPTER) as usize, (block % PAGE) as usize)
}

impl BlockTable {
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn get(&self, block: u32) -> Option<&BlockInfo> {
        let (chapter, page, place) = place(block);
        let page = self.chapters.get(chapter)?.as_ref()?.pages[page].as_ref()?;
        page.has(place).then(|| &page.infos[place])
    }
    pub fn get_mut(&mut self, block: u32) -> Option<&mut BlockInfo> {
        let (chapter, page, place) = place(block);
        let page = self.chapters.get_mut(chapter)?.as_mut()?.pages[page].as_mut()?;
        page.has(place).then(|| &mut page.infos[place])
    }
    pub fn contains(&self, block: u32) -> bool {
        self.get(block).is_some()
    }
    /// Replaces what is there.
    pub fn insert(&mut self, block: u32, info: BlockInfo) {
        let (chapter, page, place) = place(block);
        if chapter >= self.chapters.len() {
            self.chapters.resize_with(chapter + 1, || None);
        }
        let chapter = self.chapters[chapter].get_or_insert_with(|| {
            self.here += 1;
            Box::new(Chapter { len: 0, pages: [const { None }; CHAPTER as usize] })
        });
        let page = chapter.pages[page].get_or_insert_with(|| {
            chapter.len += 1;
            self.pages += 1;
            Box::new(Page { present: 0, infos: [BlockInfo::default(); PAGE as usize] })
        });
        self.len += usize::from(!page.has(place));
        page.present |= 1 << place;
        page.infos[place] = info;
    }
    pub fn remove(&mut self, block: u32) -> Option<BlockInfo> {
        let (number, in_chapter, place) = place(block);
        let chapter = self.chapters.get_mut(number)?.as_mut()?;
        let page = chapter.pages[in_chapter].as_mut().filter(|page| page.has(place))?;
        let info = page.infos[place];
        page.present &= !(1 << place);
        self.len -= 1;
        if page.present == 0 {
            chapter.pages[in_chapter] = None;
            chapter.len -= 1;
            self.pages -= 1;
            if chapter.len == 0 {
                self.chapters[number] = None;
                self.here -= 1;
            }
        }
        if self.len == 0 {
            self.chapters = Vec::new();
        }
        Some(info)
    }
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &BlockInfo)> {
        let chapters = (0..).zip(&self.chapters).filter_map(|(n, chapter)| Some((n, chapter.as_ref()?)));
        let pages = chapters.flat_map(|(n, chapter)| (n * CHAPTER..).zip(&chapter.pages));
        pages.filter_map(|(n, page)| Some((n, page.as_ref()?))).flat_map(|(n, page)| {
            let infos = page.infos.iter().enumerate().filter(|(place, _)| page.has(*place));
            infos.map(move |(place, info)| (n * PAGE + place as u32, info))
        })
    }
    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.pages * (size_of::<Page>() + 16)
            + self.here * (size_of::<Chapter>() + 16)
            + self.chapters.capacity() * size_of::<usize>()
    }
}

impl Page {
    fn has(&self, place: usize) -> bool {
        self.present & (1 << place) != 0
    }
}

impl Index<u32> for BlockTable {
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
    use std::collections::BTreeMap;

    #[test]
    fn it_agrees_with_a_map() {
        let (mut table, mut map) = (BlockTable::default(), BTreeMap::new());
        let mut rng = Rng::new(1);
        // Of the first pages, of some chapters, and the last that there can be.
        let blocks: Vec<u32> =
            (0..300).chain((0..40).map(|n| n * 4095)).chain([u32::MAX - 1, u32::MAX]).collect();
        for _ in 0..8000 {
            let block = blocks[rng.below(blocks.len() as u64) as usize];
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
        blocks.iter().for_each(|block| _ = table.remove(*block));
        assert_eq!((table.len(), table.bytes()), (0, 0));
    }
}
