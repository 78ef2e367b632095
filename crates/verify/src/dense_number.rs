//! Dense numbers that may be missing: an `Option` of one takes four bytes, the same as the number.
//!
//! The verifier shares no code with the checkers, so it has types of its own for what their tables number.

/// Defines a type for dense numbers below `u32::MAX`: `dense_number! { /// What it numbers. Name }`.
macro_rules! dense_number {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(transparent)]
        pub(crate) struct $name(::std::num::NonZeroU32);

        impl $name {
            /// The number as this type; `u32::MAX` is none.
            #[inline]
            pub(crate) fn new(number: u32) -> $name {
                // One more, so that 0 is free for a missing one, and the order is that of the numbers.
                let above = ::std::num::NonZeroU32::new(number.wrapping_add(1));
                $name(above.expect("u32::MAX numbers nothing"))
            }

            #[inline]
            pub(crate) fn get(self) -> u32 {
                self.0.get() - 1
            }
        }

        const _: () = assert!(size_of::<Option<$name>>() == size_of::<u32>());
    };
}

dense_number! {
    /// A transaction of the table, in the order of their places.
    TransactionNumber
}
dense_number! {
    /// A place in an order that a certificate has.
    OrderPlace
}
dense_number! {
    /// A name of a key or a process, in the order of appearance.
    NameNumber
}
dense_number! {
    /// A line of transactions of which each follows the one before.
    LineNumber
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_and_ordered() {
        for number in [0, 1, 7, u32::MAX - 1] {
            assert_eq!(OrderPlace::new(number).get(), number);
        }
        assert!(None < Some(OrderPlace::new(0)) && OrderPlace::new(0) < OrderPlace::new(1));
    }
}
