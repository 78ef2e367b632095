//! A map by elements of collections.

use super::dense_table::DenseTable;
use super::element::Element;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values by element. Integers, which are mostly dense, are found in a [`DenseTable`]; the values are in one column, in the
/// order in which their elements came: no more than the value and some bytes for each element.
pub(super) struct ElementMap<T> {
    integers: DenseTable<u32>,
    texts: BTreeMap<Arc<str>, u32>,
    values: Vec<T>,
}

impl<T> Default for ElementMap<T> {
    fn default() -> ElementMap<T> {
        ElementMap {
            integers: DenseTable::default(),
            texts: BTreeMap::new(),
            values: Vec::new(),
        }
    }
}

impl<T> ElementMap<T> {
    /// The number of an element.
    pub(super) fn number(&self, element: &Element) -> Option<u32> {
        match element {
            Element::Int(number) => self.integers.get(*number),
            Element::Other(text) => self.texts.get(text).copied(),
        }
    }

    /// The number of an integer.
    #[inline]
    pub(super) fn number_of(&self, integer: i64) -> Option<u32> {
        self.integers.get(integer)
    }

    pub(super) fn contains(&self, element: &Element) -> bool {
        self.number(element).is_some()
    }

    pub(super) fn get_mut(&mut self, element: &Element) -> Option<&mut T> {
        let number = self.number(element)?;
        Some(&mut self.values[number as usize])
    }

    /// The value of an element, which is `absent` at first.
    pub(super) fn entry(&mut self, element: &Element, absent: T) -> &mut T {
        let number = self.number(element).unwrap_or_else(|| {
            let number = self.values.len() as u32;
            assert!(number != u32::MAX, "2^32 elements are more than fit");
            match element {
                Element::Int(integer) => self.integers.insert(*integer, number),
                Element::Other(text) => _ = self.texts.insert(Arc::clone(text), number),
            }
            self.values.push(absent);
            number
        });
        &mut self.values[number as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// All values, in the order in which their elements came.
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    pub(super) fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// All elements with their values, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Element, &T)> {
        let integers = self.integers.iter();
        let integers = integers.map(|(integer, number)| (Element::Int(integer), number));
        let texts = self.texts.iter();
        let texts = texts.map(|(text, number)| (Element::Other(Arc::clone(text)), *number));
        let all = integers.chain(texts);
        all.map(|(element, number)| (element, &self.values[number as usize]))
    }

    /// The same as a list, which takes some 32 bytes for each element.
    pub(super) fn sorted(&self) -> Vec<(Element, &T)> {
        let all: Vec<(Element, &T)> = self.iter().collect();
        debug_assert!(all.is_sorted_by(|one, next| one.0 < next.0));
        debug_assert!(all.len() == self.values.len(), "each element has one value");
        all
    }
}
