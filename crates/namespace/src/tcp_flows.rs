//! The TCP connections that pass through a switch, so that they can be reset.

use crate::ip_frame::{FIN, IpFrame, RST, SYN, TcpHeader};
use seatrial_machine::Link;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// An address and port.
type End = (Ipv4Addr, u16);

/// The connections of a switch, at most [`FLOWS_MAX`]; beyond that closed ones are forgotten first, then those that were
/// silent for the longest time.
///
/// A reset must have the sequence number that its receiver expects, which is what the receiver acknowledged last. If that changes
/// while the reset is on its way, the receiver answers with an acknowledgement, and gets another reset with that number.
#[derive(Debug, Default)]
pub(crate) struct TcpFlows {
    flows: BTreeMap<[End; 2], Flow>,
    /// Number of the last packet.
    clock: u64,
}

/// One connection; ends are in the order of the key.
#[derive(Debug)]
struct Flow {
    /// The link from the first end to the second.
    link: Link,
    /// What each end expects next.
    expected: [Option<u32>; 2],
    has_ended: [bool; 2],
    /// Has it been reset? Then nothing passes, and whatever an end sends is answered with a reset.
    is_reset: bool,
    /// Number of its last packet.
    seen: u64,
}

/// What to do with a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SegmentFate {
    /// It passes.
    Passes,
    /// Its connection was reset: the frame goes back to the sender instead.
    Refused(Option<IpFrame>),
}

/// Most connections that are remembered.
const FLOWS_MAX: usize = 16_384;

impl TcpFlows {
    /// Notes a segment that was sent over a link, and says whether it passes.
    pub(crate) fn note(&mut self, frame: &IpFrame, tcp: TcpHeader, link: Link) -> SegmentFate {
        let from = (frame.source(), tcp.from_port);
        let to = (frame.destination(), tcp.to_port);
        let side = usize::from(from > to);
        let key = if side == 0 { [from, to] } else { [to, from] };
        let opens = tcp.flags & SYN != 0 && tcp.acknowledged.is_none();
        if opens || !self.flows.contains_key(&key) {
            if tcp.flags & RST != 0 {
                return SegmentFate::Passes;
            }
            self.make_room();
            let forward = Link {
                from: if side == 0 { link.from } else { link.to },
                to: if side == 0 { link.to } else { link.from },
            };
            self.flows.insert(key, Flow::new(forward));
        }
        self.clock += 1;
        let Some(flow) = self.flows.get_mut(&key) else {
            return SegmentFate::Passes;
        };
        flow.seen = self.clock;
        if flow.is_reset {
            let answer = tcp.acknowledged.filter(|_| tcp.flags & RST == 0);
            return SegmentFate::Refused(answer.map(|sequence| IpFrame::reset(to, from, sequence)));
        }
        if tcp.acknowledged.is_some() {
            flow.expected[side] = tcp.acknowledged;
        }
        flow.has_ended[side] |= tcp.flags & FIN != 0;
        if tcp.flags & RST != 0 {
            self.flows.remove(&key);
        }
        SegmentFate::Passes
    }

    /// Resets the open connections that use one of these links; returns the resets to be delivered to their ends, in pairs.
    pub(crate) fn reset(&mut self, links: &[Link]) -> Vec<(Link, [IpFrame; 2])> {
        let mut resets = Vec::new();
        for ([first, second], flow) in &mut self.flows {
            let back = Link {
                from: flow.link.to,
                to: flow.link.from,
            };
            let is_named = links.contains(&flow.link) || links.contains(&back);
            let (true, false, [Some(one), Some(two)]) = (is_named, flow.is_over(), flow.expected)
            else {
                continue;
            };
            flow.is_reset = true;
            let to_first = IpFrame::reset(*second, *first, one);
            let to_second = IpFrame::reset(*first, *second, two);
            resets.push((flow.link, [to_first, to_second]));
        }
        resets
    }

    fn make_room(&mut self) {
        if self.flows.len() < FLOWS_MAX {
            return;
        }
        self.flows.retain(|_, flow| !flow.is_over());
        if self.flows.len() < FLOWS_MAX {
            return;
        }
        let mut seen: Vec<u64> = self.flows.values().map(|flow| flow.seen).collect();
        seen.sort_unstable();
        let middle = seen[seen.len() / 2]; // half of them at once, so that the next call is far away
        self.flows.retain(|_, flow| flow.seen > middle);
    }
}

impl Flow {
    fn new(link: Link) -> Flow {
        Flow {
            link,
            expected: [None; 2],
            has_ended: [false; 2],
            is_reset: false,
            seen: 0,
        }
    }

    /// Was it reset, or closed by both ends?
    fn is_over(&self) -> bool {
        self.is_reset || self.has_ended == [true; 2]
    }
}
