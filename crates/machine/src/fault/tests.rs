use super::*;

const N1: NodeId = NodeId::server(1);
const N2: NodeId = NodeId::server(2);
const C0: NodeId = NodeId::client(0);

/// One fault of each row, with the numbers that `choose` takes from their ranges.
fn one_of_each(choose: fn(&RangeInclusive<i64>) -> i64) -> Vec<Fault> {
    let links = Link::both(N1, N2);
    let fault = |info: &FaultInfo| {
        let subject = match info.make {
            Make::System(_) => FaultSubject::System,
            Make::Node(_) | Make::Trouble(_) => FaultSubject::Node(N1),
            Make::Links(_) | Make::Disturbance(_) => FaultSubject::Links(&links),
        };
        let numbers = info.parameters.iter().map(|one| choose(&one.range));
        let numbers: Vec<i64> = numbers.collect();
        let fault = info.fault(subject, &numbers).unwrap();
        let parts = fault.parts();
        assert_eq!((parts.info.name, parts.subject), (info.name, subject));
        assert_eq!(parts.numbers, numbers, "{}", info.name);
        assert_eq!(
            info.template.matches("{}").count(),
            numbers.len(),
            "{}",
            info.name
        );
        fault
    };
    FAULTS.iter().map(fault).collect()
}

#[test]
fn each_row_makes_the_fault_that_has_its_name_and_numbers() {
    let mut names: Vec<&str> = FAULTS.iter().map(|info| info.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FAULTS.len(), "each name once");
    for choose in [
        |range: &RangeInclusive<i64>| *range.start(),
        |range: &RangeInclusive<i64>| *range.end(),
    ] {
        let faults = one_of_each(choose);
        for (at, fault) in faults.iter().enumerate() {
            assert!(!faults[..at].contains(fault), "{fault} is there twice");
        }
    }
    let bit_rot = FaultInfo::named("bit-rot").unwrap();
    for (subject, numbers) in [
        (FaultSubject::System, &[3][..]),
        (FaultSubject::Node(N1), &[]),
        (FaultSubject::Node(N1), &[3, 3]),
        (FaultSubject::Node(N1), &[0]),
        (FaultSubject::Node(N1), &[1_000_001]),
    ] {
        assert_eq!(bit_rot.fault(subject, numbers), None, "{numbers:?}");
    }
}

#[test]
fn each_lasting_fault_is_mended_by_exactly_one_other() {
    let faults = one_of_each(|range| *range.end());
    for fault in &faults {
        let lasts = matches!(fault.effect(), FaultEffect::Begins(_));
        let mending = fault.mending();
        assert_eq!(mending.is_some(), lasts, "{fault}");
        let Some(mending) = mending else { continue };
        assert!(!mending.is_breaking(), "{mending}");
        for other in faults.iter().chain([&Fault::right_clock(N1)]) {
            let ended = matches!(other.effect(), FaultEffect::Ends(_)) && other.ends(fault);
            assert_eq!(ended, *other == mending, "{other} ends {fault}");
        }
    }
    let (pause, kill) = (Fault::Pause(N1), Fault::Kill(N1));
    assert!(kill.ends(&pause) && !pause.ends(&kill));
    assert!(!Fault::Kill(N2).ends(&pause), "of another node");
    let cut = Fault::Cut(Link::both(N1, N2).to_vec());
    assert!(!cut.ends(&cut), "one cut leaves the other cut");
    assert!(!Fault::right_clock(N1).is_breaking());
}

#[test]
fn faults_have_words() {
    let links = Link::both(N1, N2).to_vec();
    let delay = Duration::from_millis(5);
    let jitter = Duration::from_millis(1);
    let slow = Fault::Disturb {
        links,
        how: Disturbance::Slow { delay, jitter },
    };
    assert_eq!(slow.to_string(), "slow n1↔n2 by 5ms ± 1ms");
    let skew = Fault::Skew {
        node: N1,
        offset_ns: -3,
        rate_ppm: 7,
    };
    assert_eq!(skew.to_string(), "skew n1 by -3 ns and 7 ppm");
    let rot = Fault::BitRot { node: N1, bits: 3 };
    assert_eq!(rot.to_string(), "bit-rot n1, 3 bits");
    assert_eq!(Fault::Heal.to_string(), "heal");
}

#[test]
fn links_have_short_names() {
    let link = |from, to| Link { from, to };
    let some = name_links(&[link(N1, N2), link(C0, N1), link(N2, N1)]);
    assert_eq!(some, "n1↔n2 c0→n1");
    let many = (0..10).flat_map(|n| Link::both(NodeId::client(n), N1));
    let many = name_links(&many.collect::<Vec<_>>());
    assert!(many.ends_with("c5 and 4 more"), "{many}");
}

#[test]
fn damaged_packets_are_missing_like_lost_ones() {
    let missing = |lose, corrupt| {
        let condition = LinkCondition {
            lose,
            corrupt,
            ..LinkCondition::default()
        };
        condition.missing_percent()
    };
    let cases = [(0, 0), (30, 0), (0, 30), (50, 50), (100, 100), (1, 100)];
    let all = cases.map(|(lose, corrupt)| missing(lose, corrupt));
    assert_eq!(all, [0, 30, 30, 75, 100, 100]);
}

#[test]
fn a_flapping_link_fails_in_every_other_phase() {
    let ms = Duration::from_millis;
    let mut condition = LinkCondition::default();
    assert_eq!(condition.down_for(ms(7)), Duration::ZERO);
    condition.disturb(Disturbance::Flap { period: ms(10) });
    let down = [0, 3, 9, 10, 15, 19, 20, 29, 30].map(|at| condition.down_for(ms(at)).as_millis());
    assert_eq!(down, [10, 7, 1, 0, 0, 0, 10, 1, 0]);
    condition.disturb(Disturbance::Flap {
        period: Duration::ZERO,
    });
    assert_eq!(condition.down_for(Duration::from_nanos(1)), Duration::ZERO);
    assert!(condition.is_disturbed());
}
