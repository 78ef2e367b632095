//! Every order of the steps in which a publisher leaves a message and a recorder goes to sleep.

use super::super::command_queue::Wakeup;
use super::super::publication_slot::PublicationSlot;
use super::super::{RecorderOptions, locked};
use crate::Batch;
use std::sync::Arc;
use std::time::Duration;

/// In which order the recorder goes to sleep.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// As it is.
    SayThenLook,
    /// The mistake.
    LookThenSay,
}

/// Two threads, one step at a time: the real wakeup and slot, and what each thread remembers between its steps.
struct Pair {
    wakeup: Wakeup,
    slot: Arc<PublicationSlot>,
    order: Order,
    /// What the recorder saw.
    idle: bool,
    /// It would be asleep for ever, if it were not woken.
    asleep: bool,
}

/// Steps of each of the two.
const STEPS: usize = 3;

impl Pair {
    fn new(order: Order) -> Pair {
        Pair {
            wakeup: Wakeup::default(),
            slot: PublicationSlot::new(1, RecorderOptions::default()),
            order,
            idle: false,
            asleep: false,
        }
    }

    /// `Publication::offer`: two messages, the second after the first's look at the wakeup.
    fn publisher(&mut self, step: usize) {
        if step == 1 {
            if self.wakeup.is_sleep_planned() {
                self.notify();
            }
            return;
        }
        let mut filling = locked(&self.slot.filling);
        let batch = filling.batch.get_or_insert_with(Batch::default);
        assert!(batch.push(0, b"a message"));
        self.slot.count();
        drop(filling);
        if step == 2 && self.wakeup.is_sleep_planned() {
            self.notify();
        }
    }

    fn notify(&mut self) {
        self.wakeup.notify();
        self.asleep = false;
    }

    /// `Recorder::sleep`, with no patience: what remains without a ring is sleep.
    fn recorder(&mut self, step: usize) {
        match (step, self.order) {
            (0, Order::SayThenLook) | (1, Order::LookThenSay) => self.wakeup.want(true),
            (1, Order::SayThenLook) | (0, Order::LookThenSay) => {
                self.idle = self.slot.is_drained();
            }
            _ => {
                let sleeps = self.idle && !self.wakeup.is_notified();
                self.asleep = sleeps;
                if !sleeps {
                    self.wakeup.sleep(Some(Duration::ZERO));
                    self.wakeup.want(false);
                }
            }
        }
    }
}

/// Orders of all steps in which a message is left beside a recorder that sleeps.
fn left_lying(order: Order) -> usize {
    let orders = 0..1_u32 << (2 * STEPS);
    let orders = orders.filter(|bits| bits.count_ones() as usize == STEPS);
    let lying = orders.filter(|bits| {
        let mut pair = Pair::new(order);
        let mut steps = [0, 0];
        for turn in 0..2 * STEPS {
            let who = (bits >> turn & 1) as usize;
            match who {
                0 => pair.publisher(steps[0]),
                _ => pair.recorder(steps[1]),
            }
            steps[who] += 1;
        }
        pair.asleep && !pair.slot.is_drained()
    });
    lying.count()
}

#[test]
fn no_order_of_steps_leaves_a_message_beside_a_sleeping_recorder() {
    assert_eq!(left_lying(Order::SayThenLook), 0);
    assert!(left_lying(Order::LookThenSay) > 0, "the mistake is found");
}
