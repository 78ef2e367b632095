//! Dense numbers as types: transactions, versions, keys and positions that must not be mixed up.
//!
//! A checker numbers what it reads from 0 on and keeps columns by number. Each kind of number is a type of its own, and
//! a missing one is `None`: an `Option<Txn>` takes four bytes, the same as a `Txn`.
//!
//! ```
//! use seatrial_cycles::Txn;
//!
//! let writers: Vec<Option<Txn>> = vec![None, Some(Txn::new(7))];
//! assert_eq!(writers[1].map(Txn::index), Some(7));
//! assert_eq!(size_of::<Option<Txn>>(), size_of::<u32>());
//! ```

/// Defines a type for dense numbers: `dense_id! { /// What it numbers. pub Name }`.
///
/// The type has `new`, `get`, `index` and `all`, is ordered as its numbers, and takes four bytes with or without an
/// `Option`.
#[macro_export]
macro_rules! dense_id {
    ($(#[$documentation:meta])* $visibility:vis $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        $visibility struct $name(::std::num::NonZeroU32);

        #[allow(dead_code, reason = "not every kind of number needs every method")]
        impl $name {
            /// The id with this number; `u32::MAX` is not a number.
            #[inline]
            $visibility const fn new(number: u32) -> $name {
                // One more than the number, so that 0 is free for `None` and ids are ordered as their numbers.
                match ::std::num::NonZeroU32::new(number.wrapping_add(1)) {
                    Some(above) => $name(above),
                    None => panic!("u32::MAX is not the number of an id"),
                }
            }

            /// Its number.
            #[inline]
            $visibility const fn get(self) -> u32 {
                // Never wraps; saves the check for overflow.
                self.0.get().wrapping_sub(1)
            }

            /// Its number as an index into a column.
            #[inline]
            $visibility const fn index(self) -> usize {
                self.get() as usize
            }

            /// The ids with the numbers 0 to `count - 1`.
            $visibility fn all(
                count: usize,
            ) -> impl DoubleEndedIterator<Item = $name> + ExactSizeIterator + Clone {
                let count = u32::try_from(count).expect("as many ids as 32 bits can number");
                (0..count).map($name::new)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.get())
            }
        }

        const _: () = assert!(size_of::<Option<$name>>() == size_of::<u32>());
    };
}

dense_id! {
    /// A transaction of a table, numbered in the order of invocations (or as the file lists them).
    pub Txn
}
dense_id! {
    /// A version of a key: one value that a key has had. Numbered over all keys of a table.
    pub Version
}
dense_id! {
    /// A key of a table, numbered in order of appearance. [`Key`](seatrial_history::Key) is the name that the history has for it.
    pub KeyId
}
dense_id! {
    /// A position in the history that a checker reads: operations are numbered from 0 on, without gaps.
    pub Position
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_as_their_numbers() {
        let all: Vec<Txn> = Txn::all(3).collect();
        assert_eq!(all, [Txn::new(0), Txn::new(1), Txn::new(2)]);
        assert!(all.is_sorted());
        assert!(None < Some(all[0]));
        assert_eq!(Txn::new(u32::MAX - 1).get(), u32::MAX - 1);
        assert_eq!(format!("{:?}", Version::new(4)), "Version(4)");
    }

    #[test]
    #[should_panic(expected = "not the number of an id")]
    fn the_highest_number_is_refused() {
        let _ = KeyId::new(u32::MAX);
    }
}
