use super::*;
use crate::BoxFuture;
use seatrial_machine::NodeId;
use std::path::Path;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

const N1: NodeId = NodeId::server(1);
const N2: NodeId = NodeId::server(2);
const C0: NodeId = NodeId::client(0);

/// Two nodes that exist on paper only; n2 cannot be started again.
#[derive(Default)]
struct Paper {
    dead: Mutex<BTreeSet<NodeId>>,
    paused: Mutex<BTreeSet<NodeId>>,
}

type Answer<'a> = BoxFuture<'a, Result<InjectionResult, NodeError>>;

fn answer(changed: bool) -> Answer<'static> {
    let effect = if changed {
        InjectionResult::done("so it was")
    } else {
        InjectionResult::nothing("it was so before")
    };
    Box::pin(std::future::ready(Ok(effect)))
}

impl Nodes for Paper {
    fn ids(&self) -> &[NodeId] {
        &[N1, N2]
    }

    fn prepare<'a>(&'a self, _: &'a Path, _: &'a Mesh) -> BoxFuture<'a, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn start(&self, node: NodeId) -> Answer<'_> {
        if node == N2 {
            let limit = Duration::from_secs(1);
            let reason = "it sulks".into();
            return Box::pin(std::future::ready(Err(NodeError::NotFormed {
                limit,
                reason,
            })));
        }
        answer(self.dead.lock().unwrap().remove(&node))
    }

    fn inject<'a>(&'a self, fault: &'a Fault, _: Rng) -> Answer<'a> {
        match fault {
            Fault::Kill(node) => {
                self.paused.lock().unwrap().remove(node);
                answer(self.dead.lock().unwrap().insert(*node))
            }
            Fault::Pause(node) => answer(self.paused.lock().unwrap().insert(*node)),
            Fault::Resume(node) => answer(self.paused.lock().unwrap().remove(node)),
            _ => Box::pin(std::future::ready(Ok(InjectionResult::unsupported(fault)))),
        }
    }

    fn stop(&self, _: NodeId) -> BoxFuture<'_, Result<(), NodeError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

fn nemesis() -> (Nemesis, Mesh, Arc<Paper>) {
    let mesh = Mesh::new(Handle::current());
    let paper = Arc::new(Paper::default());
    let nodes = Arc::clone(&paper) as Arc<dyn Nodes>;
    let rng = Rng::from_seed(1);
    let nemesis = Nemesis::new(nodes, mesh.clone(), rng, Arc::default(), Instant::now());
    (nemesis, mesh, paper)
}

/// Which faults have ended, which bit.
fn summary(records: &[FaultRecord]) -> Vec<(String, bool, bool)> {
    let row = |record: &FaultRecord| {
        let bit = matches!(record.effect, InjectionResult::Done(_));
        (record.fault.to_string(), record.end.is_some(), bit)
    };
    records.iter().map(row).collect()
}

#[tokio::test]
async fn faults_begin_and_end() {
    let (mut nemesis, _mesh, paper) = nemesis();
    let faults = [
        Fault::Kill(N1),
        Fault::Kill(N1),
        Fault::Pause(N2),
        Fault::Restart(N1),
        Fault::Pause(N1),
        Fault::Kill(N1),
        Fault::Kill(N2),
        Fault::Restart(N2),
    ];
    for fault in &faults {
        nemesis.execute(fault).await;
    }
    let report = nemesis.finish();
    let expected = [
        ("kill n1", true, true),
        ("kill n1", false, false),
        ("pause n2", true, true),
        ("pause n1", true, true),
        ("kill n1", false, true),
        ("kill n2", false, true),
    ];
    let expected = expected.map(|(name, ended, bit)| (name.to_owned(), ended, bit));
    assert_eq!(summary(&report.records), expected);
    assert_eq!(paper.dead.lock().unwrap().len(), 2);
    // A failed restart is a warning; a kill of a dead node is not, because other kills had an effect.
    assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
    let warning = &report.warnings[0];
    assert!(
        warning.contains("restart n2 failed") && warning.contains("sulks"),
        "{warning}"
    );
}

#[tokio::test]
async fn open_pauses_and_cuts_are_healed_at_the_end() {
    let (mut nemesis, mesh, paper) = nemesis();
    nemesis.execute(&Fault::Pause(N1)).await;
    nemesis.execute(&Fault::Pause(N2)).await;
    nemesis.execute(&Fault::Resume(N2)).await;
    nemesis
        .execute(&Fault::Cut(Link::both(N1, N2).to_vec()))
        .await;
    nemesis.final_heal().await;
    assert!(paper.paused.lock().unwrap().is_empty());
    let report = nemesis.finish();
    assert!(report.records.iter().all(|record| record.end.is_some()));
    // No route joins the two, so the cut met nothing.
    let [warning] = &report.warnings[..] else {
        panic!("{:?}", report.warnings);
    };
    assert!(
        warning.starts_with("cut never took effect: cut n1↔n2: no traffic"),
        "{warning}"
    );
    drop(mesh);
}

/// A client that sends a byte through the mesh every few milliseconds.
async fn chatter(mesh: &Mesh) -> tokio::task::JoinHandle<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    mesh.add_node(N1, listener.local_addr().unwrap());
    let address = mesh.route(C0, N1).unwrap();
    tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut byte = [0];
        for _ in 0..2000 {
            let sent = stream.write_all(&[1]).await;
            if sent.is_err() || server.read(&mut byte).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(2)).await;
        }
    })
}

#[tokio::test]
async fn network_faults_bite_when_traffic_meets_them() {
    let (mut nemesis, mesh, _) = nemesis();
    let reset = Fault::Reset(Link::both(C0, N1).to_vec());
    let effect = nemesis.execute(&reset).await;
    assert!(
        matches!(effect, InjectionResult::Nothing(_)),
        "no connection yet: {effect:?}"
    );
    let chatter = chatter(&mesh).await;
    let links = vec![Link { from: C0, to: N1 }];
    while mesh.meter(&links).passed_bytes == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let disturb = |how| Fault::Disturb {
        links: links.clone(),
        how,
    };
    let slow = disturb(Disturbance::Slow {
        delay: Duration::from_millis(1),
        jitter: Duration::ZERO,
    });
    for fault in [slow, Fault::Calm, Fault::Cut(links)] {
        nemesis.execute(&fault).await;
        sleep(Duration::from_millis(100)).await;
    }
    nemesis.execute(&Fault::Heal).await;
    assert!(matches!(
        nemesis.execute(&reset).await,
        InjectionResult::Done(_)
    ));
    chatter.await.unwrap();
    let report = nemesis.finish();
    let bit: Vec<bool> = summary(&report.records)
        .into_iter()
        .map(|(_, _, bit)| bit)
        .collect();
    assert_eq!(bit, [false, true, true, true], "{:?}", report.records);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

#[tokio::test]
async fn proxies_duplicate_nothing_and_say_so() {
    let (mut nemesis, _mesh, _) = nemesis();
    let disturb = |how| Fault::Disturb {
        links: Link::both(C0, N1).to_vec(),
        how,
    };
    let duplicate = disturb(Disturbance::Duplicate { percent: 10 });
    let effect = nemesis.execute(&duplicate).await;
    let InjectionResult::Nothing(reason) = effect else {
        panic!("{effect:?}");
    };
    assert!(reason.contains("TCP discards copies"), "{reason}");
    // Damaged packets are lost ones, which a proxy turns into delays.
    let corrupt = disturb(Disturbance::Corrupt { percent: 10 });
    let effect = nemesis.execute(&corrupt).await;
    assert!(matches!(effect, InjectionResult::Done(_)), "{effect:?}");
}

#[test]
fn the_packets_that_a_switch_changed_are_counted() {
    let effect = |how, packets| {
        let fault = Fault::Disturb {
            links: vec![Link { from: C0, to: N1 }],
            how,
        };
        let meter = Meter {
            disturbed_bytes: 9_000,
            duplicated_packets: packets,
            corrupted_packets: packets,
            ..Meter::default()
        };
        network_effect(&fault, meter, NetworkKind::Netns)
    };
    let duplicate = Disturbance::Duplicate { percent: 20 };
    assert_eq!(
        effect(duplicate, 3),
        InjectionResult::done("duplicate c0→n1 20 %: 3 packets were sent twice")
    );
    let corrupt = Disturbance::Corrupt { percent: 20 };
    let InjectionResult::Done(text) = effect(corrupt, 1) else {
        panic!("one packet is an effect");
    };
    assert!(text.contains("1 packet had a bit flipped"), "{text}");
    assert!(matches!(effect(corrupt, 0), InjectionResult::Nothing(_)));
}

#[tokio::test]
async fn what_these_nodes_cannot_do_is_said() {
    let (mut nemesis, _mesh, _) = nemesis();
    let skew = |offset_ns| Fault::Skew {
        node: N1,
        offset_ns,
        rate_ppm: 0,
    };
    nemesis.execute(&skew(5)).await;
    nemesis.execute(&skew(0)).await;
    let rot = Fault::BitRot { node: N1, bits: 3 };
    nemesis.execute(&rot).await;
    let report = nemesis.finish();
    let names: Vec<&str> = report
        .records
        .iter()
        .map(|record| record.fault.name())
        .collect();
    assert_eq!(names, ["skew", "bit-rot"], "a right clock is no fault");
    let warnings = report.warnings.join("\n");
    assert!(
        warnings.contains("these nodes do not support the fault skew"),
        "{warnings}"
    );
    assert!(
        warnings.contains("these nodes do not support the fault bit-rot"),
        "{warnings}"
    );
}
