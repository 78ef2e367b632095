//! Keys that are named again when they were taken for closed.

use super::Windows;
use super::table::{List, Pair, Table, Writer, outcome};
use crate::closed::Closed;
use crate::leb128::{put, take, unzigzag, zigzag};
use crate::txn::dense::Map;
use seatrial_history::chunk::{MopView, ValueView};
use seatrial_history::{Chunk, Fold, Key, OpType, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Keys that are named again after `idle_chunks` without them.
///
/// Windows close a key that nothing names for a while, and free its transactions (see [`super::record::Record`]). A later use
/// of such a key would need them again, and every transaction between. So when a key is named late, the history is gone
/// through once more. The pass of [`Late`] collects the longest list that late reads show, about 1.3 bytes an element.
/// When a window closes one of these keys, that is known in advance: appends that only a late read shows are placed as if
/// they had been read in time, so each transaction is judged with all that is known of it, and of the list only its
/// length is kept ([`LateKeys::complete`]).
///
/// A key that is not appended to late: a late read of exactly that list adds no dependency that leads back to what was freed.
/// It missed no append, so all its edges (*wr* from the last append) lead to the reader, which is judged later, and no
/// cycle goes through both. It is compared with the list, and nothing else is kept of it. Of a closed list that is
/// still known because some of its transactions are, a late read is kept as any other.
///
/// A key that is appended to late is opened again ([`super::gather::Gathering::reopen`]): its list begins with the elements that
/// it had, whose writers are gone. As long as all reads begin with these, every dependency on what was freed leads away
/// from it, and nothing that is judged later can be on a cycle with it.
///
/// So memory is that of the windows and of the late lists. When a late use does not fit (a read that misses an append or shows
/// another list, an element that is appended again), the history is gone through once more with all late keys kept open from
/// the beginning until they are named for the last time, which joins the windows in between; not where windows are a bound. The
/// same is done at once when many keys are appended to late: at any time some of them are open, and windows would not end.
#[derive(Clone, Default)]
pub(super) struct LateKeys {
    keys: Arc<BTreeMap<Key, LateKey>>,
    is_pinned: bool,
}

/// One of them.
struct LateKey {
    /// The longest late read.
    list: Packed,
    /// Is it appended to late?
    is_appended: bool,
    /// The last chunk that names it.
    last: u32,
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
    /// The same keys, kept open until they are named for the last time.
    pub(super) fn pinned(&self) -> LateKeys {
        let keys = Arc::clone(&self.keys);
        let is_pinned = true;
        LateKeys { keys, is_pinned }
    }

    /// Is this key kept open in these chunks?
    pub(super) fn is_pinned(&self, key: &Key, chunks: u32) -> bool {
        self.is_pinned && self.keys.get(key).is_some_and(|known| known.last >= chunks)
    }

    /// Is no key named late?
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many keys are appended to late.
    pub(super) fn appended(&self) -> usize {
        let keys = self.keys.values();
        keys.filter(|known| known.is_appended).count()
    }

    /// What is known of a key that is named late, unless those are kept open.
    fn late(&self, key: &Key) -> Option<&LateKey> {
        self.keys.get(key).filter(|_| !self.is_pinned)
    }

    /// Is a key appended to after it was closed?
    pub(super) fn is_appended(&self, key: &Key) -> bool {
        self.late(key).is_some_and(|known| known.is_appended)
    }

    /// The first elements of the longest late read of a key.
    pub(super) fn first(&self, key: &Key, length: u32) -> Vec<i64> {
        let elements = self.late(key).into_iter();
        let elements = elements.flat_map(|known| known.list.elements());
        elements.take(length as usize).collect()
    }

    /// Is this key only read late, and is this what the longest late read shows?
    pub(super) fn shows(&self, key: &Key, elements: &[i64]) -> bool {
        self.late(key).is_some_and(|known| {
            let list = &known.list;
            !known.is_appended
                && list.length == elements.len()
                && list.elements().eq(elements.iter().copied())
        })
    }

    /// What the lists of keys that are named late come to, of those that are `closing`: their elements if that is the list so
    /// far, else `None`. `running`: what transactions append that are still running, as lists and elements.
    pub(super) fn complete(
        &self,
        table: &Table,
        closing: &[bool],
        running: &BTreeSet<(u32, i64)>,
    ) -> BTreeMap<u32, Option<Vec<i64>>> {
        let lists = table.lists.iter().zip(closing).zip(0..);
        let asked = lists.filter_map(|((list, &closing), at)| {
            let known = self.late(&list.key).filter(|_| closing)?;
            Some((at, known))
        });
        let asked: BTreeMap<u32, &LateKey> = asked.collect();
        if asked.is_empty() {
            return BTreeMap::new();
        }
        let pairs = table.pairs_of(|at| asked.contains_key(&at));
        let unfinished = table.unfinished(|at| asked.contains_key(&at));
        let completed = asked.into_iter().map(|(at, known)| {
            let list = &table.lists[at as usize];
            let pairs = pairs.get(&at).map_or(&[][..], Vec::as_slice);
            let all: Vec<i64> = known.list.elements().collect();
            let is_known = |element: &i64| list.writer(*element).is_some();
            let length = if known.is_appended {
                all.iter().take_while(|element| is_known(element)).count()
            } else {
                all.len()
            };
            let (elements, rest) = all.split_at(length);
            // An append that only a later read shows, above others that come later.
            let is_passed = |element: &i64| is_known(element) || running.contains(&(at, *element));
            let is_final = !unfinished.contains(&at)
                && !rest.iter().any(is_passed)
                && is_final(list, elements, pairs, &table.outcomes);
            (at, is_final.then(|| elements.to_vec()))
        });
        completed.collect()
    }
}

/// May this be the list in the end, or for the time being, of which nothing can be told but by cycles? It begins with what was
/// read of it; each element was appended, once, by a transaction that did not fail; the appends of each transaction
/// stand in its order; the last one is not followed by another of its transaction; and none is missing that succeeded.
/// (Whether one is missing whose outcome is unknown and that took place is known when the window is checked:
/// `Gathering::show`.)
fn is_final(list: &List, elements: &[i64], pairs: &[Pair], outcomes: &[u8]) -> bool {
    let mut places: Map<i64, usize> = Map::default();
    places.extend(elements.iter().copied().zip(0..));
    let outcome = |writer: Writer| writer.number().map(|number| outcomes[number as usize]);
    let is_sound = |&element: &i64| {
        let writer = list.writer(element);
        writer.is_some_and(|writer| {
            writer.is_gone() || outcome(writer).is_some_and(|one| one != outcome::FAIL)
        })
    };
    let is_missing =
        |(element, writer)| outcome(writer) == Some(outcome::OK) && !places.contains_key(&element);
    let last = elements.last().and_then(|&last| list.writer(last));
    list.conflict.is_none()
        && elements.starts_with(&list.elements)
        && places.len() == elements.len()
        && elements.iter().all(is_sound)
        && !last.is_some_and(Writer::is_intermediate)
        && !list.appends().any(is_missing)
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
                list: Packed::default(),
                is_appended: false,
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
                    MopView::ReadList { elements, .. }
                        if chunk.kinds()[place] == OpType::Ok
                            && elements.len() > known.list.length =>
                    {
                        known.list = Packed::of(elements);
                    }
                    MopView::Append { .. } => known.is_appended = true,
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
            is_pinned: false,
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
                list: packed,
                is_appended: false,
                last: 7,
            };
            let late = LateKeys {
                keys: Arc::new(BTreeMap::from([(Key::Int(1), one)])),
                is_pinned: false,
            };
            for length in 0..=all.len() {
                assert_eq!(late.first(&Key::Int(1), length as u32), all[..length]);
            }
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
            let late = late.pinned();
            assert!(late.is_pinned(&Key::Int(1), 7) && !late.is_pinned(&Key::Int(1), 8));
            assert!(!late.is_pinned(&Key::Int(2), 7) && !late.shows(&Key::Int(1), &all));
        }
    }
}
