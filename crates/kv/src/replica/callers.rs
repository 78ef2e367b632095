//! Clients that wait at this node for the result of a command.

use super::ReplicaOptions;
use super::reply_budget::ReplyBudget;
use crate::store_command::OpenRequest;
use seatrial_machine::{NodeId, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// A caller without a result for this long is forgotten: its client has given up.
const PATIENCE: Duration = Duration::from_mins(2);
/// Bound of hellos that wait.
const HELLOS_MAX: usize = 4_096;

/// The clients whose commands are on their way through the log, by what identifies the command when it comes back.
#[derive(Debug)]
pub(crate) struct Callers {
    /// This node and its start: commands of others have other callers.
    owner: (NodeId, u64),
    requests_max: usize,
    /// By session and request.
    requests: BTreeMap<(u64, u64), Caller>,
    /// By number of the open request.
    hellos: BTreeMap<u64, WaitingHello>,
    /// Numbers by endpoint and token: a hello that is sent again is the same one.
    tokens: BTreeMap<(NodeId, u64), u64>,
    next_hello: u64,
    swept: Time,
    /// Memory of the replies that they wait for.
    budget: ReplyBudget,
}

#[derive(Clone, Copy, Debug)]
struct Caller {
    endpoint: NodeId,
    since: Time,
    /// Bytes of the reply, about.
    length: usize,
}

/// A hello that waits for its session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingHello {
    pub(crate) endpoint: NodeId,
    pub(crate) token: u64,
    since: Time,
}

/// What to do with a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloAction {
    /// Send this command; the same one again for a hello that was sent again, because the first may be lost.
    Open(u64),
    /// Nothing: its command is on the way.
    Wait,
    /// Refuse it: too many wait.
    Refuse,
}

impl Callers {
    pub(crate) fn new(owner: (NodeId, u64), options: &ReplicaOptions) -> Callers {
        Callers {
            owner,
            requests_max: options.callers_max,
            requests: BTreeMap::new(),
            hellos: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next_hello: 0,
            swept: Time::ZERO,
            budget: ReplyBudget::new(options.replies_bytes_max / 2),
        }
    }

    /// Notes that an endpoint waits for a request, with a reply of about this length. False: too many wait.
    pub(crate) fn wait(
        &mut self,
        request: (u64, u64),
        endpoint: NodeId,
        length: usize,
        now: Time,
    ) -> bool {
        self.sweep(now);
        self.finished(request.0, request.1); // it was sent again
        if self.requests.len() >= self.requests_max || !self.budget.take(endpoint, length) {
            return false;
        }
        let caller = Caller {
            endpoint,
            since: now,
            length,
        };
        self.requests.insert(request, caller);
        true
    }

    /// The endpoint that waits for this request, which has a result now, and since when.
    pub(crate) fn finished(&mut self, session: u64, request: u64) -> Option<(NodeId, Time)> {
        let caller = self.requests.remove(&(session, request))?;
        self.budget.give_back(caller.endpoint, caller.length);
        Some((caller.endpoint, caller.since))
    }

    /// Handles a hello. `resend` is the time after which a command without a result may be lost.
    pub(crate) fn hello(
        &mut self,
        endpoint: NodeId,
        token: u64,
        now: Time,
        resend: Duration,
    ) -> HelloAction {
        if let Some(number) = self.tokens.get(&(endpoint, token)).copied() {
            return match self.hellos.get_mut(&number) {
                Some(hello) if now.since(hello.since) >= resend => {
                    hello.since = now;
                    HelloAction::Open(number)
                }
                _ => HelloAction::Wait,
            };
        }
        self.sweep(now);
        if self.hellos.len() >= HELLOS_MAX {
            return HelloAction::Refuse;
        }
        self.next_hello += 1;
        let number = self.next_hello;
        let hello = WaitingHello {
            endpoint,
            token,
            since: now,
        };
        self.hellos.insert(number, hello);
        self.tokens.insert((endpoint, token), number);
        HelloAction::Open(number)
    }

    /// The hello of this node whose session was opened or refused.
    pub(crate) fn opened(&mut self, open: &OpenRequest) -> Option<WaitingHello> {
        if (open.origin, open.start) != self.owner {
            return None;
        }
        let hello = self.hellos.remove(&open.number)?;
        self.tokens.remove(&(hello.endpoint, hello.token));
        Some(hello)
    }

    /// Forgets callers that have given up. Costs a pass, at most once in a while.
    fn sweep(&mut self, now: Time) {
        if now.since(self.swept) < PATIENCE / 4 {
            return;
        }
        self.swept = now;
        let budget = &mut self.budget;
        self.requests.retain(|_, caller| {
            let is_alive = now.since(caller.since) < PATIENCE;
            if !is_alive {
                budget.give_back(caller.endpoint, caller.length);
            }
            is_alive
        });
        let tokens = &mut self.tokens;
        self.hellos.retain(|_, hello| {
            let is_alive = now.since(hello.since) < PATIENCE;
            if !is_alive {
                tokens.remove(&(hello.endpoint, hello.token));
            }
            is_alive
        });
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.requests.len() <= self.requests_max);
        assert_eq!(self.hellos.len(), self.tokens.len());
        self.budget.check_invariants();
    }
}
