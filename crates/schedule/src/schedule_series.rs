//! All schedules of a file at all levels of some systems: what `seatrial schedule` does.

use crate::{
    Manner, MatrixRow, Schedule, ScheduleArguments, ScheduleBench, ScheduleError, ScheduleFile,
    ScheduleMatrix, ScheduleServer,
};
use seatrial_machine::unknown_name;
use seatrial_runner::time_name;
use seatrial_suite::{Report, SqlLevel, SqlSystem, Suite};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What was asked for, looked up: all mistakes of the arguments are found before a server starts.
pub struct ScheduleSeries<'a> {
    arguments: &'a ScheduleArguments,
    file: ScheduleFile,
    systems: Vec<ChosenSystem>,
    folder: PathBuf,
    /// Takes lines of output.
    say: Report,
    /// Takes messages for the user.
    complain: Report,
}

/// A suite, its sessions, and the levels that were asked for.
struct ChosenSystem {
    suite: &'static dyn Suite,
    sql: &'static dyn SqlSystem,
    version: String,
    levels: Vec<&'static SqlLevel>,
}

impl<'a> ScheduleSeries<'a> {
    /// Looks up schedules, systems and levels.
    pub fn new(
        arguments: &'a ScheduleArguments,
        suites: impl IntoIterator<Item = &'static dyn Suite>,
        say: Report,
        complain: Report,
    ) -> Result<ScheduleSeries<'a>, ScheduleError> {
        let mut file = match &arguments.file {
            Some(path) => ScheduleFile::open(path)?,
            None => ScheduleFile::hermitage(),
        };
        choose(&mut file, &arguments.names)?;
        let all = suites.into_iter();
        let all: Vec<_> = all
            .filter_map(|suite| Some((suite, suite.sql()?)))
            .collect();
        let systems = with_levels(arguments, systems(arguments, &all, complain)?)?;
        let folder = arguments
            .out
            .clone()
            .unwrap_or_else(|| Path::new("runs/schedule").join(time_name(SystemTime::now())));
        Ok(ScheduleSeries {
            arguments,
            file,
            systems,
            folder,
            say,
            complain,
        })
    }

    /// The schedules with their steps, and the levels of each system.
    pub fn list(&self) -> String {
        let mut text = String::new();
        for schedule in &self.file.schedules {
            let (name, anomaly, about) = (&schedule.name, &schedule.anomaly, &schedule.about);
            let _ = writeln!(text, "{name} ({anomaly}): {about}");
            for step in &schedule.steps {
                let _ = writeln!(text, "  {}: {}", step.session, step.sql);
            }
        }
        for system in &self.systems {
            let _ = writeln!(text, "{} ({})", system.suite.name(), system.version);
            for level in &system.levels {
                let _ = writeln!(text, "  {}", level.name);
            }
        }
        text
    }

    /// Executes all schedules, prints what was seen, and writes the page. Has an anomaly occurred?
    pub async fn run(&self) -> Result<bool, ScheduleError> {
        if self.folder.exists() {
            return Err(ScheduleError::Usage(format!(
                "{} already exists; choose another folder with --out",
                self.folder.display()
            )));
        }
        let mut rows = Vec::new();
        for system in &self.systems {
            self.of_system(system, &mut rows).await?;
        }
        let matrix = ScheduleMatrix {
            file: &self.file,
            rows,
        };
        if let Some(path) = &self.arguments.matrix {
            let page = matrix.markdown(&self.command(path));
            fs::write(path, page).map_err(|error| failed(path, error))?;
        }
        if self.arguments.json {
            (self.say)(format_args!("{:#}", matrix.json()));
            return Ok(matrix.has_anomaly());
        }
        (self.say)(format_args!("{}", matrix.text().trim_end()));
        for difference in matrix.differences() {
            (self.say)(format_args!("not as published: {difference}"));
        }
        if let Some(path) = &self.arguments.matrix {
            (self.say)(format_args!("written: {}", path.display()));
        }
        Ok(matrix.has_anomaly())
    }

    /// The command that writes the page again.
    fn command(&self, page: &Path) -> String {
        let arguments = self.arguments;
        let mut words = vec!["seatrial schedule".to_owned()];
        words.extend(arguments.names.iter().cloned());
        if let Some(file) = &arguments.file {
            words.push(format!("--file {}", file.display()));
        }
        if !arguments.system.is_empty() {
            words.push(format!("--system {}", arguments.system.join(",")));
        }
        if let Some(level) = &arguments.isolation {
            words.push(format!("--isolation {level:?}"));
        }
        words.push(format!("--matrix {}", page.display()));
        words.join(" ")
    }

    /// All levels of one system. A level without a server of its own is that of sessions of the last one.
    async fn of_system(
        &self,
        system: &ChosenSystem,
        rows: &mut Vec<MatrixRow>,
    ) -> Result<(), ScheduleError> {
        let mut running: Option<(ScheduleServer, PathBuf)> = None;
        for (number, level) in system.levels.iter().enumerate() {
            if let Some(old) = running.take_if(|_| level.has_own_server) {
                end(old).await?;
            }
            let (server, _) = match &mut running {
                Some(running) => running,
                none => none.insert(self.start(system, level, number).await?),
            };
            let mut bench = ScheduleBench::open(system.sql, server.address, level).await?;
            let mut manners = Vec::new();
            for schedule in &self.file.schedules {
                let run = self.one(system, level, &mut bench, schedule).await;
                manners.push(Some(run.map_err(|error| ScheduleError::At {
                    place: format!("{}, {}, {}", system.suite.name(), level.name, schedule.name),
                    error: Box::new(error),
                })?));
            }
            rows.push(MatrixRow {
                system: system.suite.name().to_owned(),
                version: system.version.clone(),
                level: level.name.to_owned(),
                manners,
            });
        }
        match running {
            Some(last) => end(last).await,
            None => Ok(()),
        }
    }

    async fn start(
        &self,
        system: &ChosenSystem,
        level: &SqlLevel,
        number: usize,
    ) -> Result<(ScheduleServer, PathBuf), ScheduleError> {
        let name = system.suite.name();
        let folder = self.folder.join(format!("{name}-{number}"));
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        let options = level.values();
        let server = ScheduleServer::start(system.suite, &options, &folder, self.complain).await;
        let server = server.map_err(|error| ScheduleError::At {
            place: name.to_owned(),
            error: Box::new(error),
        })?;
        Ok((server, folder))
    }

    async fn one(
        &self,
        system: &ChosenSystem,
        level: &SqlLevel,
        bench: &mut ScheduleBench<'_>,
        schedule: &Schedule,
    ) -> Result<Manner, ScheduleError> {
        let run = bench.run(schedule).await?;
        let manner = run.manner(schedule);
        if self.arguments.verbose && !self.arguments.json {
            let (system, level) = (system.suite.name(), level.name);
            let (name, anomaly) = (&schedule.name, &schedule.anomaly);
            (self.say)(format_args!(
                "{name} ({anomaly}), {system}, {level}: {manner}"
            ));
            for line in run.lines(schedule) {
                (self.say)(format_args!("  {line}"));
            }
            (self.say)(format_args!(""));
        }
        Ok(manner)
    }
}

/// Ends a server and removes its data; its log stays.
async fn end((server, folder): (ScheduleServer, PathBuf)) -> Result<(), ScheduleError> {
    server.stop().await?;
    let data = folder.join("n1");
    fs::remove_dir_all(&data).map_err(|error| failed(&data, error))
}

fn failed(path: &Path, error: std::io::Error) -> ScheduleError {
    ScheduleError::Io {
        path: path.to_owned(),
        error,
    }
}

/// Leaves the schedules that were asked for.
fn choose(file: &mut ScheduleFile, names: &[String]) -> Result<(), ScheduleError> {
    for name in names {
        let known = file.schedules.iter().map(|schedule| schedule.name.as_str());
        if !known.clone().any(|known| known == name) {
            let error = unknown_name("schedule", name, known);
            return Err(ScheduleError::Usage(error));
        }
    }
    let is_chosen = |schedule: &Schedule| names.is_empty() || names.contains(&schedule.name);
    file.schedules.retain(is_chosen);
    Ok(())
}

/// The systems that were asked for, or all that are installed, as yet without levels.
fn systems(
    arguments: &ScheduleArguments,
    all: &[(&'static dyn Suite, &'static dyn SqlSystem)],
    complain: Report,
) -> Result<Vec<ChosenSystem>, ScheduleError> {
    if all.is_empty() {
        let reason = "no suite of this program speaks SQL: build it with --features databases";
        return Err(ScheduleError::Usage(reason.into()));
    }
    let mut chosen = Vec::new();
    let mut add = |suite: &'static dyn Suite, sql: &'static dyn SqlSystem| {
        let version = sql.version()?;
        chosen.push(ChosenSystem {
            suite,
            sql,
            version,
            levels: Vec::new(),
        });
        Ok::<(), seatrial_suite::SuiteError>(())
    };
    for name in &arguments.system {
        let Some((suite, sql)) = all.iter().find(|(suite, _)| suite.name() == name) else {
            let names = all.iter().map(|(suite, _)| suite.name());
            let error = unknown_name("system", name, names);
            return Err(ScheduleError::Usage(error));
        };
        add(*suite, *sql)?;
    }
    if arguments.system.is_empty() {
        for (suite, sql) in all {
            if let Err(error) = add(*suite, *sql) {
                complain(format_args!("left out: {}: {error}", suite.name()));
            }
        }
    }
    if chosen.is_empty() {
        let reason = "no system that speaks SQL is installed";
        return Err(ScheduleError::Usage(reason.into()));
    }
    Ok(chosen)
}

/// The systems with the levels that were asked for.
fn with_levels(
    arguments: &ScheduleArguments,
    mut systems: Vec<ChosenSystem>,
) -> Result<Vec<ChosenSystem>, ScheduleError> {
    let wanted = arguments.isolation.as_deref().unwrap_or_default();
    let mut known: Vec<&str> = Vec::new();
    for system in &mut systems {
        let levels = system.sql.levels().iter();
        known.extend(levels.clone().map(|level| level.name));
        system.levels = levels.filter(|it| it.name.starts_with(wanted)).collect();
    }
    systems.retain(|system| !system.levels.is_empty());
    if systems.is_empty() {
        known.sort_unstable();
        known.dedup();
        let error = unknown_name("isolation level", wanted, known);
        return Err(ScheduleError::Usage(error));
    }
    Ok(systems)
}
