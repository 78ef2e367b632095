//! Two players and a ball that must come back, over networks that lose, repeat and reorder.

use crate::{Booted, World, WorldOptions, explore, same_twice};
use seatrial_machine::{
    DataFolder, Disk, Fault, FaultKind, Input, Link, LogName, Machine, NodeId, Output, Rng, Ticket,
    Time,
};
use std::time::Duration;

const A: NodeId = NodeId::server(1);
const B: NodeId = NodeId::server(2);
/// Strokes of one rally.
const STROKES: u64 = 60;
const PATIENCE: Duration = Duration::from_millis(20);

/// Planted bug of a player.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RallyBug {
    None,
    /// Hits a ball that came twice, twice.
    CountsTwice,
    /// Waits for ever for a ball that was lost.
    Waits,
    /// Forgets to note a stroke on its disk before the ball goes back.
    Forgets,
}

/// Hits balls with rising numbers; notes each stroke on disk before the ball goes back, so that a rally survives crashes.
struct Player {
    partner: NodeId,
    bug: RallyBug,
    /// The highest ball that was hit.
    hit: u64,
    /// The highest ball that was noted; it is thrown until the next one comes.
    noted: u64,
    strokes: u64,
    again_at: Option<Time>,
    closed: u32,
}

impl Player {
    fn boot(id: NodeId, data: &DataFolder, bug: RallyBug) -> Result<Booted<Player>, String> {
        let disk = data.log(LogName::MAIN).unwrap();
        let mut bytes = vec![0; disk.len() as usize];
        disk.read_at(0, &mut bytes).map_err(|e| e.to_string())?;
        let (notes, _) = bytes.as_chunks::<8>();
        let whole = notes.iter().map(|note| u64::from_le_bytes(*note));
        // A torn note is zero, or lower than the one before it.
        let whole: Vec<u64> = whole.scan(0, rising).collect();
        let machine = Player {
            partner: if id == A { B } else { A },
            bug,
            hit: whole.last().copied().unwrap_or(0),
            noted: whole.last().copied().unwrap_or(0),
            strokes: whole.len() as u64,
            again_at: None,
            closed: 0,
        };
        Ok(Booted::with_log(machine, whole.len() as u64 * 8))
    }

    fn hit(&mut self, ball: u64, out: &mut Vec<Output<()>>) {
        self.hit = ball;
        self.strokes += 1;
        self.again_at = None;
        let note = if self.bug == RallyBug::Forgets {
            Vec::new()
        } else {
            ball.to_le_bytes().to_vec()
        };
        out.push(Output::Append {
            log: LogName::MAIN,
            bytes: note,
            ticket: Ticket(ball),
        });
    }

    fn throw(&mut self, now: Time, out: &mut Vec<Output<()>>) {
        if self.noted > 0 {
            let message = self.noted.to_le_bytes().to_vec();
            let to = self.partner;
            out.push(Output::Send { to, message });
        }
        let is_over = self.noted == 0 || self.noted >= STROKES || self.bug == RallyBug::Waits;
        self.again_at = (!is_over).then_some(now + PATIENCE);
    }
}

fn rising(last: &mut u64, ball: u64) -> Option<u64> {
    (ball > *last && ball <= STROKES).then(|| {
        *last = ball;
        ball
    })
}

impl Machine for Player {
    type Request = ();
    type Reply = ();

    fn turn(&mut self, now: Time, input: Input<()>, out: &mut Vec<Output<()>>) {
        match input {
            Input::Request(..) if self.hit == 0 => self.hit(1, out),
            Input::Message { bytes, .. } => {
                let Ok(ball) = bytes.try_into().map(u64::from_le_bytes) else {
                    return;
                };
                let is_new = ball > self.hit || (self.bug == RallyBug::CountsTwice && ball > 1);
                if ball == STROKES {
                    self.again_at = None;
                } else if is_new {
                    self.hit(ball + 1, out);
                } else if self.noted == STROKES {
                    self.throw(now, out);
                }
            }
            Input::Appended(ticket) if ticket.0 == self.hit => {
                self.noted = ticket.0;
                self.throw(now, out);
            }
            Input::Wake => self.throw(now, out),
            _ => {}
        }
    }

    fn wake_at(&self) -> Option<Time> {
        self.again_at
    }
}

fn count_closed(player: &mut Player, _: Time, _: NodeId, _: &mut Vec<Output<()>>) {
    player.closed += 1;
}

fn court(seed: u64, options: WorldOptions, bug: RallyBug) -> World<Player> {
    let boot = move |id, data: &DataFolder| Player::boot(id, data, bug);
    let mut world = World::new(seed, options, boot);
    world.notify_closed(count_closed);
    world.add(A);
    world.add(B);
    world
}

/// A phase with trouble, then one without, in which the rally must come to its end.
fn play(seed: u64, bug: RallyBug) -> Result<World<Player>, String> {
    let mut rng = Rng::from_seed(seed).fork("play");
    let options = WorldOptions::swarm(&mut rng, &FaultKind::ALL);
    let mut world = court(seed, options, bug);
    world.request(A, Ticket(0), ());
    for _ in 0..30 {
        let node = *rng.pick(&[A, B]);
        let fault = match rng.below(7) {
            0 => Fault::Kill(node),
            1 => Fault::Restart(node),
            2 => Fault::Pause(node),
            3 => Fault::Resume(node),
            4 => Fault::Cut(vec![Link { from: A, to: B }]),
            5 => Fault::Reset(vec![Link { from: A, to: B }]),
            _ => Fault::Heal,
        };
        world.apply(&fault);
        let pause = rng.exponential(Duration::from_millis(10));
        world.run_until(world.now() + pause);
    }
    world.calm();
    if world.machine(A).is_some_and(|player| player.hit == 0) {
        world.request(A, Ticket(1), ());
    }
    world.run_until(world.now() + Duration::from_mins(1));
    let [a, b] = [A, B].map(|node| world.machine(node).unwrap());
    if a.hit.max(b.hit) != STROKES {
        return Err(format!("the rally ends at {} and {}", a.hit, b.hit));
    }
    if a.strokes + b.strokes != STROKES {
        let strokes = a.strokes + b.strokes;
        return Err(format!("{strokes} strokes in a rally of {STROKES}"));
    }
    Ok(world)
}

#[test]
fn a_rally_comes_to_its_end_when_the_trouble_does() {
    let found = explore(0..400, |seed| play(seed, RallyBug::None).map(|_| ()));
    assert_eq!((found.tried, found.failure), (400, None));
}

#[test]
fn each_planted_bug_is_found_within_its_seeds() {
    for (bug, seeds) in [
        (RallyBug::CountsTwice, 5),
        (RallyBug::Waits, 5),
        (RallyBug::Forgets, 20),
    ] {
        let found = explore(0..seeds, |seed| play(seed, bug).map(|_| ()));
        let (seed, reason) = found.failure.unwrap_or_else(|| panic!("{bug:?} hides"));
        assert_eq!(play(seed, bug).err(), Some(reason), "{bug:?} is replayed");
    }
}

#[test]
fn the_same_seed_plays_the_same_rally() {
    let fingerprints = (0..20).map(|seed| {
        same_twice(seed, |seed| {
            let world = play(seed, RallyBug::None).unwrap();
            (world.fingerprint(), world.turns(), world.now())
        })
    });
    let mut fingerprints: Vec<_> = fingerprints.collect();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 20, "other seeds, other rallies");
}

#[test]
fn both_ends_see_a_reset_and_the_survivor_sees_a_kill() {
    let mut world = court(1, WorldOptions::default(), RallyBug::None);
    let closed = |world: &World<Player>, node| world.machine(node).unwrap().closed;
    world.apply(&Fault::Reset(Link::both(A, B).into()));
    world.run_until(Time::from_milliseconds(1));
    assert_eq!(
        (closed(&world, A), closed(&world, B)),
        (0, 0),
        "no messages yet"
    );

    world.request(A, Ticket(0), ());
    while world.machine(B).unwrap().hit < 10 {
        world.step();
    }
    world.apply(&Fault::Reset(Link::both(A, B).into()));
    world.run_until(world.now() + Duration::from_millis(1));
    assert_eq!((closed(&world, A), closed(&world, B)), (1, 1));

    while world.machine(B).unwrap().hit < 30 {
        world.step();
    }
    world.apply(&Fault::Kill(A));
    world.apply(&Fault::Restart(A));
    world.run_until(world.now() + Duration::from_millis(1));
    assert_eq!((closed(&world, A), closed(&world, B)), (0, 2));
    while world.step() {}
    assert_eq!(
        world
            .machine(A)
            .unwrap()
            .hit
            .max(world.machine(B).unwrap().hit),
        STROKES
    );
}
