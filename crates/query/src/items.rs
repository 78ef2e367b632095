//! Kinds of items that questions go through.

use seatrial_history::OpView;
use std::marker::PhantomData;

/// A kind of items, without a lifetime, so that one question about borrowed items can go through one chunk after the other.
pub trait Items {
    /// An item.
    type Item<'a>;
}

/// Operations, borrowed from their chunk.
#[derive(Clone, Copy, Debug)]
pub struct Ops;

impl Items for Ops {
    type Item<'a> = OpView<'a>;
}

/// Items that own what they hold.
#[derive(Clone, Copy, Debug)]
pub struct Each<T>(PhantomData<fn(T)>);

impl<T> Items for Each<T> {
    type Item<'a> = T;
}
