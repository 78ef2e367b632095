//! Keys that are named again when they were taken for closed.

use super::Windows;
use super::table::{List, Pair, Table, outcome};
use crate::closed::Closed;
use crate::leb128::{put, take, unzigzag, zigzag};
use seatrial_history::chunk::{MopView, ValueView};
use seatrial_history::{Chunk, Fold, Key, OpType, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Keys that are named again after `idle_chunks` without them.
///
/// Windows close a key that nothing names for a while, and free its transactions (see [`super::record::Record`]). A read of
/// a closed key would need them again: until this existed, one such read joined all windows into one. Now such a history is
/// gone through once more. The pass of [`Late`] collects what late reads show, about 1.3 bytes an element. When a window
/// closes one of these keys, that is known in advance: appends that only the late read shows are placed as if they had been
/// read in time ([`is_final`]), so each transaction is judged with all that is known of it, and its list is kept as what
/// the late read must show.
///
/// A late read of exactly that list adds no dependency that leads back to what was freed: it missed no append, so all its
/// edges (*wr* from the last append) lead to the reader, which is judged later, and no cycle goes through both. It is
/// compared with the list, and nothing else is kept of it. So memory is that of the windows and of the late lists. Of a
/// closed list that is still known because some of its transactions are, a late read is kept as any other.
///
/// A key that is appended to late is kept open from the beginning until it is named for the last time, which joins the
/// windows in between. When a late read turns out to show another list (it missed an append, or shows something wrong), the
/// history is gone through again with all late keys kept open. Neither is done where windows are a bound.
#[derive(Clone, Default)]
pub(super) struct LateKeys {
    keys: Arc<BTreeMap<Key, LateKey>>,
    pinned: Pinned,
}

/// One of them.
struct LateKey {
    /// The longest late read; `None` when there are late appends.
    list: Option<Packed>,
    /// The last chunk that names it.
    last: u32,
}

/// Which late keys are kept open until they are named for the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pinned {
    #[default]
    None,
    /// Those with late appends.
    Appended,
    All,
}

/// A list of integers as differences of variable length: of most lists one or two bytes an element.
#[derive(Default)]
struct Packed {
    length: usize,
    bytes: Box<[u8]>,
}

impl Packed {
    fn of(elements: &[i64]) -> Packed {
        let mut bytes = Vec::new();
        let mut before = 0_i64;
        for &element in elements {
            put(&mut bytes, zigzag(element.wrapping_sub(before)));
            before = element;
        }
        Packed {
            length: elements.len(),
            bytes: bytes.into(),
        }
    }

    fn elements(&self) -> impl Iterator<Item = i64> {
        let (mut at, mut before) = (0, 0_i64);
        (0..self.length).map(move |_| {
            let difference = unzigzag(take(&self.bytes, &mut at));
            before = before.wrapping_add(difference);
            before
        })
    }
}

impl LateKeys {
    /// The same keys, of which some are kept open.
    pub(super) fn pinning(&self, pinned: Pinned) -> LateKeys {
        let keys = Arc::clone(&self.keys);
        LateKeys { keys, pinned }
    }

    /// Is this key kept open in these chunks?
    pub(super) fn is_pinned(&self, key: &Key, chunks: u32) -> bool {
        let known = self.keys.get(key);
        known.is_some_and(|known| {
            let is_meant = match self.pinned {
                Pinned::None => false,
                Pinned::Appended => known.list.is_none(),
                Pinned::All => true,
            };
            is_meant && known.last >= chunks
        })
    }

    /// Is no key named late?
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// What the longest late read of a key shows, unless it is appended to or kept open.
    fn list(&self, key: &Key) -> Option<&Packed> {
        let known = self.keys.get(key).filter(|_| self.pinned != Pinned::All);
        known?.list.as_ref()
    }

    /// Does the longest late read of this key show exactly this?
    pub(super) fn shows(&self, key: &Key, elements: &[i64]) -> bool {
        self.list(key).is_some_and(|list| {
            list.length == elements.len() && list.elements().eq(elements.iter().copied())
        })
    }

    /// Completes lists that are closing now, of keys that are read late, by what those reads show, where that is the list in
    /// the end.
    pub(super) fn complete(&self, table: &mut Table, closing: &[bool]) {
        if self.is_empty() {
            return;
        }
        let asked = table.lists.iter().zip(closing).zip(0..);
        let asked =
            asked.filter(|((list, closing), _)| **closing && self.list(&list.key).is_some());
        let asked: BTreeSet<u32> = asked.map(|(_, at)| at).collect();
        let mut pairs: BTreeMap<u32, Vec<Pair>> = BTreeMap::new();
        for &pair in table.pairs.iter().filter(|pair| asked.contains(&pair.list)) {
            pairs.entry(pair.list).or_default().push(pair);
        }
        for at in asked {
            let list = &mut table.lists[at as usize];
            let known = self.list(&list.key);
            let elements: Vec<i64> = known.into_iter().flat_map(Packed::elements).collect();
            let pairs = pairs.get(&at).map_or(&[][..], Vec::as_slice);
            list.is_final = is_final(list, &elements, pairs, &table.outcomes);
            if list.is_final {
                list.elements = elements;
            }
        }
    }
}

/// May this be the list in the end, of which nothing can be told but by cycles? It begins with what was read of it;
/// each element was appended, once, by a transaction that did not fail; the appends of each transaction stand in its order;
/// and the last one is not followed by another of its transaction. (Whether an append that took place is missing is known
/// when the window is checked: `Gathering::show`.)
fn is_final(list: &List, elements: &[i64], pairs: &[Pair], outcomes: &[u8]) -> bool {
    let mut places: BTreeMap<i64, usize> = BTreeMap::new();
    places.extend(elements.iter().copied().zip(0..));
    let is_sound = |&element: &i64| {
        let number = list.writer(element).and_then(|writer| writer.number());
        number.is_some_and(|number| outcomes[number as usize] != outcome::FAIL)
    };
    let last = elements.last().and_then(|&last| list.writer(last));
    list.conflict.is_none()
        && elements.starts_with(&list.elements)
        && places.len() == elements.len()
        && elements.iter().all(is_sound)
        && !last.is_some_and(|last| last.is_intermediate())
        && pairs.iter().all(|pair| {
            let [one, next] = pair.elements.map(|element| places.get(&element));
            next.is_none_or(|next| one.is_some_and(|one| one < next))
        })
}

/// Collects [`LateKeys`], chunk by chunk in order: keys by what each chunk names, and operations only of chunks that name one
/// late.
pub(super) struct Late(pub(super) Windows);

/// What is known of keys after some chunks.
#[derive(Default)]
pub(super) struct Looking {
    /// Chunks so far, counted as windows count them, and operations since the last one was counted.
    chunks: u32,
    uncounted: usize,
    /// The last chunk that names each key, of those that may still be open.
    named: BTreeMap<Key, u32>,
    closed: Closed,
    late: BTreeMap<Key, LateKey>,
}

/// Keys that were named lately, at least, before those are looked for that are closed.
const NAMED_MIN: usize = 4_096;

impl Looking {
    fn take(&mut self, chunk: &Chunk, windows: Windows) {
        let now = self.chunks;
        let keys = 0..chunk.key_count() as u32;
        let is_late: Vec<bool> = keys.map(|id| self.name(chunk.key(id), windows)).collect();
        if is_late.contains(&true) {
            self.look(chunk, &is_late);
        }
        self.uncounted += chunk.len();
        if self.uncounted >= windows.chunk_length_min {
            self.uncounted = 0;
            self.chunks += 1;
        }
        if self.named.len() >= NAMED_MIN && now.is_multiple_of(windows.idle_chunks.max(1)) {
            let idle = |named: u32| named.saturating_add(windows.idle_chunks) < self.chunks;
            let closed = &mut self.closed;
            self.named.retain(|key, named| {
                if idle(*named) {
                    closed.insert(key.clone());
                }
                !idle(*named)
            });
        }
    }

    /// Is this key, which the next chunk names, read late, there or before?
    fn name(&mut self, key: &Key, windows: Windows) -> bool {
        let before = self.named.insert(key.clone(), self.chunks);
        let is_late = match before {
            Some(before) => before.saturating_add(windows.idle_chunks) < self.chunks,
            None => self.closed.contains(key),
        };
        if is_late {
            self.late.entry(key.clone()).or_insert_with(|| LateKey {
                list: Some(Packed::default()),
                last: 0,
            });
        }
        let known = self.late.get_mut(key);
        known.map(|known| known.last = self.chunks).is_some()
    }

    /// Looks at what a chunk does to keys that are late.
    fn look(&mut self, chunk: &Chunk, is_late: &[bool]) {
        for place in 0..chunk.len() {
            let ValueView::Txn(mops) = chunk.value(place) else {
                continue;
            };
            if !chunk.process(place).is_client() {
                continue;
            }
            for mop in mops.iter().filter(|mop| is_late[mop.key() as usize]) {
                let Some(known) = self.late.get_mut(chunk.key(mop.key())) else {
                    continue;
                };
                match mop {
                    MopView::ReadList { elements, .. } if chunk.kinds()[place] == OpType::Ok => {
                        if let Some(list) = &mut known.list
                            && elements.len() > list.length
                        {
                            *list = Packed::of(elements);
                        }
                    }
                    MopView::Append { .. } => known.list = None,
                    _ => {}
                }
            }
        }
    }
}

impl Fold for Late {
    type Accumulator = Looking;
    type Output = LateKeys;

    fn name(&self) -> String {
        "list-append, late keys".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> Looking {
        Looking::default()
    }

    fn reduce(&self, looking: &mut Looking, chunk: &Chunk) -> ControlFlow<()> {
        looking.take(chunk, self.0);
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut Looking, _: Looking) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, looking: Looking) -> LateKeys {
        LateKeys {
            keys: Arc::new(looking.late),
            pinned: Pinned::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use seatrial_machine::Rng;

    #[test]
    fn lists_are_packed_and_unpacked() {
        for seed in 0..500 {
            let mut rng = Rng::from_seed(seed);
            let all = (0..rng.below(40)).map(|_| match rng.below(4) {
                0 => *rng.pick(&[i64::MIN, i64::MAX, 0, -1]),
                1 => rng.word().cast_signed(),
                _ => rng.below(300).cast_signed() - 100,
            });
            let all: Vec<i64> = all.collect();
            let packed = Packed::of(&all);
            assert_eq!(packed.elements().collect::<Vec<_>>(), all, "seed {seed}");
            let one = LateKey {
                list: Some(packed),
                last: 7,
            };
            let late = LateKeys {
                keys: Arc::new(BTreeMap::from([(Key::Int(1), one)])),
                pinned: Pinned::None,
            };
            assert!(!late.is_pinned(&Key::Int(1), 7));
            assert!(late.shows(&Key::Int(1), &all) && !late.shows(&Key::Int(2), &all));
            let mut other = all.clone();
            other.push(3);
            assert!(!late.shows(&Key::Int(1), &other), "seed {seed}");
            other.pop();
            if let Some(one) = other.first_mut() {
                *one = one.wrapping_add(1);
                assert!(!late.shows(&Key::Int(1), &other), "seed {seed}");
            }
            let late = late.pinning(Pinned::All);
            assert!(late.is_pinned(&Key::Int(1), 7) && !late.is_pinned(&Key::Int(1), 8));
            assert!(!late.is_pinned(&Key::Int(2), 7) && !late.shows(&Key::Int(1), &all));
        }
    }
}
