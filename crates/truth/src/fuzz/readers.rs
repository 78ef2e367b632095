//! The readers under test: intact files of each format, and the commands that are run on damaged ones.

use super::mutate::FileShape;
use crate::limited_program::{End, Program, ended, text};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Events of generated histories: several chunks would take long, and one is read like many.
const EVENTS: &str = "400";

/// One file, or a folder of files, that a reader takes.
#[derive(Clone, Debug)]
pub(super) struct FuzzSample {
    /// The files, by names inside the folder of one input.
    pub(super) files: Vec<(PathBuf, Vec<u8>)>,
    /// The files to damage, one at a time.
    pub(super) damaged: Vec<usize>,
}

/// A format, and what reads it.
#[derive(Clone, Debug)]
pub(super) struct FuzzedReader {
    pub(super) name: &'static str,
    pub(super) shape: FileShape,
    pub(super) samples: Vec<FuzzSample>,
    /// Command lines; one is drawn for each input.
    pub(super) verbs: &'static [&'static [&'static str]],
    /// Is it a server, which runs until it gets a signal?
    pub(super) serves: bool,
}

/// Stands for the name of the damaged file.
pub(super) const DAMAGED: &str = "FILE";

/// Commands that are run on a history `h`.
const HISTORY: [&[&str]; 6] = [
    &["check", "h"],
    &["check", "--json", "h"],
    &["check", "--salvage", "h"],
    &["show", "h"],
    &["import", "h", "--out", "out.sea"],
    &["export", "--to", "jsonl", "h", "--out", "out.jsonl"],
];

/// Further commands that are run on a test file `h`.
const TEST_FILE: [&[&str]; 12] = [
    &["check", "h"],
    &["check", "--checker", "stats,g1", "h"],
    &["check", "--salvage", "h"],
    &["check", "--repair", "h"],
    &["check", "--record", "h"],
    &["show", "h"],
    &["show", "--salvage", "h"],
    &["show", "--attributes", "h"],
    &["show", "--results", "h"],
    &["import", "--salvage", "h", "--out", "out.sea"],
    &["export", "--to", "edn", "h", "--out", "out.edn"],
    &[
        "export",
        "--salvage",
        "--to",
        "jsonl",
        "h",
        "--out",
        "out.jsonl",
    ],
];

const CERTIFICATE: [&[&str]; 1] = [&["check", "h", "--verify", "c"]];

const ARCHIVE: [&[&str]; 12] = [
    &["archive", "list", "a"],
    &["archive", "describe", "a", "1"],
    &["archive", "replay", "a", "1"],
    &["archive", "replay", "a", "2", "--from-message", "30"],
    &["archive", "verify", "a"],
    &["archive", "verify", "a", "--repair"],
    &["archive", "checksum", "a"],
    &["archive", "repair-catalog", "a"],
    &["archive", "record", "a", "--extend", "2", "--file", "more"],
    &["archive", "copy", "a", "b"],
    &["archive", "truncate", "a", "1", "--to", "1000"],
    &["archive", "compact", "a"],
];

const PLAN: [&[&str]; 2] = [&["plan", "check", DAMAGED], &["plan", "show", DAMAGED]];

const STORE: [&[&str]; 1] = [&["node", "kv", "--data", "d", "--listen", "127.0.0.1:0"]];

/// Text formats of other checkers, as small as they come.
const PLUME: &str = "w(1,10,0,7)\nr(2,0,0,7)\nr(1,10,3,8)\nw(1,11,0,10)\nr(1,11,2,9)\n";
const AWDIT: &str = "w 1 1\nw 2 1\n-\nr 1 1\nw 1 2\n-\n=\nr 2 1\nr 1 2\n-\n=\n";
const VERISTRONG: &str = "5\n0 1 A 7 1\n0 1 A 7 2\n1 2 R 7 2 1 2\n1 2 A 8 1\n0 3 R 8 1 1\n";
const DBCOP_JSON: &str = "{\"data\": [[{\"events\": [{\"Write\": {\"variable\": 1, \"version\": 2}}], \"committed\": true}], \
                          [{\"events\": [{\"Read\": {\"variable\": 1, \"version\": 2}}, {\"Read\": {\"variable\": 2, \
                          \"version\": null}}], \"committed\": true}]]}";
const PORCUPINE: &str = "INFO  jepsen.util - 0\t:invoke\t:write\t1\nINFO  jepsen.util - 0\t:ok\t:write\t1\n\
                         INFO  jepsen.util - 1\t:invoke\t:read\tnil\nINFO  jepsen.util - 1\t:ok\t:read\t1\n\
                         INFO  jepsen.util - 2\t:invoke\t:cas\t[1 2]\nINFO  jepsen.util - 2\t:info\t:cas\t:timed-out\n";

const PORCUPINE_OPERATIONS: &str = "[{\"ClientId\":0,\"Input\":{\"Op\":1,\"Key\":\"x\",\"Value\":\"a\"},\"Call\":10,\"Output\":\
                                    {\"Value\":\"\"},\"Return\":30},{\"ClientId\":1,\"Input\":{\"Op\":0,\"Key\":\"x\",\
                                    \"Value\":\"\"},\"Call\":20,\"Output\":{\"Value\":\"a\"},\"Return\":40}]";
const CSV_EVENTS: &str = "process,type,f,value,time\n0,invoke,write,1,5\n0,ok,write,1,9\n1,invoke,cas,\"[1,2]\",10\n\
                          1,info,cas,\"[1,2]\",11\n2,invoke,read,,12\n2,ok,read,1,13\n";
const CSV_OPERATIONS: &str =
    "f,value,result,start,end,process\nread,,1,40,50,1\nwrite,1,,10,40,0\nwrite,2,,20,,2\n";

/// A sample of one file.
fn one(name: &str, bytes: Vec<u8>) -> FuzzSample {
    FuzzSample {
        files: vec![(name.into(), bytes)],
        damaged: vec![0],
    }
}

/// Makes whole files of every format with the program itself, in `folder`.
pub(super) fn readers(program: &Program, folder: &Path) -> Result<Vec<FuzzedReader>> {
    let maker = Maker { program, folder };
    let tests = maker.test_files()?;
    let mut readers = vec![FuzzedReader {
        name: "test file",
        shape: FileShape::Blocks(4_096),
        samples: tests,
        verbs: &TEST_FILE,
        serves: false,
    }];
    for (name, shape, samples) in maker.foreign()? {
        readers.push(FuzzedReader {
            name,
            shape,
            samples,
            verbs: &HISTORY,
            serves: false,
        });
    }
    let text = FileShape::Text;
    let mut add = |name, shape, samples, verbs, serves| {
        readers.push(FuzzedReader {
            name,
            shape,
            samples,
            verbs,
            serves,
        });
    };
    add(
        "certificate",
        text,
        maker.certificates()?,
        &CERTIFICATE[..],
        false,
    );
    add(
        "archive",
        FileShape::Blocks(0),
        maker.archive()?,
        &ARCHIVE[..],
        false,
    );
    add("plan", text, maker.plans()?, &PLAN[..], false);
    add(
        "store's log",
        FileShape::Blocks(0),
        maker.store()?,
        &STORE[..],
        true,
    );
    Ok(readers)
}

/// Makes samples.
struct Maker<'a> {
    program: &'a Program,
    folder: &'a Path,
}

/// Name, shape and samples of a foreign format.
type Foreign = (&'static str, FileShape, Vec<FuzzSample>);

impl Maker<'_> {
    /// Runs the program; answers with the file that it wrote.
    fn made(&self, words: &[&str], file: &str) -> Result<Vec<u8>> {
        self.program.succeed(self.folder, words)?;
        fs::read(self.folder.join(file)).with_context(|| file.to_owned())
    }

    /// Test files with all codecs and kinds of values, sealed and open, with and without results.
    fn test_files(&self) -> Result<Vec<FuzzSample>> {
        let mut samples = Vec::new();
        for workload in ["list-append", "rw-register", "register", "set", "queue"] {
            for codec in ["none", "lz4", "zstd"] {
                let file = format!("{workload}-{codec}.sea");
                let words = [
                    "generate",
                    workload,
                    "--ops",
                    EVENTS,
                    // Whether many concurrent operations are linearizable may take long to decide, however they are read.
                    "--concurrency",
                    "8",
                    "--codec",
                    codec,
                    "--out",
                    &file,
                ];
                samples.push(one("h", self.made(&words, &file)?));
            }
        }
        let name = "list-append-none.sea";
        let recorded = self.made(&["check", "--record", name], name)?;
        // As a killed writer leaves it: without its last roots.
        let open = recorded[..recorded.len() * 2 / 3].to_vec();
        samples.extend([one("h", recorded), one("h", open)]);
        Ok(samples)
    }

    fn foreign(&self) -> Result<Vec<Foreign>> {
        let export = |workload: &str, to: &str| {
            let (from, file) = (format!("{workload}-lz4.sea"), format!("{workload}.{to}"));
            let words = ["export", &from, "--to", to, "--out", &file];
            Ok::<_, anyhow::Error>(one("h", self.made(&words, &file)?))
        };
        let lists = ["list-append", "register", "queue"];
        let every = |to: &str| {
            lists
                .iter()
                .map(|name| export(name, to))
                .collect::<Result<Vec<_>>>()
        };
        let text = |text: &str| vec![one("h", text.as_bytes().to_vec())];
        let jepsen = [
            &include_bytes!("../../../interchange/tests/data/jepsen/version-0.jepsen")[..],
            include_bytes!("../../../interchange/tests/data/jepsen/version-1.jepsen"),
        ];
        let mut found = vec![
            ("EDN", FileShape::Text, every("edn")?),
            ("JSON lines", FileShape::Text, every("jsonl")?),
            ("JSON", FileShape::Text, every("json")?),
            (
                "test.jepsen",
                FileShape::Binary,
                jepsen.map(|it| one("h", it.to_vec())).to_vec(),
            ),
            ("Porcupine", FileShape::Text, text(PORCUPINE)),
            (
                "Porcupine, operations",
                FileShape::Text,
                text(PORCUPINE_OPERATIONS),
            ),
            ("CSV, events", FileShape::Text, text(CSV_EVENTS)),
            ("CSV, operations", FileShape::Text, text(CSV_OPERATIONS)),
            ("AWDIT", FileShape::Text, text(AWDIT)),
            ("VeriStrong", FileShape::Text, text(VERISTRONG)),
            ("dbcop JSON", FileShape::Text, text(DBCOP_JSON)),
        ];
        let mut plume = vec![export("rw-register", "plume")?];
        plume.extend(text(PLUME));
        found.push(("Plume", FileShape::Text, plume));
        found.push((
            "dbcop",
            FileShape::Binary,
            vec![export("rw-register", "dbcop")?],
        ));
        let name = "stamped.timekiller";
        let words = [
            "generate",
            "rw-register",
            "--ops",
            EVENTS,
            "--timestamps",
            "--fail",
            "0",
            "--info",
            "0",
            "--to",
            "timekiller",
        ];
        let stamped = self.made(&[&words[..], &["--out", name]].concat(), name)?;
        found.push(("TimeKiller", FileShape::Text, vec![one("h", stamped)]));
        found.push(("Cobra", FileShape::Binary, vec![cobra()]));
        Ok(found)
    }

    fn certificates(&self) -> Result<Vec<FuzzSample>> {
        let mut samples = Vec::new();
        for (workload, anomaly) in [
            ("list-append", None),
            ("list-append", Some("G1a")),
            ("rw-register", None),
        ] {
            let name = format!("{workload}-{}.sea", anomaly.unwrap_or("clean"));
            let mut words = vec!["generate", workload, "--ops", EVENTS, "--out", &name];
            if let Some(anomaly) = anomaly {
                words.extend(["--anomaly", anomaly, "--anomaly-rate", "0.05"]);
            }
            let history = self.made(&words, &name)?;
            let words = ["check", &name, "--certificate", "c"];
            // Its exit status is that of the verdict.
            self.program
                .run(self.folder, &words, Duration::from_mins(1))?;
            let certificate = fs::read(self.folder.join("c")).context("a certificate")?;
            fs::remove_file(self.folder.join("c"))?;
            samples.push(FuzzSample {
                files: vec![("c".into(), certificate), ("h".into(), history)],
                damaged: vec![0],
            });
        }
        Ok(samples)
    }

    /// Two recordings of several segments, the second one left open.
    fn archive(&self) -> Result<Vec<FuzzSample>> {
        let numbers: Vec<String> = (0..60)
            .map(|number| format!("message {number}\n"))
            .collect();
        let numbers = numbers.concat();
        fs::write(self.folder.join("more"), &numbers)?;
        let record = |more: [&str; 2]| {
            let mut words = vec!["archive", "record", "a", "--file", "more"];
            words.extend(more);
            self.program.succeed(self.folder, &words)
        };
        record(["--segment-length", "1024"])?;
        record(["--durability", "batch"])?;
        record(["--extend", "1"])?;
        let mut files = files_below(&self.folder.join("a"), Path::new("a"))?;
        files.push(("more".into(), numbers.into_bytes()));
        let damaged = (0..files.len() - 1).filter(|index| !files[*index].1.is_empty());
        let damaged = damaged.collect();
        Ok(vec![FuzzSample { files, damaged }])
    }

    fn plans(&self) -> Result<Vec<FuzzSample>> {
        let listed = self.program.succeed(self.folder, &["plan", "example"])?;
        let names = listed
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        names
            .map(|name| {
                let plan = self
                    .program
                    .succeed(self.folder, &["plan", "example", name])?;
                let name = if plan.starts_with('{') {
                    "p.json"
                } else {
                    "p.toml"
                };
                Ok(one(name, plan.into_bytes()))
            })
            .collect()
    }

    /// The log of a store that took some transactions.
    fn store(&self) -> Result<Vec<FuzzSample>> {
        let words = [
            "test", "kv", "--time", "1", "--rate", "300", "--faults", "none", "--out", "run",
        ];
        self.program
            .run(self.folder, &words, Duration::from_mins(1))?;
        let run = files_below(&self.folder.join("run"), Path::new(""))?;
        let logs = run.into_iter().filter(|(path, bytes)| {
            let has_blocks = bytes.starts_with(&seatrial_blocks::block::MAGIC);
            has_blocks && path.extension().is_none_or(|extension| extension != "sea")
        });
        let files: Vec<(PathBuf, Vec<u8>)> = logs
            .filter_map(|(path, bytes)| Some((Path::new("d").join(path.file_name()?), bytes)))
            .collect();
        anyhow::ensure!(
            !files.is_empty(),
            "a run of `test kv` left no log of its node"
        );
        let damaged = (0..files.len()).collect();
        Ok(vec![FuzzSample { files, damaged }])
    }
}

/// All files below a folder, with names below `base`.
fn files_below(folder: &Path, base: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let (path, name) = (entry.path(), base.join(entry.file_name()));
        if path.is_dir() {
            files.extend(files_below(&path, &name)?);
        } else {
            files.push((name, fs::read(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// Two sessions of Cobra: one writes, one reads.
fn cobra() -> FuzzSample {
    let log = |parts: &[(u8, &[i64])]| {
        let mut bytes = Vec::new();
        for (tag, numbers) in parts {
            bytes.push(*tag);
            numbers
                .iter()
                .for_each(|number| bytes.extend(number.to_be_bytes()));
        }
        bytes
    };
    let first = log(&[
        (b'S', &[1]),
        (b'W', &[11, 7, 70]),
        (b'C', &[1]),
        (b'S', &[3]),
    ]);
    let second = log(&[
        (b'S', &[2]),
        (b'R', &[1, 11, 7, 70]),
        (b'R', &[0xbebe_ebee, 0xbebe_ebee, 8, 0]),
        (b'W', &[12, 7, 71]),
        (b'C', &[2]),
    ]);
    FuzzSample {
        files: vec![("h/T1.log".into(), first), ("h/T2.log".into(), second)],
        damaged: vec![0, 1],
    }
}

/// Starts a program that serves, until it listens or ends; then ends it.
pub(super) fn serve(
    program: &Program,
    folder: &Path,
    words: &[&str],
    timeout: Duration,
) -> Result<(End, String)> {
    let mut command = program.command(folder, words);
    let (out, err) = (folder.join("stdout"), folder.join("stderr"));
    command.stdout(Stdio::from(fs::File::create(&out)?));
    command.stderr(Stdio::from(fs::File::create(&err)?));
    let mut child = command.spawn().context("seatrial cannot be started")?;
    let began = Instant::now();
    while began.elapsed() < timeout {
        if let Some(end) = ended(&mut child)? {
            return Ok((end, text(&err)?));
        }
        if text(&err)?.contains("listening") {
            child.kill()?;
            child.wait()?;
            return Ok((End::Exit(0), text(&err)?));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    child.wait()?;
    Ok((End::Timeout, text(&err)?))
}
