//! Late keys: keys that are used again after they were closed.

use super::Windows;
use super::list_table::{AppendList, AppendPair, ElementWriter, ListId, ListTable};
use seatrial_checker::ClosedKeys;
use seatrial_history::FixedMap;
use seatrial_history::chunk::{MopView, ValueView};
use seatrial_history::leb128::{put, take, unzigzag, zigzag};
use seatrial_history::{Chunk, Fold, Key, OpType, Order};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Keys that are used again after `idle_chunks` without them.
///
/// Windows close an idle key and free its transactions (see [`super::window_record::WindowRecord`]). A later use of such a
/// key would need them again, and every transaction between. So when a key is used late, the history is read once more. The
/// pass of [`LateKeyFold`] collects the longest list of late reads, about 1.3 bytes per element. When a window closes one of
/// these keys, its final list is known in advance: appends that only a late read shows are placed as if they had been read in
/// time, so each transaction is checked with all its dependencies, and of the list only its length is kept
/// ([`LateKeys::complete`]).
///
/// A key without late appends: a late read of exactly that list adds no dependency that leads back to freed transactions. It
/// missed no append, so all its edges (*wr* from the last append) lead to the reader, which is checked later, and no cycle goes
/// through both. The read is compared with the list and not stored. Where a closed list is still in memory, because some of its
/// transactions are, a late read is stored as any other.
///
/// A key with late appends is reopened ([`super::gather::ListFoldState::reopen`]): its list starts with its earlier elements,
/// whose writers are gone. As long as all reads begin with these, every dependency on freed transactions leads away from
/// them, and none of them can be on a cycle with a later transaction.
///
/// So memory is that of the windows and of the late lists. If a late use does not fit (a read that misses an append or returns
/// another list, an element that is appended again), the history is read once more with all late keys kept open from the
/// beginning to their last use, which joins the windows in between; not if windows are a limit. The same is done at once if many
/// keys have late appends: then some of them are open at any time, and windows would not end.
#[derive(Clone, Default)]
pub(super) struct LateKeys {
    keys: Arc<BTreeMap<Key, LateKey>>,
    is_pinned: bool,
}

/// One late key.
struct LateKey {
    /// The longest late read.
    list: PackedList,
    /// Is it appended to late?
    is_appended: bool,
    /// The last chunk with an operation on it.
    last: u32,
}

/// A list of integers as LEB128 differences: one or two bytes per element for most lists.
#[derive(Default)]
struct PackedList {
    length: usize,
    bytes: Box<[u8]>,
}

impl PackedList {
    fn of(elements: &[i64]) -> PackedList {
        let mut bytes = Vec::new();
        let mut before = 0_i64;
        for &element in elements {
            put(&mut bytes, zigzag(element.wrapping_sub(before)));
            before = element;
        }
        let packed = PackedList {
            length: elements.len(),
            bytes: bytes.into(),
        };
        debug_assert!(
            packed.elements().eq(elements.iter().copied()),
            "packing loses nothing"
        );
        packed
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
    /// The same keys, kept open until their last use.
    pub(super) fn pinned(&self) -> LateKeys {
        let keys = Arc::clone(&self.keys);
        let is_pinned = true;
        LateKeys { keys, is_pinned }
    }

    /// Is this key kept open in these chunks?
    pub(super) fn is_pinned(&self, key: &Key, chunks: u32) -> bool {
        self.is_pinned && self.keys.get(key).is_some_and(|known| known.last >= chunks)
    }

    /// Is there no late key?
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Number of keys with late appends.
    pub(super) fn appended(&self) -> usize {
        let keys = self.keys.values();
        keys.filter(|known| known.is_appended).count()
    }

    /// The entry of a late key, unless late keys are kept open.
    fn late(&self, key: &Key) -> Option<&LateKey> {
        self.keys.get(key).filter(|_| !self.is_pinned)
    }

    /// Has the key late appends?
    pub(super) fn is_appended(&self, key: &Key) -> bool {
        self.late(key).is_some_and(|known| known.is_appended)
    }

    /// The first elements of the longest late read of a key.
    pub(super) fn first(&self, key: &Key, length: u32) -> Vec<i64> {
        let elements = self.late(key).into_iter();
        let elements = elements.flat_map(|known| known.list.elements());
        elements.take(length as usize).collect()
    }

    /// Has the key no late appends, and is this the list of its longest late read?
    pub(super) fn shows(&self, key: &Key, elements: &[i64]) -> bool {
        self.late(key).is_some_and(|known| {
            let list = &known.list;
            !known.is_appended
                && list.length == elements.len()
                && list.elements().eq(elements.iter().copied())
        })
    }

    /// The final lists of late keys among those that are `closing`: their elements if these are the list so far, else `None`.
    /// `running`: lists and elements of appends by open transactions.
    pub(super) fn complete(
        &self,
        table: &ListTable,
        closing: &[bool],
        running: &BTreeSet<(ListId, i64)>,
    ) -> BTreeMap<ListId, Option<Vec<i64>>> {
        let lists = table.lists.iter().zip(closing);
        let lists = lists.zip(ListId::all(table.lists.len()));
        let asked = lists.filter_map(|((list, &closing), at)| {
            let known = self.late(&list.key).filter(|_| closing)?;
            Some((at, known))
        });
        let asked: BTreeMap<ListId, &LateKey> = asked.collect();
        if asked.is_empty() {
            return BTreeMap::new();
        }
        let pairs = table.pairs_of(|at| asked.contains_key(&at));
        let unfinished = table.unfinished(|at| asked.contains_key(&at));
        let completed = asked.into_iter().map(|(at, known)| {
            let list = &table.lists[at.index()];
            let pairs = pairs.get(&at).map_or(&[][..], Vec::as_slice);
            let all: Vec<i64> = known.list.elements().collect();
            let is_known = |element: &i64| list.writer(*element).is_some();
            let length = if known.is_appended {
                all.iter().take_while(|element| is_known(element)).count()
            } else {
                all.len()
            };
            let (elements, rest) = all.split_at(length);
            // An append that only a later read shows, after appends that are yet to come.
            let is_passed = |element: &i64| is_known(element) || running.contains(&(at, *element));
            let is_final = !unfinished.contains(&at)
                && !rest.iter().any(is_passed)
                && is_final(list, elements, pairs, table.transactions.outcomes());
            (at, is_final.then(|| elements.to_vec()))
        });
        completed.collect()
    }
}

/// May these be the elements of the list so far, without an anomaly except cycles? They begin with its longest read; each
/// element was appended once, by a transaction that did not fail; the appends of each transaction are in its order; the last
/// element is not followed by another of its transaction; and no successful append is missing. (Whether an append of unknown
/// outcome that took effect is missing is known when the window is checked: `ListFoldState::show`.)
fn is_final(
    list: &AppendList,
    elements: &[i64],
    pairs: &[AppendPair],
    outcomes: &[OpType],
) -> bool {
    let mut places: FixedMap<i64, usize> = FixedMap::default();
    places.extend(elements.iter().copied().zip(0..));
    let outcome = |writer: ElementWriter| writer.number().map(|number| outcomes[number.index()]);
    let is_sound = |&element: &i64| {
        let writer = list.writer(element);
        writer.is_some_and(|writer| {
            writer.is_gone() || outcome(writer).is_some_and(|one| one != OpType::Fail)
        })
    };
    let is_missing =
        |(element, writer)| outcome(writer) == Some(OpType::Ok) && !places.contains_key(&element);
    let last = elements.last().and_then(|&last| list.writer(last));
    list.conflict.is_none()
        && elements.starts_with(&list.elements)
        && places.len() == elements.len()
        && elements.iter().all(is_sound)
        && !last.is_some_and(ElementWriter::is_intermediate)
        && !list.appends().any(is_missing)
        && pairs.iter().all(|pair| {
            let [one, next] = pair.elements.map(|element| places.get(&element));
            next.is_none_or(|next| one.is_some_and(|one| one < next))
        })
}

/// Collects [`LateKeys`], chunk by chunk in order: from the keys of each chunk, and from the operations of chunks with a late
/// key only.
pub(super) struct LateKeyFold(pub(super) Windows);

/// The uses of keys so far.
#[derive(Default)]
pub(super) struct KeyUses {
    /// Chunks so far, counted as windows count them, and operations since the last count.
    chunks: u32,
    uncounted: usize,
    /// The last chunk with each key that may still be open.
    named: BTreeMap<Key, u32>,
    closed: ClosedKeys,
    late: BTreeMap<Key, LateKey>,
}

/// Recently used keys, at least, before closed ones are moved to the compact set.
const NAMED_MIN: usize = 4_096;

impl KeyUses {
    fn apply(&mut self, chunk: &Chunk, windows: Windows) {
        let now = self.chunks;
        let keys = 0..chunk.key_count() as u32;
        let is_late: Vec<bool> = keys
            .map(|id| self.note_use(chunk.key(id), windows))
            .collect();
        if is_late.contains(&true) {
            self.apply_late(chunk, &is_late);
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

    /// Notes a use of the key in the next chunk; true if it is a late key.
    fn note_use(&mut self, key: &Key, windows: Windows) -> bool {
        let before = self.named.insert(key.clone(), self.chunks);
        let is_late = match before {
            Some(before) => before.saturating_add(windows.idle_chunks) < self.chunks,
            None => self.closed.contains(key),
        };
        if is_late {
            self.late.entry(key.clone()).or_insert_with(|| LateKey {
                list: PackedList::default(),
                is_appended: false,
                last: 0,
            });
        }
        let known = self.late.get_mut(key);
        known.map(|known| known.last = self.chunks).is_some()
    }

    /// Applies the operations of a chunk on late keys.
    fn apply_late(&mut self, chunk: &Chunk, is_late: &[bool]) {
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
                        known.list = PackedList::of(elements);
                    }
                    MopView::Append { .. } => known.is_appended = true,
                    _ => {}
                }
            }
        }
    }
}

impl Fold for LateKeyFold {
    type Accumulator = KeyUses;
    type Output = LateKeys;

    fn name(&self) -> String {
        "list-append, late keys".into()
    }

    fn order(&self) -> Order {
        Order::Linear
    }

    fn start(&self) -> KeyUses {
        KeyUses::default()
    }

    fn reduce(&self, looking: &mut KeyUses, chunk: &Chunk) -> ControlFlow<()> {
        looking.apply(chunk, self.0);
        ControlFlow::Continue(())
    }

    fn combine(&self, _: &mut KeyUses, _: KeyUses) -> ControlFlow<()> {
        // A linear fold has one accumulator.
        ControlFlow::Continue(())
    }

    fn finish(&self, looking: KeyUses) -> LateKeys {
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
            let packed = PackedList::of(&all);
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
